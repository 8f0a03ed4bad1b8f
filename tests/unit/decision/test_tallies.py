"""The sums of seals, for people: right, and without reading any seal twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from checkpoint_control.progress.tallies import Tallies
from checkpoint_protocol.ledger import Ledger
from tests.support.records import KEY, ledger_over, put_chains, seal
from tests.support.stores import MemoryStore, Wrapped


class CountsGets(Wrapped):
    def __init__(self) -> None:
        super().__init__()
        self.gets: Counter[str] = Counter()

    def get(self, path: str, most_bytes: int) -> bytes | None:
        self.gets[path] += 1
        return super().get(path, most_bytes)


def test_a_seal_is_tallied_once_however_often_it_is_asked_for() -> None:
    """A write may have a hundred thousand, and is looked at again and again."""
    store = CountsGets()
    for task in range(5):
        ledger_over(store).seals.put_seal(seal(task, 0, rows=task))
    asked_at_once: list[int] = []

    def map_all(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        asked_at_once.append(len(items))
        return [function(item) for item in items]

    ledger = Ledger(store, KEY, map_all=map_all)
    tallies = Tallies(ledger)
    for _ in range(3):
        assert {task: chain.rows_read for task, chain in tallies.of_tasks(1).items()} == {task: task for task in range(5)}

    # Twos are a plan, and a listing beside it.
    assert [count for count in asked_at_once if count > 2] == [5]
    assert {path: count for path, count in store.gets.items() if "/seals/" in path} == {
        ledger.at.seal(1, task, 0): 1 for task in range(5)
    }


def test_what_was_tallied_while_an_attempt_was_open_is_not_read_again_when_it_is_closed() -> None:
    store = CountsGets()
    put_chains(store, (2, False), (1, True))
    ledger = ledger_over(store)
    tallies = Tallies(ledger)
    tallies.of_tasks(1)
    ledger.seals.put_seal(seal(0, 2, rows=7))  # sealed after the last look, and before its driver died
    ledger.chains.close(1)
    store.gets.clear()

    tally = tallies.of_closed(1)

    assert (tally.length, tally.rows_read, tally.is_whole) == (4, 3 * seal(0, 0).rows_read + 7, True)
    assert [path for path in store.gets if "/seals/" in path] == [ledger.at.seal(1, 0, 2)]


def test_what_is_sealed_after_an_attempt_was_closed_is_not_tallied_as_closed() -> None:
    store = MemoryStore()
    put_chains(store, (2, False), (1, True))
    ledger = ledger_over(store)
    tallies = Tallies(ledger)
    tallies.of_tasks(1)
    ledger.chains.close(1)
    ledger_over(store).seals.put_seal(seal(0, 2, rows=7))

    tally = tallies.of_closed(1)

    assert (tally.length, tally.rows_read) == (3, 3 * seal(0, 0).rows_read)
