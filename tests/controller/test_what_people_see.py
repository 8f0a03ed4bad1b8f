"""Obstacles: each is named in the status (and once in an event), nothing hangs silently, and what passes by itself goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.progress_reports import DriverProgress, Entered, Work, encode_advice
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.object_store import open_store
from tests.controller.harness import World
from tests.support.places import on_disk
from tests.support.records import plan
from tests.support.writes import SCHEMA, write_inputs


@pytest.fixture
def world(tmp_path: Path) -> World:
    place = on_disk(tmp_path, "iceberg")
    place.create(SCHEMA)
    return World(place)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_inputs(tmp_path / "input", files=2, rows=10)


def waiting(reason: str, message: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "driver", "image": "spark:1", "state": state}]}


UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: Insufficient memory"}
    ],
}

OBSTACLES: dict[str, tuple[Mapping[str, Any], str, str]] = {
    "an image that cannot be pulled": (waiting("ImagePullBackOff", "spark:1 not found"), reasons.IMAGE_UNAVAILABLE, "spark:1"),
    "a missing Secret": (
        waiting("CreateContainerConfigError", 'secret "storage" not found'),
        reasons.POD_INCOMPLETE,
        "storage",
    ),
    "no room": (UNSCHEDULABLE, reasons.POD_UNSCHEDULABLE, "Insufficient memory"),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_keeps_a_driver_from_starting_is_named_within_thirty_seconds(world: World, source: Path, obstacle: str) -> None:
    status, reason, text = OBSTACLES[obstacle]
    world.kubelet.instead[1] = status
    world.apply(source)

    world.until(lambda: world.status.reason == reason)

    assert world.clock.now_s <= 30
    assert text in (world.status.message or "")
    running = world.condition("Running")
    assert running is not None
    assert (running.status, running.reason) == ("False", reason)
    assert [event["reason"] for event in world.api.warnings] == [reason]


def test_an_obstacle_is_told_once_however_long_it_stands(world: World, source: Path) -> None:
    world.kubelet.instead[1] = UNSCHEDULABLE
    world.apply(source)
    world.until(lambda: world.status.reason == reasons.POD_UNSCHEDULABLE)
    writes = list(world.api.writes_made)

    world.pass_time(300)

    assert len(world.api.warnings) == 1
    assert world.api.writes_made == writes


def test_a_corrected_image_replaces_the_pod_at_once_and_costs_no_retry(world: World, source: Path) -> None:
    world.kubelet.instead[1] = waiting("ErrImagePull", "no such image")
    world.apply(source, backoffLimit=0)
    world.until(lambda: world.status.reason == reasons.IMAGE_UNAVAILABLE)

    world.edit(image="spark:2")
    world.until_committed()

    assert world.status.attempt == 2
    images = {pod["spec"]["containers"][0]["image"] for pod in world.api.pods.values()}
    assert images == {"spark:2"}


def test_a_pod_that_the_cluster_refuses_is_told_and_asked_for_again(world: World, source: Path) -> None:
    world.api.refuse_pods = "exceeded quota: compute"
    world.apply(source)
    world.until(lambda: world.status.reason == reasons.POD_REFUSED)
    assert "exceeded quota" in (world.status.message or "")

    world.api.refuse_pods = None
    world.until_committed()


def test_a_missing_table_stalls_and_goes_on_once_it_is_there(tmp_path: Path, source: Path) -> None:
    world = World(on_disk(tmp_path, "iceberg"))
    world.apply(source)
    world.until_stalled()
    assert world.status.reason == reasons.TABLE_MISSING
    assert not world.api.pods

    world.place.create(SCHEMA)
    world.until_committed()

    assert len(world.place.rows()) == 20


def test_code_from_a_config_map_that_raises_stalls_and_goes_on_when_it_is_mended(world: World, source: Path) -> None:
    world.api.config_maps["default", "code"] = {"data": {"cw_broken_steps.py": "def step(row):\n    raise ValueError('boom')\n"}}
    steps = [{"call": "cw_broken_steps:step", "input": "row"}]
    world.apply(source, code={"configMap": {"name": "code"}}, steps=steps)
    world.until_stalled()
    assert world.status.reason == reasons.CODE_FAILED
    assert "boom" in (world.status.message or "")
    assert world.status.attempts is not None
    assert world.status.attempts[-1].cause == "UserCode"

    # Another module's name, since this process keeps the first; a real driver is a process of its own.
    world.api.config_maps["default", "code"] = {"data": {"cw_mended_steps.py": "def step(row):\n    return row\n"}}
    world.edit(steps=[{"call": "cw_mended_steps:step", "input": "row"}])
    world.until_committed()
    assert len(world.place.rows()) == 20


def test_a_missing_config_map_stalls_with_its_name_and_goes_on_once_it_is_there(world: World, source: Path) -> None:
    steps = [{"call": "cw_config_map_steps:step", "input": "row"}]
    world.apply(source, code={"configMap": {"name": "code"}}, steps=steps)
    world.until_stalled()
    assert world.status.reason == reasons.CODE_MISSING
    assert "default/code" in (world.status.message or "")

    world.api.config_maps["default", "code"] = {"data": {"cw_config_map_steps.py": "def step(row):\n    return row\n"}}
    world.until_committed()

    assert len(world.place.rows()) == 20


def test_a_manifest_that_is_wrong_is_not_accepted_and_starts_nothing(world: World, source: Path) -> None:
    world.apply(source, backoffLimit=-1)

    world.until_stalled()

    accepted = world.condition("Accepted")
    assert accepted is not None
    assert (accepted.status, accepted.reason) == ("False", reasons.MANIFEST_INVALID)
    assert "backoffLimit" in accepted.message
    assert not world.api.pods


def test_a_manifest_that_is_corrected_goes_on(world: World, source: Path) -> None:
    world.apply(source, backoffLimit=-1)
    world.until_stalled()

    world.edit(backoffLimit=1)
    world.until_committed()

    assert world.is_true("Accepted")
    assert not world.is_true("Stalled")
    accepted = world.condition("Accepted")
    assert accepted is not None
    assert accepted.message == "a row is identified by its position in its file"


def test_an_api_server_that_does_not_answer_is_waited_for(world: World, source: Path) -> None:
    world.apply(source)
    world.until(lambda: world.api.pods)
    world.api.down = True
    world.pass_time(120)

    world.api.down = False
    world.until_committed()

    assert len(world.place.rows()) == 20


def test_an_unreadable_status_is_written_again(world: World, source: Path) -> None:
    world.apply(source)
    world.until_committed()
    key, body = next(iter(world.api.writes.items()))
    world.api._store(key, {**body, "status": {"epoch": "many", "conditions": "none"}})

    world.until_committed()

    assert world.status.rows_committed == 20
    assert len(world.place.keys()) == 1


# --- rows that fail -------------------------------------------------------------------------------------------------------

POISON = "def step(row):\n    if row['id'] in (3, 4, 15): raise ValueError('poison')\n    return row\n"


def with_poison(world: World, source: Path, **spec: Any) -> None:
    world.api.config_maps["default", "code"] = {"data": {"cw_poison_steps.py": POISON}}
    steps = [{"call": "cw_poison_steps:step", "input": "row", "name": "predict"}]
    world.apply(source, code={"configMap": {"name": "code"}}, steps=steps, onRowError="Quarantine", **spec)


def test_quarantined_rows_are_counted_in_the_status_and_told_in_one_event(world: World, source: Path) -> None:
    with_poison(world, source, quarantine={"maxShare": "20%"})

    world.until_committed()
    world.pass_time(300)

    assert (world.status.rows_quarantined, world.status.rows_committed) == (3, 17)
    committed = world.condition("Committed")
    assert committed is not None
    assert "3 rows are quarantined" in committed.message
    assert [event["reason"] for event in world.api.warnings] == ["RowsQuarantined"]
    assert "inspect" in world.api.warnings[0]["note"]
    assert world.operator.controller.metrics.registry.get_sample_value("checkpointed_writes_quarantined_rows_total") == 3


def test_too_many_failed_rows_stall_with_the_way_out_and_a_raised_limit_goes_on(world: World, source: Path) -> None:
    with_poison(world, source, quarantine={"maxRows": 2, "maxShare": "100%"})
    world.until_stalled()

    assert world.status.reason == reasons.TOO_MANY_ROW_ERRORS
    for words in ("maxRows allows 2", "quarantine.retry", "poison"):
        assert words in (world.status.message or "")
    assert world.place.rows() == []
    assert reasons.TOO_MANY_ROW_ERRORS in [event["reason"] for event in world.api.warnings]

    world.edit(quarantine={"maxRows": 3, "maxShare": "100%"})
    world.until_committed()

    assert world.status.rows_quarantined == 3
    assert len(world.place.rows()) == 17


def test_a_later_epoch_counts_its_own_quarantined_rows(world: World, source: Path) -> None:
    with_poison(world, source, quarantine={"maxShare": "20%"})
    world.until_committed()

    # Another module, as all drivers of these tests run in one process.
    world.api.config_maps["default", "code"] = {"data": {"cw_antidote_steps.py": POISON.replace("(3, 4, 15)", "(4,)")}}
    steps = [{"call": "cw_antidote_steps:step", "input": "row", "name": "predict"}]
    world.edit(runNonce="2", quarantine={"retry": "Only"}, steps=steps)
    world.until(lambda: world.status.epoch == 2 and world.is_true("Committed"))

    assert (world.status.rows_quarantined, world.status.rows_committed) == (1, 2)
    assert [event["reason"] for event in world.api.warnings] == ["RowsQuarantined", "RowsQuarantined"]


def test_rows_of_a_write_that_does_not_quarantine_cost_no_field_and_no_event(world: World, source: Path) -> None:
    world.apply(source)
    world.until_committed()

    assert world.status.rows_quarantined is None
    assert world.api.warnings == []


def test_progress_moves_within_one_task_that_has_sealed_nothing_and_is_told_ever_more_rarely(world: World, source: Path) -> None:
    world.kubelet.instead[1] = {"phase": "Running"}
    world.apply(source)
    world.until(lambda: world.status.phase == "Running")
    ledger = Ledger(world.store(), EpochKey(world.body()["metadata"]["uid"], 1))
    ledger.plans.put_plan(plan([(0, 0, 1_000_000)]))
    seen = []

    def compute(rows: int) -> None:
        work = Work(task=0, link=0, rows=rows, positions=rows)
        told = DriverProgress(attempt=1, phase="RunningTasks", unit="rows", positions_known=1_000_000, work=(work,))
        open_store(world.place.checkpoint_uri, world.place.settings).overwrite(ledger.at.progress(1), encode_advice(told))

    compute(0)
    world.pass_time(120)
    before = len(world.api.writes_made)
    for rows in range(100_000, 600_000, 100_000):
        compute(rows)
        world.pass_time(60)
        seen.append(world.status.progress)

    assert seen[0] != seen[-1]
    assert world.status.tasks_sealed == 0
    assert {text for text in seen if text is not None} <= {f"{rows}00k/1M" for rows in range(1, 6)} | {"0/1M"}
    assert len(world.api.writes_made) - before <= 6


def test_how_long_a_driver_took_until_its_tasks_ran_is_counted_once_and_by_the_times_of_its_pod(
    world: World, source: Path
) -> None:
    world.kubelet.instead[1] = {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:03Z"}],
        "containerStatuses": [{"name": "driver", "state": {"running": {"startedAt": "2026-01-01T00:00:20Z"}}}],
    }
    world.apply(source)
    world.until(lambda: world.status.phase == "Running")
    (pod,) = world.api.pods.values()
    pod["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z"
    ledger = Ledger(world.store(), EpochKey(world.body()["metadata"]["uid"], 1))
    store = open_store(world.place.checkpoint_uri, world.place.settings)
    sample = world.operator.controller.metrics.registry.get_sample_value

    def seconds() -> list[float | None]:
        return [
            sample("checkpointed_writes_driver_start_seconds_sum", {"until": until})
            for until in ("scheduled", "container", "tasks")
        ]

    def tell(*entered: Entered) -> None:
        told = DriverProgress(attempt=1, phase="RunningTasks", entered=entered)
        store.overwrite(ledger.at.progress(1), encode_advice(told))
        world.pass_time(60)

    tell(Entered(phase="Planning", after_ms=900))
    assert seconds() == [None, None, None]
    tell(Entered(phase="Planning", after_ms=900), Entered(phase="RunningTasks", after_ms=5_500))
    tell(Entered(phase="Planning", after_ms=900), Entered(phase="RunningTasks", after_ms=5_500))

    assert seconds() == [2.0, 19.0, 24.5]


def test_what_the_driver_is_at_is_told_before_it_has_sealed_anything(world: World, source: Path) -> None:
    world.kubelet.instead[1] = {"phase": "Running"}
    world.apply(source)
    world.until(lambda: world.status.phase == "Running")
    assert world.status.activity == "planning"
    store = open_store(world.place.checkpoint_uri, world.place.settings)
    at = EpochLayout(EpochKey(world.body()["metadata"]["uid"], 1))

    store.overwrite(at.progress(1), encode_advice(DriverProgress(attempt=1, phase="StartingSpark")))
    world.pass_time(40)

    assert world.status.activity == "starting Spark"
    world.edit(suspend=True)
    world.until(lambda: world.status.phase == "Suspended")
    assert world.status.activity is None


def test_the_latest_pods_that_have_ended_stay_with_their_logs_and_older_ones_are_removed(world: World, source: Path) -> None:
    for attempt in range(1, 9):
        world.kubelet.instead[attempt] = {"phase": "Failed"}
    world.apply(source, backoffLimit=20)

    world.until(lambda: world.is_true("Committed"), 10_000)

    names = sorted(name for _, name in world.api.pods)
    assert [name.rpartition("-")[2] for name in names] == ["4", "5", "6", "7", "8", "9"]
