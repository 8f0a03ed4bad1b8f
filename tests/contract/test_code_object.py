"""What a real bucket answers about an object with code."""

from __future__ import annotations

import secrets

import obstore
import pytest
from pydantic import SecretStr

from checkpoint_control.code.archive import fetch_version, version_of
from checkpoint_protocol import reasons
from checkpoint_protocol.code import archives
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.places.storage import StorageEntry, StorageSettings
from devtools.s3_server import S3Server


def test_a_version_is_known_by_its_head_and_no_other_is_taken_for_it(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3_server.make_bucket(f"code-{secrets.token_hex(6)}")
    entry = StorageEntry(
        prefix=f"s3://{bucket}/",
        endpoint=s3_server.endpoint,
        region=s3_server.region,
        access_key_id=SecretStr(s3_server.access_key),
        secret_access_key=SecretStr(s3_server.secret_key),
    )
    settings, uri, store = StorageSettings(storage=(entry,)), f"s3://{bucket}/a/steps.zip", s3_server.store(bucket)
    with pytest.raises(NeedsChange, match="there is no object") as missing:
        version_of(uri, settings)
    assert missing.value.reason == reasons.CODE_MISSING

    obstore.put(store, "a/steps.zip", b"first")
    first = version_of(uri, settings)
    assert (first.size_bytes, bool(first.etag), version_of(uri, settings)) == (5, True, first)
    assert fetch_version(uri, settings, first) == b"first"

    obstore.put(store, "a/steps.zip", b"other")
    assert version_of(uri, settings) != first
    with pytest.raises(Retryable, match="was replaced"):
        fetch_version(uri, settings, first)

    monkeypatch.setattr(archives, "MAX_ARCHIVE_BYTES", 4)
    with pytest.raises(NeedsChange, match="4 are the most"):
        version_of(uri, settings)

    obstore.put(store, "a/steps.zip", b"tiny")
    assert version_of(uri, settings).size_bytes == 4

    with pytest.raises(NeedsChange, match=r"put the file into an object store \(s3://, gs://, az://\)"):
        version_of("/code/steps.zip", settings)
