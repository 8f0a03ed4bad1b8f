"""Which URIs are opened, by whom, and that nothing that opens one has another opinion."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkpoint_formats.iceberg.file_io import CheckedFileIO
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.patterns import Tenant
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import (
    StorageEntry,
    StorageSettings,
    disk_path,
    iceberg_options,
    lance_options,
    obstore_options,
    pyarrow_options,
)
from checkpoint_protocol.places.uris import URI_PATTERN, local_path, why_not_opened
from checkpoint_protocol.store.object_store import open_store

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
#: Libraries read these as other places than a grant does, which is of what is written.
LEADING_ELSEWHERE = (
    "s3://b/a/../c",
    "s3://b/./c",
    "s3://b/..",
    "s3://user@b/c",
    "s3://b:80/c",
    "s3://b?x/c",
    "gs://b#x/c",
    "s3://b\t/c",
    "s3://b /c",
    "s3://b\\c/d",
    "abfss://c@h:80/a",
    "az://c@d@h/a",
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
IN_BUCKETS = (
    *("s3://b/a", "s3a://b/a", "gs://b", "gcs://b/a", "az://c/a", "abfs://c@h/a", "abfss://c@a.dfs.core.windows.net/a"),
    *("s3://b/a..b/.c/..d/e./f..", "s3://b/", "s3://b/a//b", "gs://a.b_c-1/d", "az://$web/a", "s3://b/a?b#c*"),
)


@pytest.mark.parametrize("uri", LEADING_ELSEWHERE)
def test_what_leads_out_of_a_bucket_or_folder_is_opened_by_nothing(uri: str) -> None:
    everywhere = StorageEntry(prefix=f"{uri.partition('://')[0]}://", credentials="anonymous")
    assert why_not_opened(uri) is not None
    for opened in (obstore_options, pyarrow_options, iceberg_options, lance_options, open_store):
        with pytest.raises(NeedsChange) as refused:
            opened(uri, StorageSettings(storage=(everywhere,)))
        assert refused.value.reason == reasons.MANIFEST_INVALID


def test_a_uri_of_an_old_client_of_azure_is_opened_as_the_message_says() -> None:
    assert "write abfss://container@account.dfs.core.windows.net/path" in (
        why_not_opened("wasbs://c@a.blob.core.windows.net/x") or ""
    )

    assert why_not_opened("abfss://c@a.dfs.core.windows.net/x") is None


@pytest.mark.parametrize("name", ["ops?x", "ops#x", "op\ts", "ops\n", "%6fps", "a/%2e%2e/ops", "ops "])
def test_what_lance_would_read_as_another_name_it_is_not_given(name: str) -> None:
    storage = StorageSettings(storage=(StorageEntry(prefix="s3://b/", credentials="anonymous"),))

    with pytest.raises(NeedsChange, match="stands in it"):
        lance_options(f"s3://b/{name}", storage)
    assert lance_options("s3://b/ops", storage), "a name without it"


@pytest.mark.parametrize("name", ["ops?x", "ops#x", "op\ts/x", "ops\r"])
def test_what_pyiceberg_would_read_as_another_name_it_does_not_open(name: str) -> None:
    storage = StorageSettings(storage=(StorageEntry(prefix="s3://b/", credentials="anonymous"),))

    for open_file in (
        CheckedFileIO(storage, None).new_input,
        CheckedFileIO(storage, None).new_output,
        CheckedFileIO(storage, None).delete,
    ):
        with pytest.raises(NeedsChange, match="lead elsewhere") as refused:
            open_file(f"s3://b/{name}")
        assert refused.value.reason == reasons.TABLE_UNSUPPORTED


def test_a_folder_of_others_is_not_reached_through_ones_own() -> None:
    entries = tuple(
        StorageEntry(prefix=f"s3://lake/{name}/", credentials="anonymous", namespaces=(name,)) for name in ("ops", "team-a")
    )
    storage = StorageSettings(storage=entries).used_by(Tenant("team-a"))

    assert lance_options("s3://lake/team-a/x.lance", storage)
    with pytest.raises(NeedsChange, match="are no folders of a bucket"):
        lance_options("s3://lake/team-a/../ops/x.lance", storage)


@pytest.mark.parametrize("uri", FOREIGN)
def test_a_foreign_scheme_is_opened_by_nothing(uri: str) -> None:
    assert why_not_opened(uri) is not None
    for opened in (obstore_options, pyarrow_options, iceberg_options, lance_options, open_store):
        with pytest.raises(NeedsChange) as refused:
            opened(uri, StorageSettings())
        assert refused.value.reason == reasons.MANIFEST_INVALID
        assert uri in refused.value.message


@pytest.mark.parametrize("uri", [*FOREIGN, *LEADING_ELSEWHERE, *ON_DISK, *IN_BUCKETS])
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
