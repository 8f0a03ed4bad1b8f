"""When the liveness probe fails: never for much work, always for work that nobody takes any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from checkpoint_operator.cluster.cache import WriteName
from checkpoint_operator.cluster.health import Health
from checkpoint_operator.cluster.metrics import Metrics
from checkpoint_operator.cluster.work_queue import WorkQueue
from checkpoint_operator.cluster.workers import Workers
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.memory import MemoryBudget, reading, room_for_stored
from tests.support.waiting import until

CANARY_EVERY_S, STALE_AFTER_S = 0.05, 1.0


def workers(
    reconcile: Callable[[WriteName], float | None],
    check: Callable[[], None] = lambda: None,
    resync: Callable[[], bool] = lambda: True,
    count: int = 8,
    resync_s: float = 300.0,
) -> Workers:
    health = Health(stale_after_s=STALE_AFTER_S)
    return Workers(WorkQueue(), reconcile, check, resync, health, Metrics(), resync_s, count, CANARY_EVERY_S)


def test_a_backlog_that_takes_far_longer_than_the_canary_may_does_not_end_the_operator() -> None:
    left = threading.Semaphore(0)
    count = 800

    def reconcile(key: WriteName) -> None:
        time.sleep(0.03)
        left.release()

    busy = workers(reconcile)
    for number in range(count):
        busy.queue.add(WriteName("default", f"write-{number}"))
    started = time.monotonic()
    busy.start()
    done, was_alive, canary_s = 0, [], 0.0
    while done < count:
        done += left.acquire(timeout=0.01)
        was_alive.append(busy.health.is_alive)
        canary_s = max(canary_s, time.monotonic() - busy.health.last_round_trip)
    took_s = time.monotonic() - started
    assert busy.stop(5)
    assert took_s > 2 * STALE_AFTER_S, "no backlog worth the name"
    assert canary_s < STALE_AFTER_S
    assert all(was_alive)


class PanicException(BaseException):
    """As pyo3's: no Exception."""


@pytest.mark.parametrize("end", [PanicException, SystemExit, GeneratorExit])
def test_a_worker_survives_whatever_a_look_raises(end: type[BaseException]) -> None:
    """A thread that ends for good takes a share of the operator with it, and no probe tells."""
    looked = threading.Semaphore(0)

    def reconcile(key: WriteName) -> float | None:
        looked.release()
        raise end("no Exception")

    busy = workers(reconcile, check=lambda: None, count=1)
    busy.start()
    for number in range(3):
        busy.queue.add(WriteName("default", f"write-{number}"))
        assert looked.acquire(timeout=20)

    assert busy.stop(20)
    assert busy.health.is_alive


def test_memory_that_an_error_left_held_is_given_back_when_the_worker_comes_back() -> None:
    budget, left = MemoryBudget(4_000), list[Iterator[int]]()

    def held() -> Iterator[int]:
        with reading(), room_for_stored(budget, 600):
            yield 1

    def reconcile(key: WriteName) -> None:
        left.append(held())
        next(left[-1])

    busy = workers(reconcile, count=1)
    for number in range(3):
        busy.queue.add(WriteName("default", f"write-{number}"))
    busy.start()

    until(lambda: len(left) == 3 and budget.stored.taken == 0)
    assert busy.stop(5)


def test_a_worker_survives_a_panic_of_the_canary_and_of_the_resync() -> None:
    checked, synced = threading.Semaphore(0), threading.Semaphore(0)

    def check() -> None:
        checked.release()
        raise PanicException

    def resync() -> bool:
        synced.release()
        raise PanicException

    busy = workers(lambda key: None, check, resync, count=1, resync_s=0.01)
    busy.start()

    for happened in (checked, synced):
        for _ in range(2):
            assert happened.acquire(timeout=20)
    assert busy.stop(20)


def test_workers_that_are_all_in_long_commits_do_not_end_the_operator() -> None:
    go_on = threading.Event()
    busy = workers(lambda key: 60.0 * go_on.wait(30), count=2)
    busy.queue.add(WriteName("default", "a"))
    busy.queue.add(WriteName("default", "b"))
    busy.start()
    time.sleep(2 * STALE_AFTER_S)
    assert busy.health.is_alive

    go_on.set()
    assert busy.stop(5)


def test_workers_of_which_none_comes_back_for_an_hour_are_dead() -> None:
    now = [0.0]
    health = Health(clock=lambda: now[0], workers=2)
    health.note_taken("one")
    now[0] = 1800.0
    health.note_taken("two")

    now[0] = 1800.0 + 3599.0
    assert health.is_alive, "the other has only had it for less than an hour"
    now[0] = 1800.0 + 3601.0
    assert not health.is_alive


def test_a_worker_that_is_free_and_does_not_take_the_canary_is_dead() -> None:
    now = [0.0]
    health = Health(clock=lambda: now[0], workers=2)
    health.note_taken("one")
    now[0] = 91.0

    assert not health.is_alive
    health.note_round_trip(api_answers=False)
    assert health.is_alive


def test_an_api_server_that_is_down_makes_it_not_ready_and_not_dead() -> None:
    def check() -> None:
        raise Retryable(reasons.API_UNAVAILABLE, "no answer")

    idle = workers(lambda key: None, check)
    idle.start()
    time.sleep(2 * STALE_AFTER_S)

    assert (idle.health.is_alive, idle.health.is_ready) == (True, False)
    assert idle.stop(5)


def test_an_operator_that_was_told_once_that_its_kind_is_not_installed_is_dead() -> None:
    calls: list[None] = []

    def check() -> None:
        calls.append(None)
        if len(calls) == 2:
            raise NeedsChange(reasons.API_UNAVAILABLE, "the cluster does not know them")

    idle = workers(lambda key: None, check)
    idle.start()
    until(lambda: len(calls) > 2 and idle.health.api_answers)

    assert not idle.health.is_alive, "watches that began meanwhile found nothing to watch"
    assert idle.stop(5)


@pytest.mark.parametrize("defect", [ValueError("no JSON"), KeyError("metadata")])
def test_a_canary_or_a_resync_that_ends_unexpectedly_takes_no_worker_with_it(defect: Exception) -> None:
    calls = {"check": 0, "resync": 0}

    def check() -> None:
        calls["check"] += 1
        raise defect

    def resync() -> bool:
        calls["resync"] += 1
        raise defect

    alone = workers(lambda key: None, check, resync, count=1, resync_s=0.05)
    alone.start()
    until(lambda: min(calls.values()) >= 3)

    assert alone.health.is_alive
    assert alone.stop(5)


def test_a_resync_that_takes_long_does_not_hold_up_the_canary() -> None:
    listed = threading.Event()
    slow = workers(lambda key: None, resync=lambda: listed.wait(30), count=2, resync_s=0.01)
    slow.start()
    time.sleep(2 * STALE_AFTER_S)

    assert time.monotonic() - slow.health.last_round_trip < STALE_AFTER_S
    listed.set()
    assert slow.stop(5)
