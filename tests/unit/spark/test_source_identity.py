"""One file of a source under several names: it is taken once, in one epoch and over all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.taking import find_moved, under_recorded_names
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.ledger.epoch_index import FileVersion
from checkpoint_protocol.manifest.spec import Quarantine
from checkpoint_protocol.places.source_paths import distinct, identity_of, locate
from checkpoint_protocol.places.storage import StorageEntry, StorageSettings
from checkpoint_protocol.records import InputRecord, LaunchRecord, NoTarget, OutstandingRows, TakenFile
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_work.inputs.epoch_input import Earlier, list_source
from tests.support.sources import source_of

Rows = tuple[tuple[int, int], ...]

STORAGE = StorageSettings()
FILES = SourceFiles(STORAGE)
TEXT = "id\n1\n2\n"


def put(path: Path, text: str = TEXT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def expanded(*paths: object) -> list[str]:
    return [file.path for file in FILES.expand([str(path) for path in paths])]


# --- in one look ----------------------------------------------------------------------------------------------------------


SPELLINGS: Mapping[str, Callable[[Path], str]] = {
    "two slashes at the start": lambda path: f"/{path}",
    "many slashes at the start": lambda path: f"////{path}",
    "an empty folder name": lambda path: f"{path.parent}//{path.name}",
    "file: without host": lambda path: f"file:{path}",
    "file: with an empty host": lambda path: f"file://{path}",
    "file: with more slashes": lambda path: f"file:///{path}",
    "a dot": lambda path: f"{path.parent}/./{path.name}",
    "a pattern": lambda path: f"/{path.parent}/*",
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_a_file_that_is_spelled_in_two_ways_is_taken_once(spelling: Callable[[Path], str], tmp_path: Path) -> None:
    path = put(tmp_path / "in" / "x.csv")
    assert expanded(path, spelling(path)) == expanded(spelling(path), path) == [str(path)]


def test_links_to_a_file_are_the_file(tmp_path: Path) -> None:
    real = put(tmp_path / "in" / "y.csv")
    (tmp_path / "in" / "a.csv").symlink_to(real)
    (tmp_path / "other").symlink_to(tmp_path / "in")
    assert expanded(tmp_path / "in", tmp_path / "other", tmp_path / "other" / "a.csv") == [str(real)]


def test_a_link_alone_keeps_its_name(tmp_path: Path) -> None:
    real = put(tmp_path / "elsewhere" / "y.csv")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").symlink_to(real)
    assert expanded(tmp_path / "in") == [str(tmp_path / "in" / "a.csv")]


def test_a_hard_link_is_the_same_file_under_its_first_name(tmp_path: Path) -> None:
    real = put(tmp_path / "in" / "y.csv")
    os.link(real, tmp_path / "in" / "b.csv")
    assert expanded(tmp_path / "in") == [str(tmp_path / "in" / "b.csv")]


def test_the_same_content_is_not_the_same_file(tmp_path: Path) -> None:
    one, other = put(tmp_path / "a.csv"), put(tmp_path / "b.csv")
    assert expanded(tmp_path) == [str(one), str(other)]


CONFIGURED = StorageSettings(
    storage=(
        StorageEntry(prefix="s3://elsewhere/", endpoint="http://objects.example.com"),
        StorageEntry(prefix="s3://here/", endpoint="http://objects.example.com"),
        StorageEntry(prefix="s3a://here/", endpoint="http://objects.example.com/"),
        StorageEntry(prefix="az://named/", account_name="acme"),
        StorageEntry(prefix="az://another/", account_name="other"),
    )
)


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        ("s3://b/x", "s3a://b/x", True),
        ("s3://here/x", "s3a://here/x", True),
        ("s3://elsewhere/x", "s3a://elsewhere/x", True),  # one entry is for both
        ("s3://b/x", "s3://b/X", False),
        ("s3://b/x", "s3://c/x", False),
        ("s3://b/x", "gs://b/x", False),
        ("gs://b/x", "gcs://b/x", True),
        ("az://c/x", "abfs://c/x", True),
        ("abfs://c/x", "abfss://c/x", True),
        ("abfs://c@acme.dfs.core.windows.net/x", "abfss://c@Acme.blob.core.windows.net/x", True),
        ("abfss://c@acme.dfs.core.windows.net/x", "abfss://c@other.dfs.core.windows.net/x", False),
        ("abfss://c@acme.dfs.core.windows.net/x", "abfss://d@acme.dfs.core.windows.net/x", False),
        ("abfss://c@acme.dfs.core.chinacloudapi.cn/x", "abfss://c@acme.dfs.core.windows.net/x", False),
        ("abfss://c@acme.dfs.core.windows.net/x", "az://c/x", False),  # which account that is nobody says
        ("abfss://named@acme.dfs.core.windows.net/x", "az://named/x", True),
        ("abfss://another@acme.dfs.core.windows.net/x", "az://another/x", False),
        ("/a//b/./c", "file:////a/b/c", True),
        ("/s3/b/x", "s3://b/x", False),
    ],
)
def test_two_spellings_are_one_place_where_that_is_sure(one: str, other: str, is_one: bool) -> None:
    assert (identity_of(locate(one), CONFIGURED) == identity_of(locate(other), CONFIGURED)) is is_one


def test_paths_that_mean_the_same_are_given_to_spark_once(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    paths = [f"{tmp_path}/x.orc", f"/{tmp_path}/link/x.orc", f"file://{tmp_path}/x.orc/", f"{tmp_path}/x*"]
    objects = ["s3a://b/x", "s3://b/x", "s3a://c/x", "hdfs://host/x", "hdfs://host/x"]
    assert distinct([*paths, *objects]) == (paths[0], paths[3], "s3a://b/x", "s3a://c/x", "hdfs://host/x")


# --- over epochs ------------------------------------------------------------------------------------------------------------


def launch(
    *paths: object,
    on_replaced: Literal["Fail", "Process", "Skip"] = "Fail",
    retry: Literal["Never", "Also", "Only"] = "Never",
) -> LaunchRecord:
    return LaunchRecord(
        token="0" * 32,
        attempt=1,
        run_nonce="2",
        source=source_of({"files": {"format": "csv", "paths": tuple(str(path) for path in paths)}}),
        steps=(),
        code_digest="0" * 64,
        target=NoTarget(),
        sink_format="none",
        target_file_size_bytes=1,
        interval_s=60.0,
        minimum_bytes=0,
        counted=(),
        on_replaced=on_replaced,
        quarantine=Quarantine(retry=retry),
    )


def look(
    orders: LaunchRecord, *before: InputRecord, again: Mapping[FileVersion, tuple[tuple[int, int], ...]] | None = None
) -> InputRecord:
    files = [
        TakenFile(path=file.path, etag=file.etag, size_bytes=file.size_bytes, source=file.source)
        for record in before
        for file in record.files
    ]
    rows = [OutstandingRows(path=path, etag=etag, rows=of_file) for (path, etag), of_file in (again or {}).items()]
    return list_source(orders, STORAGE, "memory://checkpoints", Earlier(files, (), rows))


def taken(record: InputRecord) -> list[str]:
    return [file.path for file in record.files]


def as_recorded(record: InputRecord, *names: object) -> InputRecord:
    """Return the record with these names for its files, as an older release, or links that were otherwise, would have left it."""
    files = zip(record.files, names, strict=True)
    return record.model_copy(update={"files": tuple(replace(file, path=str(name)) for file, name in files)})


def test_a_file_that_an_earlier_epoch_has_spelled_otherwise_is_not_taken_again(tmp_path: Path) -> None:
    path = put(tmp_path / "in" / "x.csv")
    orders = launch(tmp_path / "in")
    first = look(orders)
    for spelled in (f"/{path}", f"{path.parent}//{path.name}"):
        assert taken(look(orders, as_recorded(first, spelled))) == []
    put(tmp_path / "in" / "y.csv")
    assert taken(look(orders, as_recorded(first, f"/{path}"))) == [str(tmp_path / "in" / "y.csv")]


def test_a_file_that_an_earlier_epoch_has_found_by_a_link_is_not_taken_again(tmp_path: Path) -> None:
    real = put(tmp_path / "in" / "x.csv")
    link = tmp_path / "a.csv"
    link.symlink_to(real)
    first = look(launch(link))
    assert taken(first) == [str(link)]
    assert taken(look(launch(link, tmp_path / "in"), first)) == []


def test_a_hard_link_that_has_come_since_is_no_new_file(tmp_path: Path) -> None:
    path = put(tmp_path / "x.csv")
    first = look(launch(tmp_path))
    (tmp_path / "a.csv").hardlink_to(path)
    assert taken(look(launch(tmp_path), first)) == []


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_known_file_with_new_content_is_noticed_under_its_new_name(link: Callable[[Path, Path], None], tmp_path: Path) -> None:
    path = put(tmp_path / "x.csv")
    first = look(launch(tmp_path))
    path.rename(tmp_path / "a.csv")
    link(tmp_path / "a.csv", path)
    put(tmp_path / "a.csv", TEXT + "3\n")
    with pytest.raises(NeedsChange) as stopped:
        look(launch(tmp_path), first)
    assert stopped.value.reason == reasons.SOURCE_CHANGED
    assert taken(look(launch(tmp_path, on_replaced="Skip"), first)) == []
    assert len(look(launch(tmp_path, on_replaced="Process"), first).files) == 1


def test_rows_are_tried_again_under_the_name_that_the_earlier_epoch_gave_the_file(tmp_path: Path) -> None:
    path = put(tmp_path / "x.csv")
    first = as_recorded(look(launch(tmp_path)), f"/{path}")
    (file,) = first.files
    record = look(launch(tmp_path, retry="Only"), first, again={(file.path, file.etag): ((3, 5),)})
    assert [(file.path, file.only) for file in record.files] == [(f"/{path}", ((3, 5),))]


def test_an_object_that_an_earlier_epoch_has_by_another_scheme_is_known() -> None:
    files = [SourceFile(path=f"s3://b/{name}", etag="1", size_bytes=1, unit="bytes", end=1) for name in ("x", "z")]
    found = under_recorded_names(files, ["s3a://b/x", "s3a://b/y"], FILES.identify)
    assert [file.path for file in found] == ["s3://b/z", "s3a://b/x"]


# --- moved ------------------------------------------------------------------------------------------------------------------


def test_a_file_that_was_moved_stops_the_next_epoch_and_both_names_are_said(tmp_path: Path) -> None:
    old, new = put(tmp_path / "x.csv"), tmp_path / "done" / "y.csv"
    first = look(launch(tmp_path))
    new.parent.mkdir()
    old.rename(new)

    with pytest.raises(NeedsChange) as stopped:
        look(launch(tmp_path), first)

    assert stopped.value.reason == reasons.SOURCE_MOVED
    assert all(part in stopped.value.message for part in (str(old), str(new), "onReplaced: Skip", "onReplaced: Process"))
    assert taken(look(launch(tmp_path, on_replaced="Skip"), first)) == []
    second = look(launch(tmp_path, on_replaced="Process"), first)
    assert taken(second) == [str(new)]
    assert taken(look(launch(tmp_path), first, second)) == []


def test_a_file_that_was_moved_out_of_the_way_of_its_next_version_is_moved(tmp_path: Path) -> None:
    log = put(tmp_path / "app.csv")
    first = look(launch(tmp_path))
    log.rename(tmp_path / "app.1.csv")
    put(log, TEXT + "3\n")
    with pytest.raises(NeedsChange) as stopped:
        look(launch(tmp_path), first)
    assert stopped.value.reason == reasons.SOURCE_MOVED
    assert taken(look(launch(tmp_path, on_replaced="Skip"), first)) == []


def test_a_version_of_long_ago_that_was_moved_is_known_too(tmp_path: Path) -> None:
    path = put(tmp_path / "in" / "x.csv")
    first = look(launch(tmp_path / "in"))
    kept = path.rename(tmp_path / "kept")
    put(path, TEXT + "3\n")
    second = look(launch(tmp_path / "in", on_replaced="Process"), first)
    kept.rename(tmp_path / "in" / "y.csv")
    with pytest.raises(NeedsChange) as stopped:
        look(launch(tmp_path / "in"), first, second)
    assert stopped.value.reason == reasons.SOURCE_MOVED


def test_a_new_file_beside_one_that_has_gone_is_new(tmp_path: Path) -> None:
    path = put(tmp_path / "x.csv")
    first = look(launch(tmp_path))
    put(tmp_path / "y.csv", TEXT.replace("2", "3"))
    os.utime(tmp_path / "y.csv", ns=(0, os.stat(path).st_mtime_ns))
    path.unlink()
    assert taken(look(launch(tmp_path), first)) == [str(tmp_path / "y.csv")]


def test_an_epoch_that_takes_nothing_new_is_not_stopped_by_a_file_that_was_moved(tmp_path: Path) -> None:
    path = put(tmp_path / "x.csv")
    kept = put(tmp_path / "z.csv", TEXT + "3\n")
    first = look(launch(tmp_path))
    path.rename(tmp_path / "y.csv")
    again = {(str(kept), first.files[1].etag): ((3, 5),)}
    assert taken(look(launch(tmp_path, retry="Only"), first, again=again)) == [str(kept)]


@pytest.mark.parametrize(
    ("gone", "rows", "is_moved"),
    [
        ({"s3://b/old"}, 1, True),
        (set(), 1, False),  # in a bucket equal content has equal etags
        ({"s3://b/old"}, 0, False),  # there are many empty files
    ],
)
def test_an_object_of_the_same_content_was_moved_only_if_the_old_one_is_gone(gone: set[str], rows: int, is_moved: bool) -> None:
    old, new = (SourceFile(path=f"s3://b/{name}", etag="1", size_bytes=9, unit="rows", end=rows) for name in ("old", "new"))
    recorded = TakenFile(path=old.path, etag=old.etag, size_bytes=old.size_bytes)
    moved = find_moved([new], [recorded], lambda file: file.path in gone)
    assert moved == ({new.path: recorded} if is_moved else {})
