"""The readers of source tables against the libraries' own scans, on real tables: whatever happened to the table, wherever the
input is cut, and wherever reading stops and goes on, each row that `where` takes comes once, and no other.

The condition itself is judged by DuckDB.
"""

from __future__ import annotations

import datetime
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from checkpoint_commit.catalogs.source_tables import describe
from checkpoint_formats.iceberg.plan import described, find_files
from checkpoint_formats.lance.reader import find_fragments
from checkpoint_formats.readers import reader_for
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.selecting import selection_of
from checkpoint_formats.rows.uniting import unite
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.source import IcebergSource, Source
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import DeleteFile, IcebergSourceFile, PinnedIceberg, PinnedTable
from checkpoint_protocol.records.formats.lance import PinnedLance
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from devtools.spark_iceberg import iceberg_spark_runtime
from tests.support.conditions import COLUMNS, conditions
from tests.support.sources import source_of
from tests.support.waiting import patience

Row = dict[str, Any]
STORAGE = StorageSettings()
AT = datetime.datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=datetime.UTC)

# No NaN: DuckDB takes it for the largest number.
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-3, 3),
            "f": st.none() | st.sampled_from([-1.5, 0.0, 0.1, 2.0]),
            "d": st.none() | st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("1.25")]),
            "s": st.none() | st.sampled_from(["", "a", "ab", "b", "ä"]),
            "day": st.none() | st.sampled_from([datetime.date(2026, 1, 30), datetime.date(2026, 1, 31)]),
            "moment": st.none() | st.sampled_from([AT, AT.replace(year=1969)]),
            "flag": st.none() | st.booleans(),
        }
    ),
    max_size=12,
)
WHERE = st.none() | conditions().filter(lambda text: "nan" not in text)
CHOSEN = st.none() | st.lists(st.sampled_from(["i", "s", "moment", "d"]), min_size=1, max_size=3, unique=True)


