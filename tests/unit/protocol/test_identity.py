"""Who a write is: keys, and the names that are derived from them, which must never change between releases."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_protocol.identity import EpochKey, new_token, new_uid


def test_a_key_is_uid_and_epoch() -> None:
    assert str(EpochKey("0123-abc", 7)) == "0123-abc/7"


def test_the_table_property_is_named_by_the_uid_alone() -> None:
    assert EpochKey("abc", 1).property_name == EpochKey("abc", 2).property_name == "checkpointed-write.abc"


@pytest.mark.parametrize(
    ("uid", "epoch", "snapshot_id"),
    [("0123456789abcdef", 1, 6845672787926595816), ("0123456789abcdef", 2, 2358509401278767789), ("a", 1, 3653726004808430051)],
)
def test_the_snapshot_id_of_a_key_is_the_same_in_every_release(uid: str, epoch: int, snapshot_id: int) -> None:
    """Two releases may commit the same epoch: their ids must meet in the catalog."""
    assert EpochKey(uid, epoch).snapshot_id == snapshot_id


@given(st.from_regex(r"[0-9a-z][0-9a-z-]{0,62}", fullmatch=True), st.integers(1, 10**9))
def test_a_snapshot_id_is_one_that_iceberg_takes(uid: str, epoch: int) -> None:
    assert 1 <= EpochKey(uid, epoch).snapshot_id <= (1 << 63) - 1


def test_keys_that_look_alike_have_different_snapshot_ids() -> None:
    keys = [EpochKey(uid, epoch) for uid in ("a", "a1", "a-1", "1") for epoch in range(1, 200)]
    assert len({key.snapshot_id for key in keys}) == len(keys)


@pytest.mark.parametrize("uid", ["", "-a", "a/b", "..", "a.b", "a b", "a\n", "ü", "a" * 64])
def test_what_could_leave_its_folder_is_no_uid(uid: str) -> None:
    with pytest.raises(ValueError, match="not a uid"):
        EpochKey(uid, 1)


@pytest.mark.parametrize("epoch", [0, -1])
def test_epochs_count_from_one(epoch: int) -> None:
    with pytest.raises(ValueError, match="count from 1"):
        EpochKey("a", epoch)


def test_tokens_and_uids_are_fresh_each_time() -> None:
    tokens = {new_token() for _ in range(1_000)}
    uids = {new_uid() for _ in range(1_000)}

    assert len(tokens) == len(uids) == 1_000
    assert all(re.fullmatch(r"[0-9a-f]{32}", token) for token in tokens)
    assert all(EpochKey(uid, 1) for uid in uids)
