"""What `validate` says of a source is what a driver will do: the operator may not import the driver's code, a test may."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import obstore
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from obstore.store import S3Store

from checkpoint_operator.validation.forecast import _tasks
from checkpoint_operator.validation.paths import FoundFile, SourceListing
from checkpoint_operator.validation.report import Findings
from checkpoint_operator.validation.source import SourceSeen, check_source
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest import Source
from checkpoint_protocol.records import SourceFile
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.storage import StorageSettings
from checkpoint_spark.planning import MOST_PIECES, plan_tasks
from checkpoint_spark.sources.files import SourceFiles
from checkpoint_spark.sources.parquet_rows import nearest_start
from checkpoint_spark.sources.reader import file_reader_for
from checkpoint_spark.sources.type_names import parse_type
from tests.services.s3_server import S3Server
from tests.support.places import on_s3

TREE = (
    "a.csv",
    "b.CSV",
    "_hidden.csv",
    ".dot.csv",
    "x/a.csv",
    "x/_SUCCESS",
    "x/y/z.csv",
    "x/_tmp/a.csv",
    "x/a b+c.csv",
    "x/größe#1.csv",
    "xy/1.csv",
    "deep/er/and/deeper/a.csv",
)
PATHS = (
    "",
    "/",
    "/a.csv",
    "/a.csv/",
    "/x",
    "/x/",
    "/*",
    "/*.csv",
    "/?.csv",
    "/x*",
    "/x/*.csv",
    "/**/a.csv",
    "/x/**",
    "/**/y/*",
    "/_*",
    "/.*",
    "/x/_tmp/*",
    "/x/_tmp",
    "/*/*/*.csv",
    "/nothing",
    "/nothing/*",
    "/a.csv/*",
    "/x/größe#1.csv",
    "/x/a%20b+c.csv",
)


def by_driver(path: str, storage: StorageSettings) -> list[str]:
    try:
        return [file.path for file in SourceFiles(storage).expand([path])]
    except NeedsChange as error:
        if error.reason != "SourceMissing":
            raise
        return []


@pytest.mark.parametrize("path", PATHS)
def test_a_path_on_disk_means_the_same_files(path: str, tmp_path: Path) -> None:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("id\n1\n")
    (tmp_path / "x" / "loop").symlink_to(tmp_path)
    storage = StorageSettings()

    for whole in (f"{tmp_path}{path}", f"file://{tmp_path}{path}"):
        assert [file.path for file in SourceListing(storage).find(whole)] == by_driver(whole, storage)


def test_a_path_in_a_bucket_means_the_same_files(s3_server: S3Server, tmp_path: Path) -> None:
    place = on_s3(tmp_path, "lance", s3_server)
    storage = place.settings.for_drivers()
    entry = storage.storage[0]
    bucket = S3Store(
        place.base_uri.removeprefix("s3://"),
        endpoint=entry.endpoint,
        region=entry.region,
        access_key_id=s3_server.access_key,
        secret_access_key=s3_server.secret_key,
        client_options={"allow_http": True},
    )
    for name in TREE:
        obstore.put(bucket, f"in/{name}", b"id\n1\n")
    obstore.put(bucket, "in/x/empty.csv", b"")
    listing = SourceListing(storage)
    found = {path: [file.path for file in listing.find(f"{place.base_uri}/in{path}")] for path in PATHS}

    assert found == {path: by_driver(f"{place.base_uri}/in{path}", storage) for path in PATHS}
    assert sum(map(len, found.values())) > 30


@pytest.mark.parametrize("path", ["ftp://host/in", "s3:///in", "s3://bucket//in", "s3://bucket/a//b"])
def test_a_path_that_a_driver_refuses_is_refused(path: str) -> None:
    with pytest.raises(NeedsChange):
        SourceListing(StorageSettings()).find(path)
    with pytest.raises(NeedsChange):
        SourceFiles(StorageSettings()).expand([path])


TYPE_NAMES = """
bool int8 int64 uint32 float32 float64 double string binary date time timestamp timestamp[us] timestamp[ns,UTC]
timestamp[us,+02:00] timestamp[us,tz=Europe/Berlin] decimal(10,2)
timestamp[us,Berlin] timestamp[d] timestamp[] decimal(39,2) decimal(2,3) decimal(0,0) decimal
int integer float text str int128 uint list<int64>
"""


@pytest.mark.parametrize("name", TYPE_NAMES.split())
def test_a_type_name_is_known_to_both_or_to_neither(name: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\n")
    findings = Findings()
    check_source(Source(format="csv", path=str(tmp_path), types={"id": name}), Settings(), findings)
    try:
        parse_type("id", name)
        is_known = True
    except NeedsChange:
        is_known = False

    assert (findings.problems == []) is is_known


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("id,text\n1,a\n", {}),
        ("\ufeffid,text\r\n1,a\r\n", {}),
        ("\n\nid,text\n1,a", {}),
        ('"id","te,xt"\n1,a\n', {}),
        ('"i""d",text\n1,a\n', {}),
        ("id;text\n1;a\n", {"delimiter": ";"}),
        ("'id'|'text'\n1|a\n", {"delimiter": "|", "quote": "'"}),
        ('"id",text\n1,a\n', {"quote": ""}),
        ("1,a\n2,b\n", {"header": False}),
        ('"i\nd",text\n1,a\n', {"multi_line": True}),
        ("i\\,d,text\n1,a\n", {"escape": "\\"}),
        (" id , text\n1,a\n", {}),
    ],
)
@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_a_csv_header_has_the_same_columns(name: str, text: str, options: dict[str, Any], tmp_path: Path) -> None:
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    source = Source.model_validate({"format": "csv", "path": str(tmp_path / name), "options": options})
    findings = Findings()

    seen = check_source(source, Settings(), findings)
    described, schema = file_reader_for(source, StorageSettings()).describe(source.all_paths)

    assert findings.problems == []
    assert seen is not None
    assert seen.columns == tuple(schema.names)
    assert (described[0].path in seen.whole) is (described[0].unit == "records")


@pytest.mark.parametrize("text", ["id\n", "id", "\nid\n", "id\n\n", "id\n1", "\ufeffid\n"])
@pytest.mark.parametrize("header", [True, False])
def test_a_csv_file_without_rows_is_in_no_task(header: bool, text: str, tmp_path: Path) -> None:
    (tmp_path / "full.csv").write_text("id\n1\n" if header else "1\n")
    (tmp_path / "this.csv").write_text(text)
    source = Source.model_validate({"format": "csv", "path": str(tmp_path), "options": {"header": header}})

    seen = check_source(source, Settings(), Findings())
    described, _ = file_reader_for(source, StorageSettings()).describe(source.all_paths)

    assert seen is not None
    assert [file.path for file in seen.filled] == [file.path for file in described if file.start < (file.end or 0)]


# --- the number of tasks ------------------------------------------------------------------------------------------------------

_FILE = st.tuples(st.integers(1, 50_000), st.sampled_from(["rows", "bytes", "records", "empty"]), st.integers(1, 5_000))
_FILES = st.lists(_FILE, min_size=1, max_size=20)


@given(
    files=_FILES,
    scale=st.sampled_from([1, 1 << 10]),
    cores=st.integers(1, 64),
    split_bytes=st.integers(400, 200_000),
    opened=st.integers(0, 20),
)
@example(files=[(1_000, "records", 1)] * 20, scale=1 << 10, cores=2, split_bytes=100_000, opened=20)
@example(files=[(9_000, "rows", 1), *[(50_000, "empty", 1)] * 5], scale=1 << 10, cores=4, split_bytes=100_000, opened=1)
@example(files=[(size, "rows", 1) for size in (1, 470, 83, 1, 388, 81)], scale=1, cores=1, split_bytes=400, opened=0)
@settings(deadline=None)
def test_the_planned_tasks_are_within_the_bounds(
    files: list[tuple[int, str, int]], scale: int, cores: int, split_bytes: int, opened: int
) -> None:
    """Whatever the files, some without rows, and however few were opened. Rows are 100 bytes; the last number: a row group's."""
    records = []
    for number, (size, unit, group) in enumerate(files):
        size_bytes = size * scale
        end = {"rows": max(1, size_bytes // 100), "bytes": size_bytes, "records": None, "empty": 0}[unit]
        cuts = tuple(range(0, end, max(group, end // 1_000 + 1))) if unit == "rows" and end else ()
        plain: dict[str, Any] = {"path": f"/in/{number}", "etag": "e", "size_bytes": size_bytes, "end": end, "cuts": cuts}
        records.append(SourceFile(**plain, unit="rows" if unit == "empty" else unit))  # type: ignore[arg-type]

    def align(file: SourceFile, position: int, slack: int) -> int:
        end = file.end or 0
        if file.unit == "bytes":
            return min(end, -(-position // 100) * 100)
        return nearest_start(file.cuts, end, position, slack)

    found = tuple(FoundFile("", record.path, record.size_bytes) for record in records)
    filled = tuple(file for file, record in zip(found[:opened], records, strict=False) if record.end != 0)
    whole = frozenset(record.path for record in records if record.unit == "records")
    bounds = _tasks(SourceSeen(found, filled, found[opened:], whole, None, None), cores, split_bytes * scale)

    planned = len(plan_tasks(records, (), align, cores, split_bytes * scale))

    assert bounds.at_most is not None
    assert bounds.at_least <= planned <= bounds.at_most


@pytest.mark.parametrize("count", [MOST_PIECES - 1, MOST_PIECES, MOST_PIECES + 1, 4 * MOST_PIECES + 3])
@pytest.mark.parametrize("unit", ["rows", "records"])
def test_the_planned_tasks_are_within_the_bounds_where_very_many_files_are_very_small(count: int, unit: Any) -> None:
    record = SourceFile(path="/in/a", etag="e", size_bytes=1, unit=unit, end=1 if unit == "rows" else None)
    files = tuple(FoundFile("", f"/in/{number}", 1) for number in range(count))
    whole = frozenset(file.path for file in files) if unit == "records" else frozenset[str]()

    bounds = _tasks(SourceSeen(files, files[:200], files[200:], whole, None, None), 1, 128 << 20)
    planned = len(plan_tasks([record] * count, (), lambda file, position, slack: position, 1, 128 << 20))

    assert bounds.at_most is not None
    assert bounds.at_least <= planned <= bounds.at_most