def counted(rows: Sequence[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def judged(table: pa.Table, where: str | None, columns: Sequence[str] | None) -> list[str]:
    """Return the rows of a table that the condition takes, as DuckDB sees it."""
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        taken = connection.from_arrow(table).filter(where).to_arrow_table() if where is not None else table
    taken = taken.cast(table.schema)
    return counted((taken.select(columns) if columns else taken).to_pylist())


def columns_to_read(table: PinnedIceberg, source: Source) -> pa.Schema:
    """Return the columns of a table that are recorded for a source."""
    selection = selection_of(source)
    return unite([described(table, (), selection.columns_to_read)], selection)


def fragments_of(source: Source) -> tuple[tuple[SourceFile, ...], pa.Schema, PinnedLance]:
    """Return what the first epoch takes of a dataset, under which columns, and at which version."""
    assert source.lance is not None
    selection = selection_of(source)
    found, table = find_fragments(source.lance, selection.columns_to_read, STORAGE, (), "Fail")
    return found.files, unite([found], selection), table


def read_in_pieces(
    source: Source, table: PinnedTable | None, files: Sequence[SourceFile], schema: pa.Schema, data: st.DataObject
) -> list[str]:
    """Read the files as tasks of several attempts do: cut anywhere, stopped after any chunk, and gone on by another reader."""
    rows: list[Row] = []
    # One seed: what is drawn may not depend on the order of the files, whose names are other ones each time.
    any_of = data.draw(st.randoms(use_true_random=True))
    for index, file in enumerate(files):
        assert file.end is not None
        cuts = [any_of.randint(0, file.end) for _ in range(any_of.randint(0, 2))]
        slack = any_of.randint(0, file.end)
        reader = reader_for(source, STORAGE, (table,))
        borders = sorted({0, file.end, *(reader.align(file, cut, slack) for cut in cuts)})
        for start, end in itertools.pairwise(borders):
            while start < end:
                stop_after = any_of.randint(1, 4)
                sizing = BatchSizing(60.0, scale=any_of.choice([2**-16, 2**-15, 1.0]))
                chunks = reader_for(source, STORAGE, (table,)).read(file, Range(file=index, start=start, end=end), schema, sizing)
                for chunk in itertools.islice(chunks, stop_after):
                    assert chunk.start == start
                    assert chunk.end is not None
                    assert chunk.end > start
                    if chunk.kept is not None:
                        assert len(chunk.kept) == chunk.batch.num_rows
                        assert all(number < chunk.end - chunk.start for number in chunk.kept.to_pylist())
                    rows += chunk.batch.to_pylist()
                    start = chunk.end
                chunks.close()  # type: ignore[attr-defined]
    return counted(rows)


# --- Iceberg --------------------------------------------------------------------------------------------------------------


def in_folder(folder: Path) -> Catalog:
    """A catalog without a file: the tests are about what it names."""
    catalog = InMemoryCatalog("test", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    return catalog


def pinned_in(catalog: Catalog, source: Source) -> PinnedIceberg:
    assert source.iceberg is not None
    return describe(source.iceberg, catalog.load_table(source.iceberg.table))


def iceberg_source(**more: Any) -> Source:
    return Source(iceberg=IcebergSource(catalog="test", table="db.source"), **more)


def read_iceberg(source: Source, catalog: Catalog, data: st.DataObject) -> list[str]:
    table = pinned_in(catalog, source)
    condition = selection_of(source).condition
    files = find_files(table, condition, STORAGE, None, "Fail")
    return read_in_pieces(source, table, files, columns_to_read(table, source), data)


EVOLUTIONS: dict[str, Callable[[Any], None]] = {
    "add a column": lambda table: table.update_schema().add_column("late", StringType()).commit(),
    "rename a column": lambda table: table.update_schema().rename_column("flag", "banner").commit(),
    "promote a column": lambda table: table.update_schema().update_column("i", field_type=LongType()).commit(),
    "drop a column": lambda table: table.update_schema().delete_column("f").commit(),
    "move a column": lambda table: table.update_schema().move_first("s").commit(),
    "partition": lambda table: table.update_spec().add_identity("s").commit(),
    "partition by day": lambda table: table.update_spec().add_field("moment", "day", "at_day").commit(),
    "delete": lambda table: table.delete("i = 1 or s = 'ab'"),
}


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.data())
def test_an_iceberg_table_gives_what_its_own_scan_gives(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        catalog = in_folder(Path(folder))
        table = catalog.create_table("db.source", COLUMNS)
        evolutions = data.draw(st.permutations(sorted(EVOLUTIONS)).map(lambda names: names[:3]))
        for evolution in (None, *evolutions):
            if evolution is not None:
                EVOLUTIONS[evolution](catalog.load_table("db.source"))
            table = catalog.load_table("db.source")
            rows = pa.Table.from_pylist(data.draw(ROWS), schema=COLUMNS)
            names = table.schema().column_names
            rows = rows.rename_columns({"flag": "banner"}) if "banner" in names else rows
            rows = rows.drop_columns(["f"]) if "f" not in names else rows
            if table.schema().find_type("i") == LongType():
                rows = rows.set_column(0, "i", rows.column("i").cast(pa.int64()))
            if rows.num_rows:
                table.append(rows)
        table = catalog.load_table("db.source")
        where, columns = data.draw(WHERE), data.draw(CHOSEN)
        names = table.schema().column_names
        if where is not None and any(name not in names for name in {"f", "flag"} & set(where.replace("(", " ").split())):
            where = None
        source = iceberg_source(where=where, columns=tuple(columns) if columns else None)

        found = read_iceberg(source, catalog, data)

        assert found == judged(_plain(table.scan().to_arrow()), where, columns)


def _plain(table: pa.Table) -> pa.Table:
    kinds = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return table.cast(pa.schema([(field.name, kinds.get(field.type, field.type)) for field in table.schema]))


def test_files_and_manifests_are_pruned_by_partitions_and_by_statistics(tmp_path: Path) -> None:
    catalog = in_folder(tmp_path)
    table = catalog.create_table("db.source", COLUMNS)
    table.update_spec().add_identity("s").commit()
    for number in range(4):
        row = {"i": number, "s": "ab"[number % 2], **dict.fromkeys(set(COLUMNS.names) - {"i", "s"})}
        catalog.load_table("db.source").append(pa.Table.from_pylist([row], schema=COLUMNS))

    def count(where: str | None) -> int:
        source = iceberg_source(where=where)
        return len(find_files(pinned_in(catalog, source), selection_of(source).condition, STORAGE, None, "Fail"))

    assert count(None) == 4
    assert count("s = 'a'") == 2
    assert count("i = 3") == 1
    assert count("s = 'a' and i = 3") == 0
    assert count("f is not null") == 0


@pytest.mark.parametrize("where", ["i is null or i > 3", "moment < '2026-01-31T12:00:00+00:00' or s is null"])
def test_a_condition_on_a_partition_whose_value_is_null_is_judged_row_by_row(tmp_path: Path, where: str) -> None:
    catalog = in_folder(tmp_path)
    table = catalog.create_table("db.source", COLUMNS)
    table.update_spec().add_field("moment", "day", "at_day").add_identity("i").commit()
    catalog.load_table("db.source").append(pa.Table.from_pylist([dict.fromkeys(COLUMNS.names)], schema=COLUMNS))
    source = iceberg_source(where=where)
    pinned = pinned_in(catalog, source)

    (file,) = find_files(pinned, selection_of(source).condition, STORAGE, None, "Fail")

    chunks = reader_for(source, STORAGE, (pinned,)).read(
        file, Range(file=0, start=0, end=1), columns_to_read(pinned, source), BatchSizing(60.0)
    )
    assert sum(chunk.batch.num_rows for chunk in chunks) == 1


@pytest.mark.parametrize("parts", [1, 2])
def test_position_deletes_are_applied_wherever_the_file_is_cut(parts: int, tmp_path: Path) -> None:
    catalog = in_folder(tmp_path)
    schema = pa.schema([("n", pa.int64())])
    catalog.create_table("db.source", schema).append(pa.table({"n": list(range(50))}, schema=schema))
    source = iceberg_source(where="n != 13")
    table = pinned_in(catalog, source)
    (file,) = find_files(table, None, STORAGE, None, "Fail")
    gone = [0, 1, 7, 12, 31, 49]
    deletes = []
    for part in range(parts):
        path = f"file://{tmp_path}/deletes-{part}.parquet"
        other = pa.table({"file_path": ["file:///other.parquet"], "pos": pa.array([3], pa.int64())})
        own = gone[part::parts]
        these = pa.table({"file_path": [file.path] * len(own), "pos": pa.array(own, pa.int64())})
        pq.write_table(pa.concat_tables([other, these]), path.removeprefix("file://"))
        deletes.append(DeleteFile(path=path, format="parquet"))
    assert file.iceberg is not None
    file = replace(file, iceberg=file.iceberg.model_copy(update={"deletes": tuple(deletes)}))
    expected = [n for n in range(50) if n not in (*gone, 13)]

    for cut in range(51):
        reader, found = reader_for(source, STORAGE, (table,)), []
        for start, end in ((0, cut), (cut, 50)):
            piece = Range(file=0, start=start, end=end)
            for chunk in reader.read(file, piece, schema, BatchSizing(60.0, scale=2**-14)):
                numbers = chunk.batch.column(0).to_pylist()
                kept = range(len(numbers)) if chunk.kept is None else chunk.kept.to_pylist()
                assert [chunk.start + number for number in kept] == numbers, "a row is named by another's position"
                found += numbers
        assert found == expected

    Path(f"{tmp_path}/deletes-0.parquet").unlink()
    with pytest.raises(NeedsChange, match=r"deletes-0\.parquet of snapshot") as lost:
        list(reader_for(source, STORAGE, (table,)).read(file, Range(file=0, start=0, end=50), schema, BatchSizing(60.0)))
    assert lost.value.reason == reasons.SOURCE_CHANGED


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"content": DataFileContent.EQUALITY_DELETES, "equality_ids": [1]}, r"equality deletes .*rewrite_data_files"),
        ({"file_format": FileFormat.ORC}, r"ORC file .*Parquet files are read"),
    ],
    ids=["equality deletes", "ORC"],
)
def test_a_table_with_files_that_cannot_be_read_here_is_refused_and_the_way_out_is_named(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    catalog = in_folder(tmp_path)
    schema = pa.schema([("n", pa.int64())])
    table = catalog.create_table("db.source", schema)
    table.append(pa.table({"n": [1, 2, 3]}, schema=schema))
    (task,) = table.scan().plan_files()
    known = {
        "content": DataFileContent.DATA,
        "file_path": f"file://{tmp_path}/other",
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "record_count": 1,
        "file_size_in_bytes": 10,
        **change,
    }
    file = DataFile.from_args(**known)
    file.spec_id = task.file.spec_id
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)

    with pytest.raises(NeedsChange, match=said) as refused:
        find_files(pinned_in(catalog, iceberg_source()), None, STORAGE, None, "Fail")

    assert refused.value.reason == reasons.TABLE_UNSUPPORTED


