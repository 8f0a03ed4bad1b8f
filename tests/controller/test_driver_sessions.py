"""One driver does the stages of an epoch, one after the other; one that is lost on the way costs the start of another."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from checkpoint_operator.status.round_status import APPROVE_ANNOTATION
from checkpoint_operator.watch.cache import WriteName
from checkpoint_operator.watch.work_queue import WorkQueue
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.writes import list_stages
from tests.controller.harness import World
from tests.controller.test_triggers import drivers_of, ids, put_file, until_up_to_date
from tests.support.driver_threads import Killed
from tests.support.pipelines import STAGES, TABLE
from tests.support.places import on_disk
from tests.support.slow import slow_except_on
from tests.support.waiting import wait
from tests.support.writes import rows_of

UPSERT: dict[str, Any] = {"mode": "Upsert", "upsertKeys": ["id"]}
iceberg_only = pytest.mark.parametrize("world", ["iceberg"], indirect=True)


def upsert_into(world: World, source: Path, **spec: Any) -> None:
    """Apply a write of 200 rows, of which 50 are in the table."""
    world.place.append(rows_of(range(50)))
    world.apply(source, sink={**world.place.sink(), **UPSERT}, **spec)


def ledgers_of(world: World, epoch: int = 1) -> list[Ledger]:
    """Return those of the epoch's stages that have begun; the epoch's own is the last one."""
    key = EpochKey(world.status.write_uid or "", epoch)
    return [Ledger(world.store(), one) for one in (*list_stages(world.store(), key), key)]


def attempts_of(world: World, epoch: int = 1) -> list[list[int]]:
    return [ledger.attempts.list_attempts() for ledger in ledgers_of(world, epoch)]


def is_in_stage(world: World) -> bool:
    return world.status.write_uid is not None and len(ledgers_of(world)) > 1


def end_driver_that_waits(world: World) -> None:
    """Kill the driver that has done the steps when it begins to wait: before anything is recorded that it could do."""

    def kill() -> None:
        if not is_in_stage(world):
            raise Killed

    world.kubelet.after_all = kill


def test_an_upsert_is_done_by_one_driver_which_ends_with_the_commit(world: World, source: Path) -> None:
    upsert_into(world, source)
    world.until_committed()

    assert (attempts_of(world), world.kubelet.drivers_run) == ([[1], [1]], 1)
    assert ids(world) == list(range(200))
    world.until(lambda: not world.kubelet.join())
    assert [pod["status"]["phase"] for pod in world.api.pods.values()] == ["Succeeded"]


@iceberg_only
def test_the_status_of_a_merge_names_the_pod_that_does_it(world: World, source: Path) -> None:
    seen = threading.Event()

    def look() -> bool:
        if world.status.stage is not None:
            shown = {attempt.pod for attempt in world.status.attempts or ()}
            if shown == {name for _, name in world.api.pods}:
                seen.set()
        return seen.is_set()

    def hold(_: int) -> None:
        if is_in_stage(world):
            wait(seen, "the status names the pod")

    world.kubelet.between_tasks = hold
    upsert_into(world, source)
    try:
        world.until(look)
    finally:
        seen.set()
    world.until_committed()


def test_a_driver_that_is_lost_while_it_waits_costs_no_attempt(world: World, source: Path) -> None:
    end_driver_that_waits(world)
    upsert_into(world, source)
    world.until_committed()

    assert (attempts_of(world), world.kubelet.drivers_run) == ([[1], [1]], 2)
    assert ids(world) == list(range(200))


@slow_except_on("world", "iceberg")
def test_a_driver_that_is_lost_in_the_merge_is_followed_by_one_of_its_next_attempt(world: World, source: Path) -> None:
    def kill(_: int) -> None:
        if is_in_stage(world) and world.kubelet.drivers_run == 1:
            raise Killed

    world.kubelet.between_tasks = kill
    upsert_into(world, source)
    world.until_committed()

    assert (attempts_of(world), world.kubelet.drivers_run) == ([[1, 2], [1]], 2)
    assert ids(world) == list(range(200))


def test_a_merge_that_is_planned_again_as_the_table_has_moved_is_done_by_the_same_driver(world: World, source: Path) -> None:
    moved: list[bool] = []

    def move(_: int) -> None:
        if is_in_stage(world) and not moved:
            moved.append(True)
            world.place.append(rows_of(range(150, 210)))

    world.kubelet.between_tasks = move
    upsert_into(world, source)
    world.until_committed()

    assert (attempts_of(world), world.kubelet.drivers_run) == ([[1], [1], [1]], 1)
    assert ids(world) == list(range(210))


@iceberg_only
def test_an_operator_that_begins_anew_and_another_one_beside_it_leave_the_merge_to_the_driver_that_waits(
    world: World, source: Path
) -> None:
    upsert_into(world, source)
    world.until(lambda: is_in_stage(world))
    world.restart_operator()
    queue: WorkQueue[WriteName] = WorkQueue(clock=world.clock)
    beside = world._operator(queue)

    def is_committed() -> bool:
        beside.controller.reconcile(world.key)
        return world.is_true("Committed")

    world.until(is_committed)

    assert (attempts_of(world), world.kubelet.drivers_run) == ([[1], [1]], 1)
    assert ids(world) == list(range(200))


@iceberg_only
def test_what_is_edited_while_a_driver_waits_has_the_merge_done_by_another(world: World, source: Path) -> None:
    def edit() -> None:
        world.edit(driver={"cores": 2})
        world.kubelet.after_all = lambda: None

    world.kubelet.after_all = edit
    upsert_into(world, source)
    world.until_committed()

    assert (attempts_of(world), world.kubelet.drivers_run) == ([[1], [1]], 2)
    assert ids(world) == list(range(200))


@iceberg_only
def test_a_driver_that_waits_for_the_next_epoch_does_its_merges_too(world: World, source: Path) -> None:
    upsert_into(world, source, trigger={"every": "1s", "keepDriver": "1h"})
    until_up_to_date(world, 1)
    put_file(source, "b.parquet", range(190, 220))
    until_up_to_date(world, 2)

    assert (drivers_of(world), world.kubelet.drivers_run) == (["1-1"], 1)
    assert [attempts_of(world, epoch) for epoch in (1, 2)] == [[[1], [1]]] * 2
    assert ids(world) == list(range(220))


@iceberg_only
def test_a_driver_that_waits_for_the_next_epoch_is_not_taken_for_one_that_does_not_end(world: World, source: Path) -> None:
    world.apply(source, trigger={"every": "1s", "keepDriver": "1h"})
    until_up_to_date(world, 1)

    world.pass_time(70)

    assert drivers_of(world) == ["1-1"]


@iceberg_only
def test_an_epoch_by_a_run_nonce_does_not_wait_for_a_driver_that_has_ended_with_the_one_before(
    world: World, source: Path
) -> None:
    upsert_into(world, source)
    world.until_committed()
    put_file(source, "b.parquet", range(190, 220))
    world.edit(runNonce="2")
    world.until(lambda: world.status.epoch == 2 and world.is_true("Committed"))

    assert world.kubelet.drivers_run == 2
    assert ids(world) == list(range(220))


@pytest.fixture
def pipeline(tmp_path: Path) -> World:
    place = on_disk(tmp_path, "iceberg")
    place.create(TABLE)
    return World(place)


def stages_of_pipeline() -> list[dict[str, Any]]:
    return [
        {"name": name, "steps": [{"call": f"tests.support.pipelines:{name}", "input": "row", "arguments": {"argument": "a"}}]}
        for name in STAGES
    ]


def test_the_stages_of_a_pipeline_are_done_by_one_driver(pipeline: World, source: Path) -> None:
    pipeline.apply(source, stages=stages_of_pipeline())
    pipeline.until_committed()

    assert (attempts_of(pipeline), pipeline.kubelet.drivers_run) == ([[1], [1], [1]], 1)
    assert ids(pipeline) == list(range(200))


@pytest.mark.slow
def test_a_driver_that_is_lost_in_a_stage_is_followed_by_one_that_does_those_after_it_too(pipeline: World, source: Path) -> None:
    def kill(_: int) -> None:
        if len(ledgers_of(pipeline)) > 2 and pipeline.kubelet.drivers_run == 1:
            raise Killed

    pipeline.kubelet.between_tasks = kill
    pipeline.apply(source, stages=stages_of_pipeline())
    pipeline.until_committed()

    assert (attempts_of(pipeline), pipeline.kubelet.drivers_run) == ([[1], [1, 2], [1]], 2)
    assert ids(pipeline) == list(range(200))


def test_what_an_edit_costs_stands_in_the_status_while_a_person_is_asked_and_until_the_commit(
    pipeline: World, source: Path
) -> None:
    def change_the_code_and_die(number: int) -> None:
        if number and len(ledgers_of(pipeline)) > 2 and pipeline.kubelet.drivers_run == 1:
            pipeline.edit(image="registry.example.com/mended:2")
            raise Killed

    pipeline.kubelet.between_tasks = change_the_code_and_die
    pipeline.apply(source, stages=stages_of_pipeline(), onCodeChange="Ask")
    pipeline.until_stalled()

    assert pipeline.status.reason == reasons.CODE_CHANGED
    assert [(stage.name, stage.what, stage.because) for stage in pipeline.status.stages or ()] == [
        ("first", "redo", "its code has changed"),
        ("second", "redo", "its input is computed again"),
        ("third", "begin", None),
    ]
    assert pipeline.kubelet.drivers_run == 1
    (value,) = re.findall(rf"{APPROVE_ANNOTATION}=(\S+) ", pipeline.status.message or "")
    pipeline.api.annotate(pipeline.key, APPROVE_ANNOTATION, value)
    pipeline.until_committed()
    assert pipeline.status.stages is None
    assert ids(pipeline) == list(range(200))


def test_a_pipeline_that_is_edited_while_a_driver_waits_is_gone_on_with_by_another_driver(pipeline: World, source: Path) -> None:
    edited = [{**stage} for stage in stages_of_pipeline()]
    edited[2] = {**edited[2], "steps": [{**edited[2]["steps"][0], "arguments": {"argument": "b"}}]}

    def edit() -> None:
        pipeline.edit(stages=edited)
        pipeline.kubelet.after_all = lambda: None

    pipeline.kubelet.after_all = edit
    pipeline.apply(source, stages=stages_of_pipeline())
    pipeline.until_committed()

    assert pipeline.kubelet.drivers_run == 2
    assert {row["third"].partition(" of ")[0] for row in pipeline.place.rows()} == {"b by 1"}
