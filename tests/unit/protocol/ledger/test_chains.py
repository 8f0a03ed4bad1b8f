"""What a chain is, and which seals of a closed attempt count, over stores that behave as real ones do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_protocol.errors import Corrupt, Retryable
from checkpoint_protocol.records import (
    ClosedRecord,
    encode,
)
from tests.support.effort import examples
from tests.support.records import TOKEN, ledger_over, plan, put_chains, seal
from tests.support.stores import ListHides, ListInvents, LosesAnswers, MemoryStore


class MidClose(ListHides):
    """Lets something happen after the first put of a closed list was decided on, and before it arrives."""

    def __init__(self, inner: MemoryStore, happens: Callable[[], object]) -> None:
        super().__init__(inner)
        self._happens = happens

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if "/closed/" in path:
            self._happens()
        return super().put_if_absent(path, data)


def up_to_the_last(lengths: list[tuple[int, bool]]) -> tuple[int, ...]:
    """Return the lengths without those of tasks after the last that has a seal."""
    rest = [length for length, _ in lengths]
    while rest and not rest[-1]:
        rest.pop()
    return tuple(rest)


def test_a_chain_is_read_link_by_link_and_trusts_no_listing() -> None:
    store = ListHides()
    ledger = ledger_over(store)
    chain = tuple(seal(2, link, last=link == 2) for link in range(3))
    for link in chain:
        ledger.seals.put_seal(link)
    store.hidden = {ledger.at.seal(1, 2, link) for link in range(3)}

    assert ledger_over(store).chains.read_chain(1, 2) == chain


def test_a_chain_ends_before_its_first_gap_and_at_its_last_seal() -> None:
    ledger = ledger_over(MemoryStore())
    for link in (0, 2):
        ledger.seals.put_seal(seal(0, link))
    for link in range(3):
        ledger.seals.put_seal(seal(1, link, last=link == 1))

    assert len(ledger.chains.read_chain(1, 0)) == 1
    assert len(ledger.chains.read_chain(1, 1)) == 2
    assert ledger.chains.read_chain(1, 2) == ()


def test_an_attempt_whose_chains_all_end_in_last_is_closed_as_complete() -> None:
    store = MemoryStore()
    put_chains(store, (1, True), (3, True))

    closed = ledger_over(store).chains.close(1)

    assert closed.complete
    assert closed.chain_lengths == (1, 3)
    assert closed.plan_token == getattr(ledger_over(store).plans.read_plan(1), "token", None)


@pytest.mark.parametrize("lengths", [[(1, True), (3, False)], [(1, True), (0, False)], [(0, False)]])
def test_an_attempt_with_an_open_chain_is_closed_as_incomplete_with_what_it_has(lengths: list[tuple[int, bool]]) -> None:
    store = MemoryStore()
    put_chains(store, *lengths)

    closed = ledger_over(store).chains.close(1)

    assert not closed.complete
    assert closed.chain_lengths == up_to_the_last(lengths)


def test_an_attempt_without_a_plan_is_closed_with_nothing_whatever_was_sealed() -> None:
    store = MemoryStore()
    ledger_over(store).seals.put_seal(seal(0, 0, last=True))

    closed = ledger_over(store).chains.close(1)

    assert (closed.plan_token, closed.chain_lengths, closed.complete) == (None, (), False)
    assert list(ledger_over(store).chains.counted_seals([1])) == []


def test_a_plan_of_no_tasks_is_complete() -> None:
    store = MemoryStore()
    ledger_over(store).plans.put_plan(plan())

    assert ledger_over(store).chains.close(1).complete


def test_a_seal_of_a_task_that_the_plan_does_not_have_does_not_count() -> None:
    store = MemoryStore()
    put_chains(store, (1, True))
    ledger_over(store).seals.put_seal(seal(1, 0, last=True))

    assert ledger_over(store).chains.close(1).chain_lengths == (1,)


def test_closing_takes_the_gap_free_prefix_of_each_chain() -> None:
    store = MemoryStore()
    put_chains(store, (2, False))
    ledger_over(store).seals.put_seal(seal(0, 3, last=True))  # a hostile driver: link 2 was never put

    closed = ledger_over(store).chains.close(1)

    assert closed.chain_lengths == (2,)
    assert not closed.complete


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=4), st.data())
@settings(deadline=None, max_examples=examples(60))
def test_closing_counts_the_whole_chain_whatever_a_listing_hides(lengths: list[tuple[int, bool]], data: st.DataObject) -> None:
    store = MemoryStore()
    put_chains(store, *lengths)
    hidden = {path for path in store.objects if "/seals/" in path and data.draw(st.booleans())}

    closed = ledger_over(ListHides(store, hidden)).chains.close(1)

    assert closed.chain_lengths == up_to_the_last(lengths)
    assert closed.complete == all(is_whole and length for length, is_whole in lengths)


def test_a_listing_that_shows_a_seal_which_is_not_there_stops_the_close() -> None:
    store = MemoryStore()
    put_chains(store, (1, False))
    at = ledger_over(store).at

    with pytest.raises(Corrupt, match="is listed, and cannot be found"):
        ledger_over(ListInvents(store, (at.seal(1, 0, 1),))).chains.close(1)
    assert ledger_over(store).attempts.read_closed(1) is None


def test_an_unreadable_seal_stops_the_close_and_is_not_the_end_of_a_chain() -> None:
    store = MemoryStore()
    put_chains(store, (1, False))
    store.objects[ledger_over(store).at.seal(1, 0, 1)] = b"\x00"

    with pytest.raises(Corrupt, match=r"seals/0/1\.json"):
        ledger_over(store).chains.close(1)
    assert ledger_over(store).attempts.read_closed(1) is None


def test_closing_again_returns_the_same_and_what_was_sealed_since_does_not_count() -> None:
    store = MemoryStore()
    put_chains(store, (1, False))
    first = ledger_over(store).chains.close(1)
    ledger_over(store).seals.put_seal(seal(0, 1, last=True))

    assert ledger_over(store).chains.close(1) == first
    assert [link.link for link in ledger_over(store).chains.counted_seals([1])] == [0]


def test_the_first_closer_wins_and_the_other_goes_on_with_what_stands() -> None:
    """One has read the chain; one more seal lands; the other reads, and puts first."""
    store = MemoryStore()
    put_chains(store, (1, False))

    def close_before_the_other() -> None:
        ledger_over(store).seals.put_seal(seal(0, 1, last=True))
        ledger_over(store).chains.close(1)

    late = ledger_over(MidClose(store, close_before_the_other))

    closed = late.chains.close(1)

    assert closed == ledger_over(store).attempts.read_closed(1)
    assert (closed.chain_lengths, closed.complete) == ((2,), True)
    assert late.attempts.read_closed(1) == closed
    assert len(list(late.chains.counted_seals([1]))) == 2


def test_a_close_whose_answer_was_lost_is_found_by_the_next_call() -> None:
    store = MemoryStore()
    put_chains(store, (1, True))
    lossy = LosesAnswers(store)

    with pytest.raises(Retryable):
        ledger_over(lossy).chains.close(1)
    assert ledger_over(lossy).chains.close(1).complete


def test_the_seals_of_several_closed_attempts_are_those_of_each_in_turn() -> None:
    store = MemoryStore()
    put_chains(store, (2, False), (1, True))
    ledger = ledger_over(store)
    ledger.plans.put_plan(plan([(0, 5, 10)], attempt=2))
    ledger.seals.put_seal(seal(0, 0, attempt=2, last=True))
    ledger.chains.close(1)
    ledger.chains.close(2)

    found = [(link.attempt, link.task, link.link) for link in ledger_over(store).chains.counted_seals([1, 2])]

    assert found == [(1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0)]


def test_an_attempt_that_is_not_closed_has_no_seals_that_count() -> None:
    store = MemoryStore()
    put_chains(store, (1, True))

    with pytest.raises(Corrupt, match=r"closed/1\.json is gone"):
        list(ledger_over(store).chains.counted_seals([1]))


def test_the_closed_list_of_an_attempt_that_says_what_it_cannot_is_corrupt() -> None:
    ledger = ledger_over(MemoryStore())
    lie = ClosedRecord(token=TOKEN, attempt=1, plan_token=TOKEN, chain_lengths=(1,), complete=True)
    data = encode(lie).replace(f'"plan_token":"{TOKEN}"'.encode(), b'"plan_token":null')
    ledger.store.put_if_absent(ledger.at.closed(1), data)

    with pytest.raises(Corrupt, match=r"closed/1\.json"):
        ledger.attempts.read_closed(1)