def test_a_column_that_a_file_does_not_have_is_its_initial_default(tmp_path: Path) -> None:
    catalog = in_folder(tmp_path)
    schema = pa.schema([("n", pa.int64())])
    table = catalog.create_table("db.source", schema)
    table.append(pa.table({"n": [1, 2]}, schema=schema))
    source = iceberg_source()
    pinned = pinned_in(catalog, source)
    with_default = Schema(
        NestedField(1, "n", LongType()), NestedField(2, "kind", StringType(), initial_default="old", write_default="new")
    )
    pinned = pinned.model_copy(update={"table_schema_json": with_default.model_dump_json()})
    (file,) = find_files(pinned_in(catalog, source), None, STORAGE, None, "Fail")

    chunks = reader_for(source, STORAGE, (pinned,)).read(
        file, Range(file=0, start=0, end=2), columns_to_read(pinned, source), BatchSizing(60.0)
    )

    assert [row for chunk in chunks for row in chunk.batch.to_pylist()] == [{"n": 1, "kind": "old"}, {"n": 2, "kind": "old"}]


def test_a_column_that_a_file_does_not_have_is_its_partition_value(tmp_path: Path) -> None:
    """As in tables that were migrated from Hive: the partition's column is in the folder's name only."""
    catalog = in_folder(tmp_path)
    table = catalog.create_table("db.source", pa.schema([("n", pa.int64()), ("day", pa.date32())]))
    table.update_spec().add_identity("day").commit()
    source = iceberg_source()
    pinned = pinned_in(catalog, source)
    path = tmp_path / "plain.parquet"
    ids = pa.schema([pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table({"n": [1, 2]}, schema=ids), path)
    file = SourceFile(
        path=str(path),
        etag="",
        size_bytes=path.stat().st_size,
        unit="rows",
        end=2,
        iceberg=IcebergSourceFile(spec_id=1, partition=("AQAAAA==",), deletes=()),
    )

    chunks = reader_for(source, STORAGE, (pinned,)).read(
        file, Range(file=0, start=0, end=2), columns_to_read(pinned, source), BatchSizing(60.0)
    )

    day = datetime.date(1970, 1, 2)
    assert [row for chunk in chunks for row in chunk.batch.to_pylist()] == [{"n": 1, "day": day}, {"n": 2, "day": day}]


@pytest.mark.parametrize("where", [None, "n < 3"])
def test_files_of_a_partition_whose_column_was_dropped_are_read(tmp_path: Path, where: str | None) -> None:
    catalog = in_folder(tmp_path)
    table = catalog.create_table("db.source", pa.schema([("n", pa.int64()), ("s", pa.string())]))
    table.update_spec().add_identity("s").commit()
    catalog.load_table("db.source").append(pa.table({"n": [1, 2], "s": ["a", None]}))
    catalog.load_table("db.source").update_spec().remove_field("s").commit()
    catalog.load_table("db.source").update_schema().delete_column("s").commit()
    source = iceberg_source(where=where)
    pinned = pinned_in(catalog, source)
    reader = reader_for(source, STORAGE, (pinned,))

    rows = [
        row
        for file in find_files(pinned, selection_of(source).condition, STORAGE, None, "Fail")
        for chunk in reader.read(file, Range(file=0, start=0, end=file.end), columns_to_read(pinned, source), BatchSizing(60.0))
        for row in chunk.batch.to_pylist()
    ]

    assert sorted(row["n"] for row in rows) == [1, 2]


@pytest.mark.parametrize("operator", ["=", "<="])
def test_a_file_with_finer_times_than_the_table_is_judged_by_what_is_read_of_them(tmp_path: Path, operator: str) -> None:
    """Rows are cut to microseconds before they are judged, and the file's statistics are not."""
    catalog = in_folder(tmp_path)
    catalog.create_table("db.source", pa.schema([("at", pa.timestamp("us"))]))
    source = iceberg_source(where=f"at {operator} '2026-01-01T00:00:00'")
    pinned = pinned_in(catalog, source)
    path = tmp_path / "plain.parquet"
    ids = pa.schema([pa.field("at", pa.timestamp("ns"), metadata={"PARQUET:field_id": "1"})])
    just_after = 1_767_225_600_000_000_500
    pq.write_table(pa.table({"at": pa.array([just_after], pa.timestamp("ns"))}, schema=ids), path)
    file = SourceFile(
        path=str(path),
        etag="",
        size_bytes=path.stat().st_size,
        unit="rows",
        end=1,
        iceberg=IcebergSourceFile(spec_id=0, partition=(), deletes=()),
    )

    chunks = reader_for(source, STORAGE, (pinned,)).read(
        file, Range(file=0, start=0, end=1), columns_to_read(pinned, source), BatchSizing(60.0)
    )

    assert [str(at) for chunk in chunks for at in chunk.batch.column("at").to_pylist()] == ["2026-01-01 00:00:00"]


SPARK_WRITER = """
import sys
from pyspark.sql import SparkSession
jar, warehouse = sys.argv[1:]
spark = (SparkSession.builder.master("local[1]").config("spark.jars", jar).config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config("spark.sql.catalog.h", "org.apache.iceberg.spark.SparkCatalog").config("spark.sql.catalog.h.type", "hadoop")
    .config("spark.sql.catalog.h.warehouse", warehouse).getOrCreate())
for version in (2, 3):
    name = f"h.db.v{version}"
    spark.sql(f"CREATE TABLE {name} (id bigint, part int, tags array<string>, place struct<lat: double, m: map<string, int>>) "
        f"USING iceberg PARTITIONED BY (part) TBLPROPERTIES ('format-version'='{version}', 'write.delete.mode'='merge-on-read')")
    spark.sql(f"INSERT INTO {name} SELECT id, cast(id % 2 as int), array('t', cast(id as string)), "
        "named_struct('lat', id / 2, 'm', map('k', cast(id as int))) FROM range(200)")
    spark.sql(f"DELETE FROM {name} WHERE id % 5 = 0 OR id BETWEEN 40 AND 59")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN id TO number")
    spark.sql(f"INSERT INTO {name} VALUES (1000, 7, null, null)")
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.spark
def test_deletes_that_spark_has_merged_on_read_are_applied(tmp_path: Path) -> None:
    """Position delete files of format 2, and deletion vectors of format 3."""
    subprocess.run(
        [sys.executable, "-c", SPARK_WRITER, str(iceberg_spark_runtime()), str(tmp_path)],
        check=True,
        capture_output=True,
        timeout=patience(280),
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    alive = [n for n in range(200) if n % 5 and not 40 <= n <= 59]
    expected = [{"number": n, "part": n % 2, "tags": ["t", str(n)], "place": {"lat": n / 2, "m": [("k", n)]}} for n in alive] + [
        {"number": 1000, "part": 7, "tags": None, "place": None}
    ]
    for version, kind in ((2, "parquet"), (3, "puffin")):
        location = tmp_path / "db" / f"v{version}"
        newest = max((location / "metadata").glob("v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))
        table = describe(IcebergSource(catalog="test", table="db.source"), StaticTable.from_metadata(str(newest)))
        source = iceberg_source()
        files = find_files(table, None, STORAGE, None, "Fail")
        schema, reader = columns_to_read(table, source), reader_for(source, STORAGE, (table,))

        rows = []
        for number, file in enumerate(files):
            assert file.end is not None
            for start, end in ((0, file.end // 3), (file.end // 3, file.end)):
                chunks = reader.read(file, Range(file=number, start=start, end=end), schema, BatchSizing(60.0, scale=2**-13))
                rows += [row for chunk in chunks for row in chunk.batch.to_pylist()]

        assert sorted(rows, key=lambda row: row["number"]) == expected
        assert {delete.format for file in files if file.iceberg for delete in file.iceberg.deletes} == {kind}


# --- Lance ----------------------------------------------------------------------------------------------------------------


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.data())
def test_a_lance_dataset_gives_what_its_own_scan_gives(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        uri = f"{folder}/source.lance"
        lance.write_dataset(COLUMNS.empty_table(), uri, schema=COLUMNS, enable_stable_row_ids=data.draw(st.booleans()))
        for _ in range(3):
            rows = pa.Table.from_pylist(data.draw(ROWS), schema=COLUMNS)
            dataset = lance.write_dataset(rows, uri, mode="append", max_rows_per_file=7)
            match data.draw(st.sampled_from(["", "delete", "compact", "update", "add"])):
                case "delete":
                    dataset.delete("i = 1 or s = 'ab'")
                case "compact":
                    dataset.optimize.compact_files()
                case "update":
                    dataset.update({"s": "'b'"}, where="i = 2")
                case "add" if "late" not in dataset.schema.names:
                    dataset.add_columns({"late": "i + 1"})
        where, columns = data.draw(WHERE), data.draw(CHOSEN)
        source = source_of({"lance": {"uri": uri}, "columns": columns, "where": where})
        files, schema, table = fragments_of(source)

        found = read_in_pieces(source, table, files, schema, data)

        assert found == judged(_plain(lance.dataset(uri).to_table()), where, columns)


def test_a_range_of_a_fragment_is_read_without_the_rest(tmp_path: Path) -> None:
    uri = str(tmp_path / "source.lance")
    rows = pa.table({"n": list(range(100_000)), "text": [f"{n:0100}" for n in range(100_000)]})
    dataset = lance.write_dataset(rows, uri)
    dataset.delete("n % 7 = 0")
    source = source_of({"lance": {"uri": uri}})
    (file,), schema, table = fragments_of(source)
    before = _bytes_read()

    piece = Range(file=0, start=90_000, end=91_000)
    chunks = list(reader_for(source, STORAGE, (table,)).read(file, piece, schema, BatchSizing(60.0, scale=1.0)))

    assert [n for chunk in chunks for n in chunk.batch.column(0).to_pylist()] == [n for n in range(90_000, 91_000) if n % 7]
    assert _bytes_read() - before < file.size_bytes / 5


def _bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])
