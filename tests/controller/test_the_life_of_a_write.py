"""What the controller does with a write, from apply to commit, with drivers that die in the ways that pods die."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from checkpoint_operator.ends.deleting import FINALIZER
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_protocol.store.object_store import open_store as open_any_store
from checkpoint_protocol.writes import read_write
from tests.controller.harness import World
from tests.support.driver_threads import Killed
from tests.support.slow import slow_except_on
from tests.support.waiting import until
from tests.support.writes import write_inputs


def ids(world: World) -> list[int]:
    return sorted(row["id"] for row in world.place.rows())


def rows_taken_over(world: World, attempt: int) -> int:
    key = EpochKey(world.body()["metadata"]["uid"], 1)
    plan = Ledger(open_any_store(world.place.checkpoint_uri, world.place.settings), key).plans.read_plan(attempt)
    assert plan is not None
    return plan.done_rows


def test_a_write_is_committed_once_and_its_status_says_so(world: World, source: Path) -> None:
    world.apply(source)

    world.until_committed()

    assert ids(world) == list(range(200))
    assert len(world.place.keys()) == 1
    status = world.status
    assert (status.phase, status.rows_committed, status.attempt, status.epoch) == ("Committed", 200, 1, 1)
    assert status.commit is not None
    assert status.commit.key == world.place.keys()[0]
    assert status.attempts is not None
    assert status.attempts[0].cause == "Completed"
    assert not world.api.warnings, "events are for what a person acts on"


def test_a_source_that_holds_the_table_is_refused_before_the_write_is_recorded(world: World, source: Path) -> None:
    world.apply(source.parent)
    world.until_stalled()
    uid = world.body()["metadata"]["uid"]
    assert "let each have a folder of its own" in (world.status.message or "")
    assert read_write(world.store(), uid) is None

    world.edit(source={"files": {"format": "parquet", "paths": [str(source)]}})
    world.until_committed()

    assert ids(world) == list(range(200))
    assert read_write(world.store(), uid) is not None


def test_a_checkpoint_folder_that_is_the_source_folder_is_left_as_it_was(world: World, source: Path) -> None:
    before = sorted(source.rglob("*"))
    world.apply(source, checkpoint={"uri": str(source)})

    world.until_stalled()

    assert "let each have a folder of its own" in (world.status.message or "")
    assert sorted(source.rglob("*")) == before


def test_a_life_of_which_each_task_is_seen_costs_nine_writes_to_the_api_at_most_and_one_for_ten_seconds_of_progress(
    world: World, source: Path
) -> None:
    """What lies between two rounds is never told: planning, for one, may be over before the first."""

    def be_seen(number: int = 0) -> None:
        world.operator.let_see(world.key)

    world.kubelet.between_tasks = be_seen
    world.kubelet.after_all = be_seen
    world.apply(source)

    world.until_committed()
    progress_told = world.clock.now_s // 10  # time passes while a driver computes, and how long it does is the machine's affair
    world.pass_time(300)

    assert world.operator.turns > 12, "a round for each task of the driver"
    assert len(world.api.writes_made) <= 9 + progress_told, world.api.writes_made


def test_nothing_is_written_to_the_api_once_all_is_done(world: World, source: Path) -> None:
    world.apply(source)
    world.until_committed()
    world.pass_time(300)
    before = list(world.api.writes_made)

    world.operator.queue.add(world.key)
    world.pass_time(3600)

    assert world.api.writes_made == before


def test_a_restarted_operator_finds_a_finished_write_and_asks_no_store(world: World, source: Path) -> None:
    world.apply(source)
    world.until_committed()
    world.restart_operator()
    world.operator.controller.open_store = lambda *_: pytest.fail("the store was asked")

    world.pass_time(600)

    assert world.status.phase == "Committed"


def test_an_attempt_stands_in_the_status_before_its_pod_is_made(world: World, source: Path) -> None:
    seen = []

    def look(request: str) -> None:
        if request == "create pod":
            seen.append([attempt.pod for attempt in world.status.attempts or ()])

    world.api.before = look
    world.apply(source)

    world.until_committed()

    assert seen == [[name for _, name in world.api.pods]]


def test_a_killed_driver_is_followed_by_one_that_does_the_rest_only(world: World, source: Path) -> None:
    def die_once(number: int) -> None:
        if number == 2 and world.kubelet.drivers_run == 1:
            raise Killed

    world.kubelet.between_tasks = die_once
    world.apply(source)

    world.until_committed()

    assert ids(world) == list(range(200))
    assert len(world.place.keys()) == 1
    assert world.kubelet.drivers_run == 2
    assert rows_taken_over(world, attempt=2) > 0, "sealed rows are not computed again"
    assert [event["reason"] for event in world.api.warnings] == ["AttemptFailed"]


def test_a_driver_that_was_killed_for_memory_after_its_last_seal_has_succeeded(world: World, source: Path) -> None:
    def die() -> None:
        raise Killed("OOMKilled")

    world.kubelet.after_all = die
    world.apply(source)

    world.until_committed()

    assert ids(world) == list(range(200))
    assert world.kubelet.drivers_run == 1


def test_out_of_memory_is_named_in_status_and_event(world: World, source: Path) -> None:
    def die(number: int) -> None:
        raise Killed("OOMKilled")

    world.kubelet.between_tasks = die
    world.apply(source, backoffLimit=0)

    world.until_stalled()

    assert world.status.reason == reasons.BACKOFF_LIMIT_EXCEEDED
    assert world.status.attempts is not None
    assert world.status.attempts[0].cause == "OOMKilled"
    assert "spec.driver.memory" in (world.status.attempts[0].message or "")
    assert {event["reason"] for event in world.api.warnings} == {"AttemptFailed", reasons.BACKOFF_LIMIT_EXCEEDED}


def test_a_deleted_pod_is_replaced_by_the_next_attempts(world: World, source: Path) -> None:
    def delete_own_pod(number: int) -> None:
        if number == 1 and world.kubelet.drivers_run == 1:
            world.api.remove_pod(next(iter(world.api.pods.values())))

    world.kubelet.between_tasks = delete_own_pod
    world.apply(source)

    world.until_committed()

    assert ids(world) == list(range(200))
    assert len(world.place.keys()) == 1


@slow_except_on("world", "iceberg")
def test_after_backoff_was_exhausted_a_higher_limit_goes_on(world: World, source: Path) -> None:
    def die(number: int) -> None:
        if world.kubelet.drivers_run == 1:
            raise Killed

    world.kubelet.between_tasks = die
    world.apply(source, backoffLimit=0)
    world.until_stalled()
    assert world.status.reason == reasons.BACKOFF_LIMIT_EXCEEDED

    world.edit(backoffLimit=1)
    world.until_committed()

    assert ids(world) == list(range(200))


def test_attempts_that_seal_something_do_not_exhaust_the_backoff(world: World, source: Path) -> None:
    def die(number: int) -> None:
        if number == 1 and world.kubelet.drivers_run < 4:
            raise Killed

    world.kubelet.between_tasks = die
    world.apply(source, backoffLimit=0)

    world.until_committed()

    assert ids(world) == list(range(200))
    assert world.status.attempt == 4


def test_failed_attempts_are_followed_after_a_pause_that_doubles(world: World, source: Path) -> None:
    starts: list[float] = []
    ended = {"name": "driver", "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}

    def fail_at_once(pod: dict[str, Any]) -> None:
        starts.append(world.clock.now_s)
        world.api.set_pod_status(pod, {"phase": "Failed", "containerStatuses": [ended]})

    world.api.on_pod = fail_at_once
    world.apply(source, backoffLimit=2)

    world.until_stalled()

    pauses = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert len(pauses) == 2
    assert 10 <= pauses[0] < 20 <= pauses[1] < 40


def test_a_run_nonce_takes_only_what_came_since(world: World, source: Path) -> None:
    world.apply(source)
    world.until_committed()
    write_inputs(source, files=5, rows=50)  # the first four again, unchanged but for their time
    (source / "part-4.parquet").rename(source / "part-9.parquet")

    world.edit(runNonce="2", onReplaced="Skip")
    world.until(lambda: world.status.epoch == 2 and world.is_true("Committed"))

    assert ids(world) == list(range(250))
    assert len(world.place.keys()) == 2


def test_a_suspended_write_ends_its_driver_and_goes_on_when_resumed(world: World, source: Path) -> None:
    def suspend(number: int) -> None:
        if number == 2 and world.kubelet.drivers_run == 1:
            world.edit(suspend=True)
            until(lambda: not world.api.pods, "the deletion of the pod")
            raise Killed

    world.kubelet.between_tasks = suspend
    world.apply(source)
    world.until(lambda: world.status.phase == "Suspended")
    assert not world.api.pods
    looked = world.kubelet.drivers_run
    world.pass_time(600)
    assert world.kubelet.drivers_run == looked

    world.edit(suspend=False)
    world.until_committed()

    assert ids(world) == list(range(200))
    assert rows_taken_over(world, attempt=2) > 0


def test_past_its_active_deadline_a_write_stalls_and_goes_on_when_it_is_unset(world: World, source: Path) -> None:
    world.kubelet.instead[1] = {"phase": "Running"}
    world.apply(source, activeDeadlineSeconds=100)

    world.until_stalled()

    assert world.status.reason == reasons.DEADLINE_EXCEEDED
    assert 100 <= world.clock.now_s < 150
    world.edit(activeDeadlineSeconds=None)
    world.until_committed()
    assert ids(world) == list(range(200))


@slow_except_on("world", "lance")
def test_a_driver_without_progress_is_given_up(world: World, source: Path) -> None:
    world.kubelet.instead[1] = {"phase": "Running"}
    checkpoint = {"uri": world.place.checkpoint_uri, "interval": "3s"}
    world.apply(source, checkpoint=checkpoint, progressDeadlineSeconds=60)

    world.until_committed()

    assert ids(world) == list(range(200))
    assert world.status.attempts is not None
    assert [attempt.cause for attempt in world.status.attempts] == ["NoProgress", "Completed"]


def test_a_finished_write_is_deleted_after_its_time_to_live(world: World, source: Path) -> None:
    world.apply(source, ttlSecondsAfterFinished=100)
    world.until_committed()

    world.pass_time(90)
    assert world.key in world.api.writes
    world.pass_time(20)

    assert world.key not in world.api.writes
    assert ids(world) == list(range(200))


def test_a_driver_that_lingers_after_the_commit_is_ended(world: World, source: Path) -> None:
    world.apply(source)
    world.until_committed()
    (pod,) = world.api.pods.values()
    world.api.set_pod_status(pod, {"phase": "Running"})

    world.pass_time(50)
    assert world.api.pods
    world.pass_time(30)

    assert not world.api.pods


def test_the_finalizer_is_on_before_anything_of_the_write_exists_elsewhere(world: World, source: Path) -> None:
    opened = world.operator.controller.open_store

    def open_store(namespace: str, uri: str) -> ObjectStore:
        assert FINALIZER in world.body()["metadata"]["finalizers"]
        return opened(namespace, uri)

    world.operator.controller.open_store = open_store
    world.apply(source)

    world.until_committed()
