"""Bounds of what is read from a store: one budget of memory, caps of records and tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.records import MAX_TASKS, ClosedRecord, FailureRecord, PlanRecord, encode
from checkpoint_protocol.store.memory import MemoryBudget, hold_table, holding_a_lock, reading, room_for_stored, turn
from tests.golden.samples import SAMPLES
from tests.support.records import TOKEN, ledger_over, plan, put_chains, seal
from tests.support.stores import ListHides, MemoryStore, Wrapped
from tests.support.waiting import patience

# --- the budget -------------------------------------------------------------------------------------------------------------


def test_readers_of_all_threads_together_hold_no_more_than_the_budget() -> None:
    budget, most, lock = MemoryBudget(4_000), 0, threading.Lock()

    def read(size_bytes: int) -> None:
        nonlocal most
        with reading(), room_for_stored(budget, size_bytes):
            with lock:
                most = max(most, budget.stored.taken)
            time.sleep(0.0005)

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(read, [100, 300, 1_000, 5_000, 10] * 40))

    assert 300 < most <= 1_000
    assert budget.stored.taken == budget.decoded.taken == 0


def test_what_is_larger_than_the_budget_waits_until_it_is_alone_and_is_not_passed_by_smaller_ones() -> None:
    budget, order = MemoryBudget(4_000), []
    first = budget.stored.take(500)

    def wait(size_bytes: int) -> None:
        taken = budget.stored.take(size_bytes)
        order.append(size_bytes)
        budget.stored.give_back(taken)

    large = threading.Thread(target=wait, args=(9_000,))
    large.start()
    while not budget.stored._waiting:
        time.sleep(0.001)
    small = threading.Thread(target=wait, args=(1,))
    small.start()
    budget.stored.give_back(first)
    large.join(patience(10))
    small.join(patience(10))

    assert order == [9_000, 1]


def test_whoever_holds_some_is_given_more_at_once_as_it_holds_what_others_wait_for() -> None:
    budget = MemoryBudget(4_000)

    with reading(), room_for_stored(budget, 1_000), reading(), room_for_stored(budget, 1_000):
        assert budget.stored.taken == 1_000

    assert budget.stored.taken == 0


def test_what_was_held_is_given_back_where_reading_fails() -> None:
    budget = MemoryBudget(4_000)

    with pytest.raises(ValueError, match="no"), reading(), room_for_stored(budget, 10):
        raise ValueError("no")
    with pytest.raises(ValueError, match="no"), room_for_stored(budget, 10):
        raise ValueError("no")

    assert budget.stored.taken == 0


def held_by(budget: MemoryBudget) -> Iterator[int]:
    """Give a number again and again, and hold memory meanwhile."""
    with reading(), room_for_stored(budget, 600):
        while True:
            yield 1


def test_what_a_generator_that_was_left_in_the_middle_holds_is_given_back_at_the_end_of_the_turn_and_once() -> None:
    budget = MemoryBudget(4_000)
    with turn(budget):
        left = held_by(budget)
        next(left)
        assert budget.stored.taken == 600

    assert budget.stored.taken == 0
    with reading(), room_for_stored(budget, 700):
        assert budget.stored.taken == 700
        del left
    assert budget.stored.taken == 0


def test_a_generator_that_another_thread_closes_takes_nothing_from_what_that_one_reads() -> None:
    budget = MemoryBudget(4_000)
    left = held_by(budget)

    def close() -> None:
        nonlocal left
        with reading() as mine, room_for_stored(budget, 100):
            del left
            with reading() as inner:
                assert inner is mine
            assert budget.stored.taken == 100

    with turn(budget):
        next(left)
        with ThreadPoolExecutor(1) as threads:
            threads.submit(close).result()

    assert budget.stored.taken == 0


# --- metadata of tables ---------------------------------------------------------------------------------------------------------


def test_the_largest_file_of_a_turn_is_held_to_its_end() -> None:
    budget = MemoryBudget(4_000)

    with turn(budget):
        for size_bytes, held in ((300, 300), (200, 300), (3_000, 3_000)):
            hold_table(size_bytes)
            assert budget.tables.taken == held
    hold_table(500)

    assert budget.tables.taken == 0


def test_the_first_file_of_a_turn_waits_for_room_and_the_next_ones_do_not() -> None:
    budget, has_begun, may_end = MemoryBudget(4_000), threading.Event(), threading.Event()
    order: list[str] = []

    def first() -> None:
        with turn(budget):
            hold_table(3_000)
            has_begun.set()
            may_end.wait()
            hold_table(9_000)
            order.append("first")

    def second() -> None:
        with turn(budget):
            has_begun.wait()
            may_end.set()
            hold_table(2_000)
            order.append("second")

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(first), threads.submit(second)]:
            done.result()

    assert order == ["first", "second"]
    assert budget.tables.taken == 0


def test_who_holds_memory_for_a_record_or_a_lock_does_not_wait_for_that_of_tables() -> None:
    """Or two threads would wait for each other: one holds a table and waits for room for a record."""
    budget = MemoryBudget(4_000)
    budget.tables.take(4_000)

    for waits_for_none in (reading, holding_a_lock):
        with turn(budget), waits_for_none():
            hold_table(1_000)
            assert budget.tables.taken == 5_000

    assert budget.tables.taken == 4_000


# --- caps -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_each_kind_of_record_has_a_cap_far_above_what_is_put(name: str) -> None:
    record = SAMPLES[name]

    assert len(encode(record)) * 3 < record.most_bytes


def test_the_longest_message_of_a_driver_is_below_the_cap_of_failures() -> None:
    for character in ("\x00", "\U0001f600", '"', "\\"):
        record = FailureRecord(
            token=TOKEN, attempt=1, family="Retryable", reason=reasons.STORE_UNAVAILABLE, message=character * 32_768
        )
        assert len(encode(record)) < FailureRecord.most_bytes


def test_a_closed_list_with_a_length_for_each_of_the_most_tasks_is_below_its_cap() -> None:
    closed = ClosedRecord(token=TOKEN, attempt=1, plan_token=TOKEN, chain_lengths=(99,) * MAX_TASKS, complete=True)

    assert len(encode(closed)) < ClosedRecord.most_bytes / 4


# --- closing ----------------------------------------------------------------------------------------------------------------


class _Asks(Wrapped):
    def __init__(self, inner: MemoryStore | ListHides) -> None:
        super().__init__(inner)
        self.seals: list[str] = []

    def get(self, path: str, most_bytes: int) -> bytes | None:
        if "/seals/" in path:
            self.seals.append(path)
        return super().get(path, most_bytes)


def _with_plan(tasks: int, sealed: Sequence[int]) -> MemoryStore:
    store = MemoryStore()
    ledger = ledger_over(store)
    ledger.plans.put_plan(plan(*([(task, 0, 1)] for task in range(tasks))))
    for task in sealed:
        ledger.seals.put_seal(seal(task, 0, last=True))
    return store


def test_of_a_plan_of_a_hundred_thousand_tasks_a_thousand_are_asked_for_in_vain() -> None:
    store = MemoryStore()
    ledger_over(store).plans.put_plan(PlanRecord(token=TOKEN, attempt=1, tasks=(), done_files=0, done_rows=0, partitions=100_000))
    asked = _Asks(store)

    assert not ledger_over(asked).chains.close(1).complete

    assert 1_000 < len(asked.seals) < 1_200


def test_seals_that_a_listing_does_not_show_are_found_wherever_tasks_have_begun() -> None:
    """Three thousand tasks are sealed, and of these every fifth is hidden; the rest never began."""
    store = _with_plan(4_500, range(3_000))
    hidden = {ledger_over(store).at.seal(1, task, 0) for task in range(0, 3_000, 5)}

    closed = ledger_over(ListHides(store, hidden)).chains.close(1)

    assert closed.chain_lengths == (1,) * 3_000


def test_an_attempt_whose_every_seal_a_listing_hides_is_closed_as_complete() -> None:
    store = _with_plan(2_500, range(2_500))
    hidden = {path for path in store.objects if "/seals/" in path}

    assert ledger_over(ListHides(store, hidden)).chains.close(1).complete


def test_tasks_without_seals_between_others_count_none() -> None:
    store = MemoryStore()
    put_chains(store, (0, False), (2, True), (0, False), (1, True), (0, False))

    closed = ledger_over(store).chains.close(1)

    assert (closed.chain_lengths, closed.complete) == ((0, 2, 0, 1), False)
    assert [(each.task, each.link) for each in ledger_over(store).chains.counted_seals([1])] == [(1, 0), (1, 1), (3, 0)]


# --- plans ------------------------------------------------------------------------------------------------------------------


def test_of_a_plan_with_many_tasks_its_readers_keep_their_number_only() -> None:
    store, record = MemoryStore(), plan(*([(task, 0, 1)] for task in range(5_000)))
    ledger_over(store).plans.put_plan(record)
    ledger = ledger_over(store)

    read = ledger.plans.read_plan(1)

    assert read is not None
    assert (read.task_count, read.tasks, read.token) == (5_000, (), record.token)
    assert tuple(ledger.plans.read_tasks(read)) == record.tasks


def test_a_plan_that_is_another_one_when_its_tasks_are_read_is_corrupt() -> None:
    store = MemoryStore()
    ledger_over(store).plans.put_plan(plan(*([(task, 0, 1)] for task in range(5_000))))
    ledger = ledger_over(store)
    read = ledger.plans.read_plan(1)
    store.objects[ledger.at.plan(1)] = encode(plan([(0, 0, 1)]))

    assert read is not None
    with pytest.raises(Corrupt, match="is not what it was"):
        list(ledger.plans.read_tasks(read))
