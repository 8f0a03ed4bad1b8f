"""Which URIs are opened, by whom, and that nothing that opens one has another opinion."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.storage import (
    StorageSettings,
    disk_path,
    iceberg_options,
    lance_options,
    obstore_options,
    pyarrow_options,
)
from checkpoint_protocol.store import open_store
from checkpoint_protocol.uris import URI_PATTERN, local_path, why_not_opened

FOREIGN = (
    "FILE:///etc/passwd",
    "File:/etc/passwd",
    "file-object-store:///etc/passwd",
    "file+uring:///etc/passwd",
    "shared-memory://x",
    "memory://x",
    "goosefs://10.0.0.1:9/x",
    "hf://datasets/a/b",
    "hdfs://host/x",
    "http://169.254.169.254/latest",
    "s3+ddb://bucket/x",
    "S3://bucket/x",
    "s3:bucket/x",
    "s3:/bucket/x",
    "s3:///x",
    "s3://",
    "a:b",
)
ON_DISK = (
    "/a",
    "a",
    "./a:b",
    "a/b:c",
    "day=1/12:00.csv",
    "/a:b",
    ":a",
    "a\nb",
    "file:/a",
    "file:///a",
    "file://localhost/a",
    "é:a",
)
IN_BUCKETS = ("s3://b/a", "s3a://b/a", "gs://b", "gcs://b/a", "az://c/a", "abfs://c@h/a", "abfss://c@a.dfs.core.windows.net/a")


@pytest.mark.parametrize("uri", FOREIGN)
def test_a_foreign_scheme_is_opened_by_nothing(uri: str) -> None:
    assert why_not_opened(uri) is not None
    for opened in (obstore_options, pyarrow_options, iceberg_options, lance_options, open_store):
        with pytest.raises(NeedsChange) as refused:
            opened(uri, StorageSettings())
        assert refused.value.reason == reasons.MANIFEST_INVALID
        assert uri in refused.value.message


@pytest.mark.parametrize("uri", [*FOREIGN, *ON_DISK, *IN_BUCKETS])
def test_the_pattern_of_the_api_server_says_what_the_code_says(uri: str) -> None:
    assert (re.search(URI_PATTERN, uri) is not None) == (why_not_opened(uri) is None)


@pytest.mark.parametrize("uri", ["FILE:///a", "File:/a", "fILE:a", *ON_DISK])
def test_a_path_in_any_spelling_is_on_disk(uri: str) -> None:
    assert local_path(uri) is not None


@pytest.mark.parametrize("uri", ON_DISK)
def test_where_only_buckets_are_opened_a_path_is_refused(uri: str) -> None:
    settings = StorageSettings().in_buckets_only()

    for opened in (disk_path, obstore_options, pyarrow_options, iceberg_options, lance_options, open_store):
        with pytest.raises(NeedsChange) as refused:
            opened(uri, settings)
        assert refused.value.reason == reasons.MANIFEST_INVALID


def test_a_store_on_disk_that_is_refused_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NeedsChange):
        open_store(str(tmp_path / "made"), StorageSettings().in_buckets_only())

    assert not (tmp_path / "made").exists()


def test_what_is_said_of_paths_goes_with_the_settings_wherever_they_are_handed() -> None:
    settings = Settings().in_buckets_only().found_in(Settings().place)

    for handed in (settings, settings.for_drivers(), settings.beside("s3://bucket/table"), settings.beside("/table")):
        with pytest.raises(NeedsChange):
            disk_path("/a", handed)


def test_a_table_in_a_bucket_leads_to_no_path() -> None:
    assert disk_path("/table/metadata", StorageSettings().beside("file:///table")) == Path("/table/metadata")
    with pytest.raises(NeedsChange):
        disk_path("/etc", StorageSettings().beside("s3://bucket/table"))
