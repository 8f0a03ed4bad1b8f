"""A write is known by what it is, and says what has changed where it is another one."""

from __future__ import annotations

import pytest

from checkpoint_operator.introduction import introduce
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest import FIRST_NULL_VALUES, Spec, parse_manifest
from checkpoint_protocol.records import WriteRecord
from tests.support.manifests import manifest
from tests.support.stores import MemoryStore

UID = "0123456789abcdef"
#: What the first release stored of tests.support.manifests.SMALLEST: the defaults of then were left out.
FIRST = parse_manifest(manifest(spec__source__options={"nullValues": list(FIRST_NULL_VALUES)})).spec


def store_of_the_first_release() -> MemoryStore:
    store = MemoryStore()
    assert "nullValues" not in str(FIRST.identity)
    writes.put_write(
        store,
        WriteRecord(
            token="0" * 32,
            uid=UID,
            namespace="default",
            name="flights",
            identity=FIRST.identity,
            identity_digest=FIRST.identity_digest,
        ),
    )
    return store


def spec(**changes: object) -> Spec:
    return parse_manifest(manifest(**changes)).spec


def test_a_write_that_began_with_other_texts_for_null_says_how_to_go_on_and_that_works() -> None:
    store = store_of_the_first_release()

    with pytest.raises(NeedsChange) as refused:
        introduce(store, UID, "default", "flights", spec())

    assert refused.value.reason == reasons.IDENTITY_CHANGED
    assert 'nullValues: ["", "NA", "null", "NULL"]' in refused.value.message
    introduce(
        store, UID, "default", "flights", spec(spec__source__options={"nullValues": ["", "NA", "null", "NULL"]})
    )  # as it says


def test_a_write_whose_source_is_another_one_is_not_told_of_texts_for_null() -> None:
    with pytest.raises(NeedsChange, match=r"spec\.source is not what the write 'flights' began with"):
        introduce(store_of_the_first_release(), UID, "default", "flights", spec(spec__source__path="/other.csv"))
