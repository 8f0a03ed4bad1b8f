"""The work queue: once each, one worker at a time, later when asked for."""

from __future__ import annotations

import math
import threading

from checkpoint_operator.watch.work_queue import WorkQueue
from tests.support.waiting import patience, until


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class OfOneThread(WorkQueue[str]):
    """Nobody else adds keys: who waits for one would wait for good."""

    def _patience(self) -> float | None:
        raise AssertionError("nothing can be taken")


def queue() -> tuple[WorkQueue[str], Clock]:
    clock = Clock()
    return OfOneThread(clock=clock), clock


def test_a_key_that_is_added_often_is_taken_once() -> None:
    work, _ = queue()
    for _ in range(3):
        work.add("a")

    assert work.take() == "a"
    work.done("a")
    assert work.count_due() == 0


def test_keys_are_taken_in_the_order_in_which_they_are_due() -> None:
    work, clock = queue()
    work.add("later", 2.0)
    work.add("first")
    work.add("second")
    clock.now_s = 3.0

    assert [work.take(), work.take(), work.take()] == ["first", "second", "later"]


def test_a_key_that_is_not_due_waits() -> None:
    work, clock = queue()
    work.add("a", 5.0)
    clock.now_s = 4.9
    assert work.count_due() == 0

    clock.now_s = 5.0
    assert work.take() == "a"


def test_an_earlier_time_replaces_a_later_one_and_not_the_other_way_round() -> None:
    work, clock = queue()
    work.add("a", 100.0)
    work.add("a", 1.0)
    work.add("a", 50.0)
    clock.now_s = 1.0

    assert work.take() == "a"
    work.done("a")
    clock.now_s = 1000.0
    assert work.count_due() == 0


def test_a_key_in_hand_is_not_given_to_a_second_worker_and_comes_again_afterwards() -> None:
    work, _ = queue()
    work.add("a")
    assert work.take() == "a"
    work.add("a")
    work.add("b")

    assert work.take() == "b", "a is in hand"
    work.done("a")
    assert work.take() == "a"


def test_what_comes_first_waits_for_its_time_and_then_for_nothing_else() -> None:
    work, clock = queue()
    work.add("canary", 10.0, is_first=True)
    for number in range(100):
        work.add(f"write-{number}")
    assert work.take() == "write-0"
    clock.now_s = 10.0

    assert work.take() == "canary"
    assert work.take() == "write-1"


def test_keys_that_are_asked_for_far_ahead_again_and_again_take_no_more_room() -> None:
    """As a finished write does: it is looked at with each resync, and each time asks for the end of its seven days."""
    work, clock = queue()
    for _ in range(2000):
        for key in ("a", "b", "c"):
            work.add(key, 7 * 86_400.0)
            work.add(key)
            assert work.take() == key
            work.add(key, 1.0)
            work.done(key)
        clock.now_s += 300.0
        for _ in range(3):
            work.done(work.take() or "")
    assert sum(map(len, work._heaps.values())) + sum(map(len, work._held.values())) < 100


def test_what_waits_is_taken_in_its_order_after_replaced_entries_are_dropped() -> None:
    work, clock = queue()
    for number in range(200):
        work.add(f"write-{number}", 1000.0)
    for number in reversed(range(200)):
        work.add(f"write-{number}", 500.0)
    for _ in range(3):
        for number in range(200):
            work.add(f"write-{number}", 100.0 - _)
    clock.now_s = 100.0

    assert [work.take() for _ in range(200)] == [f"write-{number}" for number in range(200)]


def test_a_key_in_hand_that_was_asked_for_again_is_not_lost_when_replaced_entries_are_dropped() -> None:
    work, _ = queue()
    work.add("a")
    assert work.take() == "a"
    work.add("a")
    work.add("b")
    assert work.take() == "b", "a is in hand, and laid aside"
    for number in range(300):
        work.add("c", 1000.0 - number)
    work.done("a")

    assert work.take() == "a"
    assert work.count_due() == 0


