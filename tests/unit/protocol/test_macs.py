"""What a MAC binds a record to: a write, a place, and its bytes; and which key signs what."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_protocol import layout, reasons
from checkpoint_protocol.authenticated_store import AuthenticatedStore, KeysOfOneWrite
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.macs import WriteKeys, derive, key_id_of, sign, without_mac
from tests.support.effort import examples
from tests.support.stores import MemoryStore

UID: Final = "a" * 32
MOST = 1 << 20
AT: Final = layout.EpochLayout(EpochKey(UID, 1))


def keys(*ids: str, accepts_unsigned: bool = False) -> WriteKeys:
    """The last of the ids is the current one."""
    return WriteKeys(
        current=ids[-1], keys={name: derive(name.encode() * 8, UID) for name in ids}, accepts_unsigned=accepts_unsigned
    )


def store(given_keys: WriteKeys, inner: MemoryStore | None = None) -> AuthenticatedStore:
    return AuthenticatedStore(inner or MemoryStore(), KeysOfOneWrite(given_keys))


@given(st.binary(max_size=300))
@settings(max_examples=examples(200))
def test_what_is_signed_is_found_whole_and_by_its_key(data: bytes) -> None:
    stored = sign("p", data, keys("1111"))

    assert without_mac(stored) == data
    assert key_id_of(stored) == "1111"


@pytest.mark.parametrize(
    "path",
    [
        layout.write_path(UID),
        AT.input,
        AT.input_since(3),
        AT.input_part("0" * 32),
        AT.plan(1),
        AT.seal(1, 2, 3),
        AT.bundle(1, 0),
        AT.failure(1),
        AT.output(1),
        AT.target(1),
        AT.launch(1),
        AT.closed(1),
        AT.claim(0),
        AT.commit_record,
        AT.quarantine(1, "0" * 32),
    ],
)
def test_every_record_of_a_write_is_signed(path: str) -> None:
    inner = MemoryStore()
    signed = store(keys("1111"), inner)

    assert signed.put_if_absent(path, b"{}")
    stored = inner.get(path, MOST)

    assert stored is not None
    assert key_id_of(stored) == "1111"
    assert signed.get(path, MOST) == stored


@pytest.mark.parametrize(
    "path", [AT.progress(1), AT.work(1, 2), layout.code_path(UID, "0" * 64), "probe/x.json", layout.name_path("a", "b")]
)
def test_what_is_no_record_of_a_write_is_as_it_was(path: str) -> None:
    inner = MemoryStore()

    store(keys("1111"), inner).put_if_absent(path, b"{}")

    assert inner.get(path, MOST) == b"{}"


def test_a_record_without_a_mac_is_refused_unless_such_are_accepted() -> None:
    inner = MemoryStore()
    inner.put_if_absent(AT.input, b"{}")

    with pytest.raises(Corrupt, match="has no MAC") as caught:
        store(keys("1111"), inner).get(AT.input, MOST)

    assert caught.value.reason == reasons.RECORD_FORGED
    assert store(keys("1111", accepts_unsigned=True), inner).get(AT.input, MOST) == b"{}"


@pytest.mark.parametrize("accepts_unsigned", [False, True])
def test_a_wrong_mac_is_refused_also_where_unsigned_records_are_accepted(accepts_unsigned: bool) -> None:
    inner = MemoryStore()
    inner.put_if_absent(AT.input, sign(AT.plan(1), b"{}", keys("1111")))

    with pytest.raises(Corrupt, match="not of this write's key"):
        store(keys("1111", accepts_unsigned=accepts_unsigned), inner).get(AT.input, MOST)


def test_a_key_that_is_not_known_is_named() -> None:
    inner = MemoryStore()
    inner.put_if_absent(AT.input, sign(AT.input, b"{}", keys("2222")))

    with pytest.raises(Corrupt, match="'2222', which is not known here"):
        store(keys("1111"), inner).get(AT.input, MOST)


def test_a_driver_can_read_what_is_put_for_it_with_keys_that_are_newer_than_it() -> None:
    """It was launched with the keys that there were, and waits for the table, or looks whether it was given up."""
    inner = MemoryStore()
    store(keys("1111"), inner).put_if_absent(AT.launch(1), b"{}")
    renewed = store(keys("1111", "2222"), inner)

    renewed.put_if_absent(AT.target(1), b"{}")
    renewed.put_if_absent(AT.closed(1), b"{}")
    renewed.put_if_absent(AT.launch(2), b"{}")

    driver = store(keys("1111"), inner)
    assert driver.get(AT.target(1), MOST) is not None
    assert driver.get(AT.closed(1), MOST) is not None
    assert key_id_of(inner.get(AT.launch(2), MOST) or b"") == "2222"


def test_keys_of_writes_are_different_and_stand_in_no_text_of_them() -> None:
    given_keys = keys("1111")

    assert derive(b"k" * 32, UID) != derive(b"k" * 32, "b" * 32) != derive(b"l" * 32, "b" * 32)
    assert given_keys.keys["1111"] not in repr(given_keys)
