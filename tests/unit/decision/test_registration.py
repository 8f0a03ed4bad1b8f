"""A write is known by what it is, and says what has changed where it is another one."""

from __future__ import annotations

import pytest

from checkpoint_operator.registration import register
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import Spec, parse_manifest
from checkpoint_protocol.records import LaunchRecord, WriteRecord
from checkpoint_protocol.source import FIRST_NULL_VALUES
from tests.support.manifests import manifest
from tests.support.stores import MemoryStore

UID = "0123456789abcdef"
KEY = EpochKey(UID, 1)
#: What the first release stored of tests.support.manifests.SMALLEST: the defaults of then were left out.
FIRST = parse_manifest(manifest(spec__source__files__csv={"nullValues": list(FIRST_NULL_VALUES)})).spec


def store_of_the_first_release() -> MemoryStore:
    """A write of the first release, of which an attempt was recorded."""
    store = MemoryStore()
    assert "nullValues" not in str(FIRST.identity)
    record = WriteRecord(
        token="0" * 32,
        uid=UID,
        namespace="default",
        name="flights",
        identity=FIRST.identity,
        identity_digest=FIRST.identity_digest,
    )
    writes.put_write(store, record)
    Ledger(store, KEY).attempts.put_launch(
        LaunchRecord(
            token="0" * 32,
            attempt=1,
            run_nonce="",
            source=FIRST.source,
            steps=(),
            code_digest="0" * 64,
            target=None,
            sink_format="none",
            target_file_size_bytes=1,
            interval_s=60.0,
            minimum_bytes=0,
            counted=(),
            on_replaced="Fail",
        )
    )
    return store


def spec(**changes: object) -> Spec:
    return parse_manifest(manifest(**changes)).spec


def test_a_write_that_began_with_other_texts_for_null_says_how_to_go_on_and_that_works() -> None:
    store = store_of_the_first_release()

    with pytest.raises(NeedsChange) as refused:
        register(store, UID, "default", "flights", spec())

    assert refused.value.reason == reasons.IDENTITY_CHANGED
    assert 'nullValues: ["", "NA", "null", "NULL"]' in refused.value.message
    as_it_says = spec(spec__source__files__csv={"nullValues": ["", "NA", "null", "NULL"]})
    register(store, UID, "default", "flights", as_it_says)


def test_texts_for_null_that_are_named_may_be_others_than_those_of_the_first_release() -> None:
    named = spec(spec__source__files__csv={"nullValues": [""]})

    register(store_of_the_first_release(), UID, "default", "flights", named)
