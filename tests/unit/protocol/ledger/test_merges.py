"""The keys of an upsert: what their record names is there."""

from __future__ import annotations

import pytest

from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import new_token
from tests.support.records import ledger_over
from tests.support.stores import MemoryStore, SaysExists


def test_a_part_of_which_the_store_says_that_it_exists_is_put_again_until_it_is_there() -> None:
    pauses: list[float] = []
    store = SaysExists(MemoryStore(), 3)

    part = ledger_over(store, pauses).merges.put_part(new_token(), 1, b"keys")

    assert ledger_over(store).merges.read_part(part) == b"keys"
    assert len(pauses) == 3


def test_a_part_that_is_never_there_is_no_part() -> None:
    with pytest.raises(Retryable, match="held by an unfinished put"):
        ledger_over(SaysExists(MemoryStore(), 1_000)).merges.put_part(new_token(), 1, b"keys")
