"""A driver looks whether its attempt was closed, and by whom it can be told to end."""

from __future__ import annotations

import threading

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_spark.driver.main import ending_when_closed, is_given_up
from checkpoint_work.process.reporting import AtWork
from tests.support.records import ledger_over, put_chains
from tests.support.stores import MemoryStore, Wrapped
from tests.support.waiting import patience

PATIENCE_S = 10.0


class Unanswering(Wrapped):
    def get(self, path: str, most_bytes: int) -> bytes | None:
        raise Retryable(reasons.STORE_UNAVAILABLE, "no answer")


def test_an_attempt_that_is_open_goes_on() -> None:
    store = MemoryStore()
    put_chains(store, (1, False))

    assert not is_given_up(ledger_over(store), 1)


def test_an_attempt_that_was_closed_in_the_middle_is_given_up() -> None:
    store = MemoryStore()
    put_chains(store, (1, False), (1, True))
    ledger_over(store).chains.close(1)

    assert is_given_up(ledger_over(store), 1)


def test_an_attempt_that_was_closed_because_all_is_sealed_ends_on_its_own() -> None:
    store = MemoryStore()
    put_chains(store, (1, True))
    ledger_over(store).chains.close(1)

    assert not is_given_up(ledger_over(store), 1)


def test_a_store_that_does_not_answer_ends_no_driver() -> None:
    assert not is_given_up(ledger_over(Unanswering()), 1)


def test_the_driver_is_told_once_and_why_when_somebody_closes_its_attempt() -> None:
    store = MemoryStore()
    put_chains(store, (1, False))
    told: list[str] = []
    was_told = threading.Event()

    def end(why: str) -> None:
        told.append(why)
        was_told.set()

    with ending_when_closed(AtWork((ledger_over(store), 1)), end, interval_s=0.001):
        ledger_over(store).chains.close(1)
        assert was_told.wait(patience(PATIENCE_S))

    assert len(told) == 1
    assert "was closed" in told[0]
