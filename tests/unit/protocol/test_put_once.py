"""Puts: the first one stays, and what became of a put is never guessed, over stores that behave as real ones do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.records import (
    NameRecord,
    encode,
)
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_protocol.store.put_once import put_object, put_once
from tests.support.records import TOKEN, ledger_over
from tests.support.stores import LosesAnswers, MemoryStore, RetriesItsPuts, SaysExists

PATH = "names/a/b.json"


def name(uid: str) -> NameRecord:
    return NameRecord(token=new_token(), uid=uid)


def test_the_first_put_stands_and_is_returned_to_whoever_comes_later() -> None:
    store = MemoryStore()
    first = put_once(store, PATH, name("first"))

    assert put_once(store, PATH, name("second")) == first
    assert put_once(store, PATH, first) == first


def test_a_put_whose_answer_was_lost_is_recognised_by_its_token_when_it_is_sent_again() -> None:
    store = LosesAnswers()
    ours = name("ours")

    with pytest.raises(Retryable):
        put_once(store, PATH, ours)
    assert put_once(store, PATH, ours).token == ours.token


def test_a_put_that_the_client_retried_after_its_own_success_is_ours() -> None:
    ours = name("ours")

    assert put_once(RetriesItsPuts(), PATH, ours) == ours


def test_a_put_that_meets_one_in_flight_is_sent_again_until_one_of_them_stands() -> None:
    pauses: list[float] = []
    store = SaysExists(times=3)
    ours = name("ours")

    assert put_once(store, PATH, ours, pauses.append) == ours
    assert len(pauses) == 3


def test_a_put_that_meets_one_in_flight_returns_the_other_when_that_lands() -> None:
    other = name("other")
    store = SaysExists(times=3, lands=encode(other))

    assert put_once(store, PATH, name("ours"), lambda _: None) == other


def test_a_store_that_says_exists_and_never_shows_it_ends_as_retryable_after_bounded_waiting() -> None:
    pauses: list[float] = []

    with pytest.raises(Retryable, match="says that the object exists, and returns none") as caught:
        put_once(SaysExists(), PATH, name("ours"), pauses.append)

    assert caught.value.reason == reasons.STORE_UNAVAILABLE
    assert PATH in caught.value.message
    assert 2 <= len(pauses) <= 20
    assert sum(pauses) <= 10


def test_a_put_over_an_unreadable_object_is_corrupt_and_leaves_it_as_it_is() -> None:
    store = MemoryStore(objects={PATH: b"garbage"})

    with pytest.raises(Corrupt, match=PATH):
        put_once(store, PATH, name("ours"))
    assert store.objects == {PATH: b"garbage"}


def test_of_many_threads_that_put_one_record_all_get_the_same_back() -> None:
    store = MemoryStore()
    with ThreadPoolExecutor(16) as putters:
        recorded = set(putters.map(lambda number: put_once(store, PATH, name(str(number))).uid, range(64)))

    assert len(recorded) == 1


# --- objects that are no records ------------------------------------------------------------------------------------------


def test_the_bytes_of_the_first_put_are_returned_to_whoever_comes_later() -> None:
    store = MemoryStore()

    assert [put_object(store, PATH, data, never) for data in (b"first", b"second")] == [b"first", b"first"]


@pytest.mark.parametrize("store", [RetriesItsPuts(), SaysExists(times=3), SaysExists(times=3, lands=b"ours")])
def test_our_own_object_is_known_by_its_bytes_whatever_the_store_says_of_the_put(store: ObjectStore) -> None:
    assert put_object(store, PATH, b"ours", lambda _: None) == b"ours"


def test_a_put_without_an_answer_is_told_by_the_same_put_again() -> None:
    store = LosesAnswers()
    with pytest.raises(Retryable):
        put_object(store, PATH, b"ours", never)

    assert put_object(store, PATH, b"ours", never) == b"ours"


def test_keys_under_a_name_that_holds_other_bytes_are_corrupt_and_not_waited_for() -> None:
    pauses: list[float] = []
    ledger = ledger_over(MemoryStore(), pauses)
    path = ledger.at.keys_object(1, 0, TOKEN)
    ledger.seals.put_keys(path, b"theirs")

    with pytest.raises(Corrupt, match="holds other keys"):
        ledger.seals.put_keys(path, b"ours")
    assert pauses == []


def never(_: float) -> None:
    raise AssertionError("nothing to wait for")
