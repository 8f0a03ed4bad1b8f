"""Seals, one by one: who wins a link, and what a listing shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, Retryable, Superseded
from checkpoint_protocol.records import (
    Seal,
    encode,
)
from checkpoint_protocol.store.object_store import StoredObject
from tests.support.records import ledger_over, plan, seal
from tests.support.stores import LosesAnswers, MemoryStore, RetriesItsPuts, Wrapped


def test_the_try_that_loses_a_link_is_superseded_and_the_winners_seal_stands() -> None:
    store = MemoryStore()
    winner = seal(0, 0, [(0, 0, 5)])
    ledger_over(store).seals.put_seal(winner)

    with pytest.raises(Superseded) as caught:
        ledger_over(store).seals.put_seal(seal(0, 0, [(0, 0, 5)]))

    assert caught.value.reason == "LinkSealed"
    assert ledger_over(store).chains.read_chain(1, 0) == (winner,)


def test_a_seal_whose_put_had_no_answer_is_put_again_without_harm() -> None:
    ours = seal(last=True)
    store = LosesAnswers()

    with pytest.raises(Retryable):
        ledger_over(store).seals.put_seal(ours)
    ledger_over(store).seals.put_seal(ours)
    ledger_over(RetriesItsPuts()).seals.put_seal(ours)
    assert ledger_over(store).chains.read_chain(1, 0) == (ours,)


def test_of_many_tries_that_seal_one_link_exactly_one_is_not_superseded() -> None:
    store = MemoryStore()

    def attempt(_: int) -> bool:
        try:
            ledger_over(store).seals.put_seal(seal())
        except Superseded:
            return False
        return True

    with ThreadPoolExecutor(16) as tries:
        assert sum(tries.map(attempt, range(64))) == 1


def test_an_unreadable_link_is_corrupt_and_not_the_end_of_the_chain() -> None:
    ledger = ledger_over(MemoryStore())
    ledger.seals.put_seal(seal(0, 0))
    ledger.store.put_if_absent(ledger.at.seal(1, 0, 1), b"{")

    with pytest.raises(Corrupt, match=r"seals/0/1\.json"):
        ledger.chains.read_chain(1, 0)


@pytest.mark.parametrize("elsewhere", [seal(1, 0), seal(0, 1), seal(0, 0, attempt=2)], ids=["task", "link", "attempt"])
def test_a_seal_that_says_it_belongs_elsewhere_is_corrupt(elsewhere: Seal) -> None:
    """A copied object would count its rows twice."""
    ledger = ledger_over(MemoryStore())
    ledger.store.put_if_absent(ledger.at.seal(1, 0, 0), encode(elsewhere))

    with pytest.raises(
        Corrupt, match=f"says that it is attempt {elsewhere.attempt}, task {elsewhere.task}, link {elsewhere.link}"
    ):
        ledger.seals.read_seal(1, 0, 0)


def test_listed_links_are_counted_up_to_the_first_gap_only() -> None:
    ledger = ledger_over(MemoryStore())
    for task, link in [(0, 0), (0, 1), (0, 3), (1, 1), (10, 0), (2, 0), (2, 1), (2, 2)]:
        ledger.seals.put_seal(seal(task, link))
    ledger.seals.put_seal(seal(7, 0, attempt=11))
    ledger.store.put_if_absent(f"{ledger.at.seals(1)}0/2.json.tmp", b"")

    assert ledger.seals.list_links(1) == {0: 2, 1: 0, 2: 3, 10: 1}


@pytest.mark.parametrize("is_planned", [True, False])
@pytest.mark.parametrize("links", [1_999, 2_000, 2_001, 4_500])
def test_a_listing_shows_all_seals_also_where_two_answers_were_asked_for_beside_the_plan(links: int, is_planned: bool) -> None:
    store = MemoryStore()
    writer, reader = ledger_over(store), ledger_over(store)
    if is_planned:
        writer.plans.put_plan(plan([(0, 0, 5)]))
    for link in range(links):
        store.put_if_absent(writer.at.seal(1, 0, link), b"")

    assert (reader.seals.list_links(1), writer.seals.list_links(1)) == ({0: links}, {0: links})


@dataclass
class Flooded(Wrapped):
    """A store in which a stranger has put so many objects of a pattern into every folder of seals. `given`: those that were
    read.
    """

    pattern: str = "0/{}.json"
    strangers: int = 0
    given: int = 0

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        yield from self.inner.list(folder, borders)
        for number in range(self.strangers if folder.endswith("/seals/") else 0):
            self.given += 1
            yield StoredObject(f"{folder}{self.pattern.format(number)}", 1)


@pytest.mark.parametrize("pattern", ["0/{}.json", "{}/0.json", "bundle-{}"])
def test_more_objects_than_the_tasks_can_have_sealed_are_refused_and_not_collected(pattern: str) -> None:
    store = Flooded(MemoryStore(), pattern, strangers=120_000)
    ledger = ledger_over(store)
    if not pattern.startswith("{}"):  # without a plan any task may be one
        ledger.plans.put_plan(plan([(0, 0, 5)]))
    ledger.seals.put_seal(seal(0, 0))

    with pytest.raises(Corrupt, match=r"seals/ has more than 100,[01]00 objects") as caught:
        ledger.seals.list_seals(1)

    assert caught.value.reason == reasons.RECORD_UNREADABLE
    # Two pages are listed before the plan is known.
    assert store.given <= 102_101, "the rest is not read"
    # The way out of the message.
    store.strangers = 0
    assert ledger_over(store).seals.list_links(1) == {0: 1}


@pytest.mark.parametrize("pattern", ["1{}/0.json", "0/9{:09d}.json", "bundle-9{:09d}", "x{}"])
def test_objects_that_have_no_place_in_a_chain_are_passed_over(pattern: str) -> None:
    ledger = ledger_over(Flooded(MemoryStore(), pattern, strangers=110_000))
    ledger.plans.put_plan(plan([(0, 0, 5)]))
    ledger.seals.put_seal(seal(0, 0))

    assert len(ledger.seals.list_seals(1)) == 1


def test_a_counted_seal_that_is_gone_is_corrupt() -> None:
    store = MemoryStore()
    ledger_over(store).seals.put_seal(seal(0, 0))

    with pytest.raises(Corrupt, match=r"seals/0/1\.json counts, and is gone"):
        list(ledger_over(store).seals.read_links(1, [(0, 0), (0, 1)]))


def test_many_seals_are_read_at_once_and_in_their_order() -> None:
    store = MemoryStore()
    for task in range(20):
        for link in range(5):
            ledger_over(store).seals.put_seal(seal(task, link, rows=100 * task + link))

    places = [(task, link) for task in range(20) for link in range(5)]

    found = ledger_over(store).seals.read_links(1, places)

    assert [seal.rows_read for seal in found] == [100 * task + link for task, link in places]
