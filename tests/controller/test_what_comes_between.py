"""Edits, refusals and defects that come while a write is looked at: nothing is forgotten, and nothing is told again and again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from checkpoint_commit.sinks.registry import open_sink
from checkpoint_operator.config import OperatorConfig
from checkpoint_operator.watch.cache import WriteName
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.store.object_store import ObjectStore
from tests.controller.harness import WORKLOADS, World
from tests.support.driver_threads import Killed
from tests.support.places import on_disk
from tests.support.slow import slow_except_on
from tests.support.writes import SCHEMA, write_inputs


@dataclass
class SinkBut:
    """A sink of which one method does something else first."""

    inner: Any
    method: str
    first: Callable[[], None]

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name != self.method:
            return method

        def call(*arguments: Any) -> Any:
            self.first()
            return method(*arguments)

        return call


def interfere(world: World, method: str, first: Callable[[], None]) -> None:
    settings = world.place.settings
    world.operator.controller.open_sink = lambda _, spec, __: SinkBut(open_sink(spec, settings), method, first)


def changes(world: World) -> int:
    return len(world.api.writes_made)


def fail_before_the_first_seal(world: World, drivers: int) -> None:
    def die(number: int) -> None:
        if world.kubelet.drivers_run <= drivers:
            raise Killed

    world.kubelet.between_tasks = die


def test_a_run_nonce_that_is_set_during_the_commit_is_not_taken_for_done(world: World, source: Path) -> None:
    def set_nonce() -> None:
        if world.manifest["spec"].get("runNonce") is None:
            write_inputs(source, files=5, rows=50)
            world.edit(runNonce="2", onReplaced="Skip")

    interfere(world, "commit", set_nonce)
    world.apply(source)

    world.until(lambda: world.status.epoch == 2 and world.is_true("Committed"))

    assert len(world.place.rows()) == 250


def test_a_run_nonce_that_is_set_while_a_driver_works_is_not_that_of_the_epoch_before_its_own_has_begun(
    world: World, source: Path
) -> None:
    world.kubelet.instead[1] = {"phase": "Running"}
    world.apply(source, activeDeadlineSeconds=3600)
    world.until(lambda: world.status.phase == "Running")

    world.edit(runNonce="2")
    world.pass_time(120)

    assert (world.status.epoch, world.status.run_nonce) == (1, "")

    world.pass_time(3600)

    assert world.status.reason == reasons.DEADLINE_EXCEEDED


def test_a_pod_that_stays_refused_costs_no_more_changes_but_the_asking(world: World, source: Path) -> None:
    world.api.refuse_pods = "exceeded quota"
    world.apply(source)
    world.pass_time(300)
    asking = {"create secret", "create pod"}
    before = [made for made in world.api.writes_made if made not in asking]

    world.pass_time(1500)

    assert [made for made in world.api.writes_made if made not in asking] == before
    assert world.status.reason == reasons.POD_REFUSED


def test_a_commit_that_stays_refused_stays_stalled_without_another_word(world: World, source: Path) -> None:
    def refuse() -> None:
        raise NeedsChange(reasons.SCHEMA_CHANGED, "the column text is gone")

    interfere(world, "commit", refuse)
    world.apply(source)
    world.until_stalled()
    world.pass_time(120)
    made, stalled = changes(world), world.condition("Stalled")

    world.pass_time(1500)

    assert changes(world) == made
    assert world.condition("Stalled") == stalled


def test_a_driver_whose_end_was_asked_for_in_vain_is_asked_to_end_again(world: World, source: Path) -> None:
    world.kubelet.instead[1] = {"phase": "Running"}
    world.apply(source)
    world.until(lambda: world.status.phase == "Running")
    refused: list[str] = []

    def refuse_once(request: str) -> None:
        if request == "delete pod" and not refused:
            refused.append(request)
            raise Retryable(reasons.API_UNAVAILABLE, "503")

    world.api.before = refuse_once
    world.edit(suspend=True)

    world.until(lambda: world.status.phase == "Suspended" and not world.api.pods)

    assert refused


@slow_except_on("world", "lance")
def test_an_edit_after_the_backoff_was_exhausted_counts_whatever_error_follows(world: World, source: Path) -> None:
    fail_before_the_first_seal(world, drivers=2)
    world.apply(source, backoffLimit=1)
    world.until_stalled()
    opened = world.operator.controller.open_store
    left = 3

    def open_store(namespace: str, uri: str) -> ObjectStore:
        nonlocal left
        left -= 1
        if left > 0:
            raise Retryable(reasons.STORE_UNAVAILABLE, "no answer")
        return opened(namespace, uri)

    world.operator.controller.open_store = open_store
    world.edit(executor={"cores": 1})

    world.until_committed()

    assert len(world.place.rows()) == 200


def test_what_is_all_sealed_is_committed_also_if_its_code_is_gone(world: World, source: Path) -> None:
    world.api.config_maps["default", "code"] = {"data": {"cw_passing_steps.py": "def step(row):\n    return row\n"}}
    world.kubelet.after_all = lambda: world.api.config_maps.clear()
    steps = [{"call": "cw_passing_steps:step", "input": "row"}]

    world.apply(source, code={"configMap": {"name": "code"}}, steps=steps)
    world.until_committed()

    assert len(world.place.rows()) == 200


def test_what_the_operator_did_not_foresee_is_said_and_tried_again(world: World, source: Path) -> None:
    opened = world.operator.controller.open_store

    def open_store(namespace: str, uri: str) -> ObjectStore:
        raise TypeError("unexpected")

    world.operator.controller.open_store = open_store
    world.apply(source)
    world.until_stalled()
    assert world.status.reason == reasons.OPERATOR_DEFECT
    assert "TypeError: unexpected" in (world.status.message or "")

    world.operator.controller.open_store = opened
    world.until_committed()


class PanicException(BaseException):
    """As pyo3's, which a panic of a library in Rust becomes: no Exception, so that nothing catches it by accident."""


