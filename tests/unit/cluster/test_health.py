"""When the liveness probe fails: never for much work, always for work that nobody takes any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from checkpoint_operator.metrics.counters import Metrics
from checkpoint_operator.metrics.health import Health
from checkpoint_operator.watch.cache import WriteName
from checkpoint_operator.watch.work_queue import WorkQueue
from checkpoint_operator.watch.workers import Workers
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.store.memory import MemoryBudget, reading, room_for_stored
from tests.support.waiting import patience, until, wait

CANARY_EVERY_S, STALE_AFTER_S = 0.05, 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def workers(
    reconcile: Callable[[WriteName], float | None],
    check: Callable[[], None] = lambda: None,
    resync: Callable[[], bool] = lambda: True,
    count: int = 8,
    resync_s: float = 300.0,
    clock: Callable[[], float] = time.monotonic,
) -> Workers:
    """`clock` is that of the health alone: the canary comes round at all times."""
    health = Health(clock=clock, stale_after_s=STALE_AFTER_S)
    return Workers(WorkQueue(), reconcile, check, resync, health, Metrics(), resync_s, count, CANARY_EVERY_S)


def test_a_backlog_that_takes_far_longer_than_the_canary_may_does_not_end_the_operator() -> None:
    clock, ages, count = Clock(), list[float](), 800
    health, all_done = Health(clock=clock, stale_after_s=STALE_AFTER_S), threading.Event()

    def reconcile(key: WriteName) -> None:
        clock.now += 1.0
        ages.append(clock.now - health.last_round_trip)
        if len(ages) == count:
            all_done.set()

    queue = WorkQueue[WriteName](clock=clock)
    busy = Workers(queue, reconcile, lambda: None, lambda: True, health, Metrics(), 1e6, count=1, canary_every_s=10.0)
    for number in range(count):
        busy.queue.add(WriteName("default", f"write-{number}"))
    busy.start()
    wait(all_done, "the backlog")
    assert busy.stop(patience(10))

    assert max(ages) <= 11.0, "the canary goes before the backlog"


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
        assert looked.acquire(timeout=patience(20))

    assert busy.stop(patience(20))
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
    assert busy.stop(patience(5))


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
            assert happened.acquire(timeout=patience(20))
    assert busy.stop(patience(20))


def test_workers_that_are_all_in_long_commits_do_not_end_the_operator() -> None:
    go_on = threading.Event()
    taken, clock = threading.Semaphore(0), Clock()

    def commit(key: WriteName) -> float:
        taken.release()
        return 60.0 * go_on.wait()

    busy = workers(commit, count=2, clock=clock)
    busy.queue.add(WriteName("default", "a"))
    busy.queue.add(WriteName("default", "b"))
    busy.start()
    for _ in range(2):
        assert taken.acquire(timeout=patience(20))
    clock.now = 2 * STALE_AFTER_S
    assert busy.health.is_alive

    go_on.set()
    assert busy.stop(patience(5))


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
    asked, clock = threading.Semaphore(0), Clock()

    def check() -> None:
        asked.release()
        raise Retryable(reasons.API_UNAVAILABLE, "no answer")

    idle = workers(lambda key: None, check, clock=clock)
    idle.start()
    clock.now = 2 * STALE_AFTER_S
    # What is asked from now on ends after that: of the second one it is certain.
    while asked.acquire(blocking=False):
        pass
    for _ in range(3):
        assert asked.acquire(timeout=patience(20))

    assert (idle.health.is_alive, idle.health.is_ready) == (True, False)
    assert idle.stop(patience(5))


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
    assert idle.stop(patience(5))


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
    assert alone.stop(patience(5))


def test_a_resync_that_takes_long_does_not_hold_up_the_canary() -> None:
    listing, listed, asked = threading.Event(), threading.Event(), threading.Semaphore(0)

    def resync() -> bool:
        listing.set()
        return listed.wait()

    slow = workers(lambda key: None, asked.release, resync, count=2, resync_s=0.01)
    slow.start()
    wait(listing, "the resync")
    for _ in range(5):
        assert asked.acquire(timeout=patience(20)), "the canary comes round meanwhile"

    listed.set()
    assert slow.stop(patience(10))
