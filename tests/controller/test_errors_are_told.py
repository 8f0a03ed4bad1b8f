"""What is wrong outside while a write runs, commits or is deleted: in a condition, once in an event, and gone when it is over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkpoint_commit.sinks.registry import open_sink
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import ClaimRecord, IcebergBase
from checkpoint_protocol.store.object_store import ObjectStore, open_store
from tests.controller.harness import World
from tests.controller.test_what_comes_between import SinkBut
from tests.support.places import on_disk
from tests.support.writes import SCHEMA, write_inputs


@pytest.fixture
def world(tmp_path: Path) -> World:
    place = on_disk(tmp_path, "iceberg")
    place.create(SCHEMA)
    return World(place)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_inputs(tmp_path / "input", files=2, rows=10)


def catalog_is_down() -> None:
    raise Retryable(reasons.CATALOG_UNAVAILABLE, "the catalog local did not answer")


def condition(world: World, kind: str) -> tuple[str, str, str]:
    found = world.condition(kind)
    assert found is not None
    return found.status, found.reason, found.message


def test_a_catalog_that_is_down_at_the_commit_stands_in_a_condition_and_once_in_an_event(world: World, source: Path) -> None:
    settings = world.place.settings
    world.operator.controller.open_sink = lambda _, spec, __: SinkBut(open_sink(spec, settings), "commit", catalog_is_down)
    world.apply(source)
    world.until(lambda: world.status.reason == reasons.CATALOG_UNAVAILABLE)
    world.pass_time(600)

    assert world.status.phase == "Committing"
    assert condition(world, "Committed") == ("False", reasons.CATALOG_UNAVAILABLE, "the catalog local did not answer")
    assert [event["reason"] for event in world.api.warnings] == [reasons.CATALOG_UNAVAILABLE]

    world.restart_operator()
    world.until_committed()

    assert condition(world, "Committed")[:2] == ("True", "CommitSeen")
    assert world.status.reason is None
    assert [event["reason"] for event in world.api.warnings] == [reasons.CATALOG_UNAVAILABLE]


def test_a_store_that_is_down_while_a_driver_runs_stands_in_a_condition_and_once_in_an_event(world: World, source: Path) -> None:
    world.api.on_pod = lambda pod: world.api.set_pod_status(pod, {"phase": "Running"})
    world.apply(source)
    world.until(lambda: world.status.phase == "Running")
    is_down = True

    def store_at(namespace: str, uri: str) -> ObjectStore:
        if is_down:
            raise Retryable(reasons.STORE_UNAVAILABLE, "s3://bucket/ did not answer")
        return open_store(uri, world.place.settings)

    world.restart_operator()
    world.operator.controller.open_store = store_at
    world.pass_time(300)

    assert world.status.phase == "Running"
    assert condition(world, "Running") == ("True", reasons.STORE_UNAVAILABLE, "s3://bucket/ did not answer")
    assert [event["reason"] for event in world.api.warnings] == [reasons.STORE_UNAVAILABLE]

    is_down = False
    world.pass_time(120)

    assert condition(world, "Running") == ("True", "DriverAtWork", "")
    assert world.status.reason is None


def test_the_last_drivers_pod_stays_named_after_its_end(world: World, source: Path) -> None:
    world.apply(source)

    world.until_committed()

    assert world.status.driver_pod == next(name for _, name in world.api.pods)


def test_an_edit_that_counts_from_the_next_attempt_only_says_so_while_a_driver_is_at_work(world: World, source: Path) -> None:
    world.api.on_pod = lambda pod: world.api.set_pod_status(pod, {"phase": "Running"})
    world.apply(source)
    world.until(lambda: world.status.phase == "Running")
    assert condition(world, "Accepted")[1] == "ManifestValid"

    world.edit(driver={"memory": "2Gi"})
    world.pass_time(30)

    status, reason, message = condition(world, "Accepted")
    assert (status, reason) == ("True", "EditWaits")
    assert "counts from the next attempt" in message

    world.api.on_pod = world.kubelet.run
    (pod,) = world.api.pods.values()
    world.api.remove_pod(pod)
    world.until_committed()

    assert condition(world, "Accepted")[1] == "ManifestValid"


def test_an_edit_of_what_counts_at_once_does_not_wait(world: World, source: Path) -> None:
    world.api.on_pod = lambda pod: world.api.set_pod_status(pod, {"phase": "Running"})
    world.apply(source)
    world.until(lambda: world.status.phase == "Running")

    world.edit(backoffLimit=7)
    world.pass_time(30)

    assert condition(world, "Accepted")[1] == "ManifestValid"


def test_a_deletion_that_waits_for_a_commit_says_so_and_that_its_rows_may_stay(world: World, source: Path) -> None:
    settings = world.place.settings

    def fail_after_the_claim() -> None:
        uid = world.body()["metadata"]["uid"]
        ledger = Ledger(world.store(), EpochKey(uid, 1))
        ledger.commits.put_claim(
            ClaimRecord(token=new_token(), index=0, base=IcebergBase(table_uuid="unknown", snapshot_id=None))
        )
        catalog_is_down()

    world.operator.controller.open_sink = lambda _, spec, __: SinkBut(open_sink(spec, settings), "commit", fail_after_the_claim)
    world.apply(source)
    world.until(lambda: world.status.reason == reasons.CATALOG_UNAVAILABLE)
    world.operator.controller.open_sink = lambda _, spec, __: SinkBut(open_sink(spec, settings), "block_commit", catalog_is_down)

    world.api.delete(world.key)
    world.pass_time(120)

    assert world.status.phase == "Deleting"
    assert "the catalog local did not answer" in (world.status.message or "")
    assert "rows that it has committed stay" in (world.status.message or "")


def test_a_misspelt_field_of_an_executor_template_stalls_with_its_name_before_a_driver_starts(world: World, source: Path) -> None:
    def know_only_containers(request: str) -> None:
        if request == "try pod":
            raise NeedsChange(reasons.MANIFEST_INVALID, 'unknown field "spec.nodeSelectr"')

    world.api.before = know_only_containers
    world.apply(source, executor={"template": {"spec": {"nodeSelectr": {"disk": "ssd"}}}})
    world.until_stalled()

    assert world.status.reason == reasons.MANIFEST_INVALID
    assert (world.status.message or "").startswith('spec.executor.template: unknown field "spec.nodeSelectr" (more: ')
    assert not world.api.pods

    world.api.before = lambda request: None
    world.edit(executor={"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}})
    world.until_committed()


def test_what_others_say_is_printable_in_a_status_and_its_events(world: World, source: Path) -> None:
    def refuse(namespace: str, uri: str) -> ObjectStore:
        raise NeedsChange(reasons.STORE_UNSAFE, "no \x1b]52;c;ZXZpbA==\x07 \u202e here, at http://me:geheim@host")

    world.operator.controller.open_store = refuse
    world.apply(source)
    world.until_stalled()

    told = json.dumps([world.body()["status"], *world.api.events], ensure_ascii=False)
    assert r"\\x1b]52;c;ZXZpbA==" in told
    assert "\u202e" not in told
    assert "\\u001b" not in told
    assert "http://me:***@host" in told
