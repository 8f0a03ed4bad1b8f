"""Records of whole writes: which uid a name means, who a write is, whether it was deleted, which epochs it has."""

from __future__ import annotations

import pytest

from checkpoint_protocol import writes
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import (
    WriteRecord,
)
from checkpoint_protocol.store import layout
from tests.support.records import DIGEST, KEY, input_of, launch, ledger_over
from tests.support.stores import MemoryStore


def write_record(uid: str = "u") -> WriteRecord:
    return WriteRecord(token=new_token(), uid=uid, namespace="n", name="n", identity={}, identity_digest=DIGEST)


def test_a_name_means_the_uid_that_was_given_first() -> None:
    store = MemoryStore()

    assert writes.look_up_name(store, "team", "flights") is None
    assert writes.name_write(store, "team", "flights", "uid1") == "uid1"
    assert writes.name_write(store, "team", "flights", "uid2") == "uid1"
    assert writes.name_write(store, "other", "flights", "uid3") == "uid3"
    assert writes.look_up_name(store, "team", "flights") == "uid1"


def test_who_a_write_is_stands_from_its_first_record() -> None:
    store = MemoryStore()
    first = write_record()

    assert writes.put_write(store, first) == first
    assert writes.put_write(store, write_record()) == first
    assert writes.read_write(store, "u") == first
    assert writes.read_write(store, "u2") is None


def test_the_last_epoch_is_the_one_with_a_control_record_whose_number_is_the_highest() -> None:
    store = MemoryStore()
    writes.put_write(store, write_record(KEY.uid))
    for epoch in (10, 9, 1):
        Ledger(store, EpochKey(KEY.uid, epoch)).attempts.put_launch(launch())
    Ledger(store, EpochKey(KEY.uid, 11)).inputs.put_input(input_of())  # by a driver: no control record
    Ledger(store, EpochKey(f"{KEY.uid}0", 12)).attempts.put_launch(launch())  # another write's

    assert writes.last_epoch(store, KEY.uid) == 10


@pytest.mark.parametrize("stray", ["²/x.json", "0/launch/1.json", "007/launch/1.json", "-1/x", "x/1.json", "5"])
def test_a_stray_object_beside_the_epochs_is_nobodys_epoch(stray: str) -> None:
    store = MemoryStore(objects={f"control/{KEY.uid}/{stray}": b""})

    assert writes.last_epoch(store, KEY.uid) == 0


def test_a_deletion_is_noted_once_and_every_epochs_ledger_sees_it_from_then_on() -> None:
    store = MemoryStore()
    before = ledger_over(store)
    assert not before.commits.is_deleted()
    assert writes.read_deleted(store, KEY.uid) is None

    note = writes.put_deleted(store, KEY.uid)

    assert writes.put_deleted(store, KEY.uid) == note == writes.read_deleted(store, KEY.uid)
    assert before.commits.is_deleted(), "that it was not there is not remembered"
    assert Ledger(store, EpochKey(KEY.uid, 7)).commits.is_deleted()
    assert not Ledger(store, EpochKey(f"{KEY.uid}0", 1)).commits.is_deleted()
    assert writes.last_epoch(store, KEY.uid) == 0


def test_an_unreadable_note_of_a_deletion_is_corrupt_and_never_no() -> None:
    store = MemoryStore()
    store.put_if_absent(layout.deleted_path(KEY.uid), b"garbage")

    with pytest.raises(Corrupt, match="deleted"):
        ledger_over(store).commits.is_deleted()