def test_a_panic_of_a_native_library_is_said_and_tried_again(world: World, source: Path) -> None:
    opened = world.operator.controller.open_store

    def open_store(namespace: str, uri: str) -> ObjectStore:
        raise PanicException("index out of bounds: the len is 0 but the index is 0")

    world.operator.controller.open_store = open_store
    world.apply(source)
    world.until_stalled()
    assert world.status.reason == reasons.OPERATOR_DEFECT
    assert "PanicException: index out of bounds" in (world.status.message or "")

    world.operator.controller.open_store = opened
    world.until_committed()


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_process_is_no_defect(world: World, source: Path, end: type[BaseException]) -> None:
    def open_store(namespace: str, uri: str) -> ObjectStore:
        raise end

    world.operator.controller.open_store = open_store
    world.apply(source)

    with pytest.raises(end):
        world.until_stalled()


def test_the_operators_own_disk_is_not_for_manifests(tmp_path: Path) -> None:
    place = on_disk(tmp_path, "iceberg")
    place.create(SCHEMA)
    world = World(place, config=OperatorConfig(namespaces=("default",), workloads=WORKLOADS))

    world.apply(write_inputs(tmp_path / "input", files=1, rows=1))
    world.until_stalled()

    assert "spec.checkpoint.uri" in (world.status.message or "")


def test_a_commit_that_waits_for_its_turn_says_so_once(world: World, source: Path) -> None:
    turns = world.operator.controller._turns
    with ExitStack() as others:
        for number in range(turns.most):
            others.enter_context(turns.take(WriteName("another", f"write-{number}")))
        world.apply(source)
        world.until(lambda: world.status.reason == reasons.COMMIT_QUEUED)
        made = changes(world)
        world.pass_time(300)
        assert changes(world) == made

    world.until_committed()


@pytest.mark.parametrize("nothing", ["labels", "annotations"])
def test_an_empty_field_of_a_pod_template_asks_for_nothing(world: World, source: Path, nothing: str) -> None:
    world.apply(source, driver={"template": {"metadata": {nothing: None}}})

    world.until_committed()