def test_a_worker_that_waits_is_woken_by_an_added_key() -> None:
    work: WorkQueue[str] = WorkQueue()
    taken: list[str | None] = []
    worker = threading.Thread(target=lambda: taken.append(work.take()), daemon=True)
    worker.start()
    work.add("a")
    worker.join(patience(10))

    assert taken == ["a"]


def test_a_worker_that_waits_is_woken_when_a_key_in_hand_is_given_back() -> None:
    work: WorkQueue[str] = WorkQueue()
    work.add("a")
    work.take()
    work.add("a")
    taken: list[str | None] = []
    worker = threading.Thread(target=lambda: taken.append(work.take()), daemon=True)
    worker.start()
    work.done("a")
    worker.join(patience(10))

    assert taken == ["a"]


def test_a_closed_queue_gives_nothing_to_anybody() -> None:
    work: WorkQueue[str] = WorkQueue()
    taken: list[str | None] = ["something"]
    worker = threading.Thread(target=lambda: taken.append(work.take()), daemon=True)
    worker.start()
    work.close()
    worker.join(patience(10))

    assert taken == ["something", None]
    work.add("a")
    assert work.take() is None


def test_many_workers_take_each_key_as_often_as_it_became_due_and_never_two_at_once() -> None:
    work: WorkQueue[int] = WorkQueue()
    in_hand: set[int] = set()
    wrong: list[int] = []
    done: list[int] = []
    lock = threading.Lock()

    def run() -> None:
        while (key := work.take()) is not None:
            with lock:
                if key in in_hand:
                    wrong.append(key)
                in_hand.add(key)
            with lock:
                in_hand.discard(key)
                done.append(key)
                if len(done) >= 200:
                    work.close()
            work.done(key)
            work.add(key)

    workers = [threading.Thread(target=run, daemon=True) for _ in range(4)]
    for key in range(5):
        work.add(key)
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(patience(30))

    assert not wrong
    assert set(done) == set(range(5))


# --- several groups ---------------------------------------------------------------------------------------------------------


def shared_queue(most: float = math.inf) -> tuple[WorkQueue[str], Clock]:
    """Keys are grouped by their first letter."""
    clock = Clock()
    return WorkQueue(clock=clock, group_of=lambda key: key[0], most_of_a_group=most), clock


def test_of_several_groups_the_one_with_the_fewest_in_hand_comes_first() -> None:
    work, _ = shared_queue()
    for key in ("a1", "a2", "a3", "b1", "b2"):
        work.add(key)

    assert [work.take() for _ in range(5)] == ["a1", "b1", "a2", "b2", "a3"]


def test_a_key_that_was_given_back_no_longer_counts_for_its_group() -> None:
    work, _ = shared_queue()
    for key in ("a1", "a2", "b1"):
        work.add(key)
    assert work.take() == "a1"
    work.done("a1")

    assert [work.take(), work.take()] == ["a2", "b1"]


def test_a_group_that_has_as_many_in_hand_as_it_may_waits_though_workers_are_free() -> None:
    work, _ = shared_queue(most=2)
    for key in ("a1", "a2", "a3"):
        work.add(key)
    assert [work.take(), work.take()] == ["a1", "a2"]
    taken: list[str | None] = []

    def take_two() -> None:
        taken.append(work.take())
        taken.append(work.take())

    worker = threading.Thread(target=take_two, daemon=True)
    worker.start()
    work.add("b1")
    until(lambda: taken, "the first key")
    worker.join(0.1)  # a second one would come at once
    assert taken == ["b1"]

    work.done("a2")
    worker.join(patience(10))

    assert taken == ["b1", "a3"]


def test_a_group_with_much_that_was_replaced_and_laid_aside_keeps_its_order() -> None:
    work, clock = shared_queue()
    for number in range(200):
        work.add(f"a{number % 5}", 300.0 - number)
        work.add("b", 300.0 - number)
    clock.now_s = 1_000.0

    taken = [work.take() for _ in range(6)]

    assert taken == ["a4", "b", "a3", "a2", "a1", "a0"]
    assert work.count_due() == 0
