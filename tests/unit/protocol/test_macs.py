"""What a MAC binds a record to: a write, a place, and its bytes; and which key signs what."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.authenticated_store import AuthenticatedStore, KeysOfOneWrite
from checkpoint_protocol.store.macs import MOST_MAC_BYTES, WriteKeys, derive, derive_control, key_id_of, sign, without_mac
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


def of_controller(*ids: str) -> WriteKeys:
    return keys(*ids).model_copy(update={"control": {name: derive_control(name.encode() * 8, UID) for name in ids}})


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


@pytest.mark.parametrize("path", [AT.input, AT.launch(1)])
def test_a_mac_with_other_characters_than_ascii_is_refused_as_any_that_is_wrong(path: str) -> None:
    for mac in ('"sha256":"\u00e4\u00f6","control":"\u00fc"', '"sha256":"\u20ac"'):
        inner = MemoryStore()
        inner.put_if_absent(path, f'{{}}\n{{"mac":{{"key":"1111",{mac}}}}}'.encode())

        with pytest.raises(Corrupt) as caught:
            store(of_controller("1111"), inner).get(path, MOST)

        assert caught.value.reason == reasons.RECORD_FORGED


def test_a_key_that_is_not_known_is_named() -> None:
    inner = MemoryStore()
    inner.put_if_absent(AT.input, sign(AT.input, b"{}", keys("2222")))

    with pytest.raises(Corrupt, match="'2222', which is not known here"):
        store(keys("1111"), inner).get(AT.input, MOST)


class _LearnsKeys:
    """A KeySource to which a key that another operator has made is known once it is asked for by its id."""

    def of(self, uid: str, unknown_id: str | None = None) -> WriteKeys:
        return keys("1111") if unknown_id != "2222" else keys("1111", "2222")


def test_a_record_that_is_signed_with_a_key_of_another_operator_is_read_once_the_key_is_looked_for() -> None:
    inner = MemoryStore()
    store(keys("1111", "2222"), inner).put_if_absent(AT.input, b"{}")

    stored = AuthenticatedStore(inner, _LearnsKeys()).get(AT.input, MOST)

    assert stored is not None
    assert without_mac(stored) == b"{}"


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


CONTROL: Final = [
    layout.write_path(UID),
    layout.deleted_path(UID),
    layout.index_path(UID, 1),
    AT.launch(1),
    AT.target(1),
    AT.closed(1),
    AT.claim(0),
    AT.commit_record,
    AT.deleted,
    layout.EpochLayout(EpochKey(UID, 1, "s1")).commit_record,
]


@pytest.mark.parametrize("path", CONTROL)
def test_what_a_controller_says_drivers_believe_and_not_the_other_way_round(path: str) -> None:
    inner = MemoryStore()
    controller, driver = store(of_controller("1111"), inner), store(keys("1111"), inner)

    controller.put_if_absent(path, b"{}")
    assert driver.get(path, MOST) == controller.get(path, MOST)
    assert without_mac(inner.get(path, MOST) or b"") == b"{}"

    inner.delete([path])
    driver.put_if_absent(path, b"{}")
    with pytest.raises(Corrupt, match="signed as a driver") as caught:
        controller.get(path, MOST)
    assert caught.value.reason == reasons.RECORD_FORGED


def test_a_driver_cannot_make_the_second_mac_of_the_first_one_or_of_another_place() -> None:
    inner, at = MemoryStore(), AT.commit_record
    controller = store(of_controller("1111"), inner)
    pretended = keys("1111").model_copy(update={"control": keys("1111").keys})
    elsewhere = sign(AT.claim(0), b"{}", of_controller("1111"))
    for forged in (sign(at, b"{}", pretended), elsewhere, elsewhere.replace(b"{}", b"[]", 1)):
        inner.put_if_absent(at, forged)

        with pytest.raises(Corrupt):
            controller.get(at, MOST)
        inner.delete([at])


def test_what_a_driver_stages_a_controller_believes() -> None:
    inner = MemoryStore()
    store(keys("1111"), inner).put_if_absent(AT.seal(1, 2, 3), b"{}")

    assert store(of_controller("1111"), inner).get(AT.seal(1, 2, 3), MOST) is not None


def test_a_pod_is_not_given_the_keys_of_controllers() -> None:
    given_keys = of_controller("1111")
    assert given_keys.control is not None

    for text in (given_keys.model_dump_json(), repr(given_keys), str(given_keys.model_dump())):
        assert given_keys.control["1111"] not in text
    assert WriteKeys.model_validate_json(given_keys.model_dump_json()).control is None
    assert given_keys.control["1111"] != given_keys.keys["1111"]


def test_a_line_is_no_longer_than_what_is_read_for_it() -> None:
    longest = "k" * 64
    only = derive(b"k", UID)
    given_keys = WriteKeys(current=longest, keys={longest: only}, control={longest: only})

    assert len(sign(AT.commit_record, b"", given_keys)) <= MOST_MAC_BYTES
