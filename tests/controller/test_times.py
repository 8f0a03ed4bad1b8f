"""Times that outlive the operator, and numbers that are as new as what they are told with."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.progress_reports import DriverProgress, Work, encode_advice
from checkpoint_protocol.store.object_store import open_store
from tests.controller.harness import World
from tests.controller.test_room import starve
from tests.support.records import iceberg_file, plan, seal

DEADLINE_S = 1200


pytestmark = pytest.mark.parametrize("world", ["iceberg"], indirect=True)


def apply(world: World, source: Path, **spec: object) -> None:
    checkpoint = {"uri": world.place.checkpoint_uri, "interval": "30s"}
    world.apply(source, checkpoint=checkpoint, progressDeadlineSeconds=DEADLINE_S, **spec)


def ledger_of(world: World) -> Ledger:
    return Ledger(world.store(), EpochKey(world.body()["metadata"]["uid"], 1))


def report(world: World, rows: int) -> None:
    """Say as the driver of the first attempt that its task has so many rows in hand."""
    work = Work(task=0, link=0, rows=rows, positions=rows)
    told = DriverProgress(attempt=1, phase="RunningTasks", unit="rows", positions_known=1_000_000, work=(work,))
    store = open_store(world.place.checkpoint_uri, world.place.settings)
    store.overwrite(ledger_of(world).at.progress(1), encode_advice(told))


def pass_with_restarts(world: World, seconds: float, every: float) -> None:
    for _ in range(int(seconds / every)):
        world.pass_time(every)
        world.restart_operator()


@pytest.mark.parametrize("has_work_in_hand", [False, True])
def test_a_driver_without_progress_is_given_up_at_its_deadline_however_often_the_operator_is_restarted(
    world: World, source: Path, has_work_in_hand: bool
) -> None:
    world.kubelet.instead[1] = {"phase": "Running"}
    apply(world, source)
    world.until(lambda: world.status.phase == "Running")
    if has_work_in_hand:
        ledger_of(world).plans.put_plan(plan([(0, 0, 20)]))
        report(world, 5)

    pass_with_restarts(world, DEADLINE_S - 120, every=100)
    assert (world.status.attempt, world.status.phase) == (1, "Running")
    pass_with_restarts(world, 400, every=100)

    assert next(attempt.cause for attempt in world.status.attempts or ()) == "NoProgress"


def test_an_attempt_that_went_on_while_no_operator_ran_is_not_given_up(world: World, source: Path) -> None:
    world.kubelet.instead[1] = {"phase": "Running"}
    apply(world, source)
    world.until(lambda: world.status.phase == "Running")
    ledger_of(world).plans.put_plan(plan([(0, 0, 20)]))
    report(world, 5)
    world.pass_time(300)

    world.clock.now_s += 10 * DEADLINE_S
    report(world, 6)
    world.restart_operator()
    world.pass_time(DEADLINE_S / 2)

    assert (world.status.attempt, world.status.phase) == (1, "Running")


def test_a_driver_without_executors_gives_way_in_time_however_often_the_operator_is_restarted(world: World, source: Path) -> None:
    starve(world, 1)
    apply(world, source)
    world.until(lambda: world.status.reason == reasons.EXECUTORS_PENDING)

    pass_with_restarts(world, 500, every=50)
    assert (world.status.attempt, world.status.reason) == (1, reasons.EXECUTORS_PENDING)
    pass_with_restarts(world, 800, every=50)

    assert next(attempt.cause for attempt in world.status.attempts or ()) == "Scheduling"
    assert world.status.starved_since is None


def test_a_pause_between_attempts_ends_in_time_however_often_the_operator_is_restarted(world: World, source: Path) -> None:
    for attempt in range(1, 6):
        world.kubelet.instead[attempt] = {"phase": "Failed"}
    apply(world, source, backoffLimit=10)
    world.until(lambda: world.status.attempt == 5 and world.status.phase == "Pending", 10_000)

    # 160 s and at most half of it again, of which none must be longer than the time between two restarts.
    pass_with_restarts(world, 270, every=30)

    assert (world.status.attempt or 0) >= 6


def test_a_status_is_not_written_for_a_time_that_has_not_changed(world: World, source: Path) -> None:
    world.kubelet.instead[1] = {"phase": "Running"}
    apply(world, source)
    world.until(lambda: world.status.phase == "Running")
    world.pass_time(200)
    before = len(world.api.writes_made)

    world.pass_time(DEADLINE_S - 400)

    assert len(world.api.writes_made) == before


def test_the_first_rows_that_are_sealed_are_told_at_once(world: World, source: Path) -> None:
    world.kubelet.instead[1] = {"phase": "Running"}
    apply(world, source)
    world.until(lambda: world.status.phase == "Running")
    ledger = ledger_of(world)
    ledger.plans.put_plan(plan([(0, 0, 20)]))
    # Told ever more rarely by now, and a moment ago.
    for rows in range(1, 6):
        report(world, rows)
        world.until(lambda: world.status.progress == f"{rows}/1M", 10_000)  # noqa: B023
    before = world.status.rows_sealed

    ledger.seals.put_seal(seal(rows=7, files=(iceberg_file(rows=7),)))
    world.pass_time(31)

    assert (before, world.status.rows_sealed) == (0, 7)


def test_the_event_that_all_is_sealed_tells_all_rows(world: World, source: Path) -> None:
    apply(world, source)

    world.until_committed()

    (told,) = [event["note"] for event in world.api.events if event["reason"] == "Sealed"]
    assert told == "all rows of epoch 1 (200) are sealed; the commit is next"
