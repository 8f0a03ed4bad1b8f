"""Parquet by row number."""

from __future__ import annotations

import datetime
import os
import shutil
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_formats.rows import parquet_rows
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.rows.positions import Range
from tests.support.effort import examples
from tests.support.reading import Row, check_exactly_once, chunks_of, cut, open_reader, read_whole, rows_of, scales, whole

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us")),
        ("utc", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("list", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]))),
        ("map", pa.map_(pa.string(), pa.float64())),
    ]
)


def row(number: int) -> Row:
    """A row of all types, in which each column is NULL now and then."""
    at = datetime.datetime(2024, 1, 1, 0, 0, 0, number, tzinfo=datetime.UTC)
    values: Row = {
        "n": number,
        "text": f"é{number}",
        "bytes": bytes([number % 256, 0]),
        "price": Decimal(number) / 4,
        "at": at.replace(tzinfo=None),
        "utc": at,
        "day": at.date(),
        "list": [None, {"x": number, "y": ["a", None]}][: number % 3],
        "map": [("k", float(number))],
    }
    quantum = Decimal("0.01")
    values["price"] = values["price"].quantize(quantum)
    return {
        name: None if name != "n" and (number + index) % 5 == 0 else value for index, (name, value) in enumerate(values.items())
    }


def put(folder: Path, name: str, table: pa.Table, **options: Any) -> str:
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / name, **options)
    return str(folder / name)


def numbers(count: int, first: int = 0) -> pa.Table:
    return pa.table({"n": pa.array(range(first, first + count), pa.int64())})


def read(*paths: str, **source: Any) -> list[Row]:
    reader = open_reader("parquet", **source)
    files, schema = reader.describe(paths)
    return read_whole(reader, files, schema)


def refusal(*paths: str, **source: Any) -> NeedsChange:
    with pytest.raises(NeedsChange) as refused:
        read(*paths, **source)
    return refused.value


@settings(deadline=None, max_examples=examples(150))
@given(
    rows=st.integers(0, 60),
    group=st.integers(1, 70),
    together=st.sampled_from([1, 2_000, 32 << 20]),
    decode=st.sampled_from([1, 7, 65_536]),
    positions=st.lists(st.integers(0, 60), max_size=5),
    paces=scales,
)
def test_every_row_comes_once_however_the_file_is_cut(
    rows: int, group: int, together: int, decode: int, positions: list[int], paces: list[float]
) -> None:
    expected = [row(number) for number in range(rows)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_rows, "_TOGETHER_BYTES", together)
        patch.setattr(parquet_rows, "_DECODE_ROWS", decode)
        path = put(Path(folder), "é #%20.parquet", pa.Table.from_pylist(expected, SCHEMA), row_group_size=group)
        reader = open_reader("parquet")
        (file,), schema = reader.describe([path])
        assert schema == SCHEMA
        assert (file.unit, file.start, file.end) == ("rows", 0, rows)
        assert file.cuts == tuple(range(0, rows, group))
        check_exactly_once(reader, file, schema, positions, paces, expected)


def test_files_without_rows_or_row_groups(tmp_path: Path) -> None:
    put(tmp_path, "1.parquet", numbers(0))
    put(tmp_path, "2.parquet", numbers(3))
    with pq.ParquetWriter(tmp_path / "3.parquet", numbers(0).schema):
        pass
    with pq.ParquetWriter(tmp_path / "4.parquet", numbers(0).schema) as writer:
        for count in (0, 2, 0):
            writer.write_table(numbers(count, first=3))
    reader = open_reader("parquet")
    files, schema = reader.describe([str(tmp_path)])
    assert [file.end for file in files] == [0, 3, 0, 2]
    assert [found["n"] for found in read_whole(reader, files, schema)] == [0, 1, 2, 3, 4]


def test_large_rows_are_decoded_a_few_at_a_time(tmp_path: Path) -> None:
    """A row group of 100 MB must not become one batch."""
    table = pa.table({"n": range(100), "blob": [os.urandom(1 << 20) for _ in range(100)]})
    path = put(tmp_path, "x.parquet", table, compression="none")
    reader = open_reader("parquet")
    (file,), schema = reader.describe([path])
    sizes = [chunk.batch.num_rows for chunk in chunks_of(reader, file, whole(file), schema)]
    assert sum(sizes) == 100
    assert max(sizes) <= 20


def test_columns_are_pruned_in_the_order_asked_for(tmp_path: Path) -> None:
    path = put(tmp_path, "x.parquet", pa.Table.from_pylist([row(1)], SCHEMA))
    assert [list(found) for found in read(path, columns=["list", "n"])] == [["list", "n"]]
    assert read(path, columns=["list", "n"]) == [{"list": [None], "n": 1}]


def test_columns_whose_names_look_nested_are_not_mixed_up(tmp_path: Path) -> None:
    table = pa.table({"a": [{"b": 1}], "a.b": ["dotted"], "a.c": [2], "": ["nameless"]})
    path = put(tmp_path, "x.parquet", table)
    assert read(path) == [{"a": {"b": 1}, "a.b": "dotted", "a.c": 2, "": "nameless"}]
    assert read(path, columns=["a"]) == [{"a": {"b": 1}}]
    assert read(path, columns=["a.b"]) == [{"a.b": "dotted"}]


def test_encodings_and_nullability_are_no_part_of_the_type(tmp_path: Path) -> None:
    plain = pa.schema([("s", pa.string()), ("b", pa.binary()), ("l", pa.list_(pa.struct([("x", pa.string())])))])
    others = pa.schema(
        [
            pa.field(
                "l", pa.large_list(pa.field("element", pa.struct([("x", pa.large_string())]), nullable=False)), nullable=False
            ),
            pa.field("s", pa.dictionary(pa.int8(), pa.string()), nullable=False, metadata={"a": "b"}),
            pa.field("b", pa.large_binary()),
        ],
        metadata={"made": "by another writer"},
    )
    rows = [{"s": "x", "b": b"y", "l": [{"x": "z"}]}]
    put(tmp_path, "1.parquet", pa.Table.from_pylist(rows, plain))
    put(tmp_path, "2.parquet", pa.Table.from_pylist(rows, others))
    assert read(str(tmp_path)) == rows * 2
    for path in ("1.parquet", "2.parquet"):
        _, schema = open_reader("parquet").describe([str(tmp_path / path)])
        assert {field.name: field.type for field in schema} == {field.name: field.type for field in plain}
        assert all(field.nullable for field in schema)
        assert schema.metadata is None


@pytest.mark.parametrize(
    ("other", "rule", "parts"),
    [
        ({"n": pa.string()}, "Unite", ("has string in the column 'n'", "has int64 in the column 'n'", "cannot be united")),
        ({"n": pa.float64()}, "Unite", ("has double in the column 'n'", "has int64 in the column 'n'", "cannot be united")),
        ({"m": pa.int64()}, "Unite", ("has m, and", "has n: they have no column in common")),
        ({"n": pa.int32()}, "Same", ("has int32 in the column 'n'", "has int64 in the column 'n'", "schema: Unite")),
        ({"n": pa.int64(), "m": pa.int8()}, "Same", ("has int8 in the column 'm'", "has no column 'm'")),
    ],
)
def test_file_of_another_schema_is_named_with_the_first_and_the_column(
    tmp_path: Path, other: dict[str, pa.DataType], rule: str, parts: tuple[str, ...]
) -> None:
    put(tmp_path, "1.parquet", numbers(1))
    put(tmp_path, "2.parquet", numbers(1))
    put(tmp_path, "3.parquet", pa.schema(list(other.items())).empty_table())
    error = refusal(str(tmp_path), schema=rule)
    assert error.reason == reasons.SOURCE_UNREADABLE
    for part in ("1.parquet", "3.parquet", *parts):
        assert part in error.message


def test_columns_that_differ_harmlessly_are_united(tmp_path: Path) -> None:
    put(tmp_path, "1.parquet", pa.table({"n": pa.array([1], pa.int32()), "a": pa.nulls(1)}))
    put(tmp_path, "2.parquet", pa.table({"b": ["x"], "a": [1.5], "n": pa.array([1 << 40], pa.int64())}))
    put(tmp_path, "3.parquet", pa.table({"a": pa.array([2.5], pa.float32()), "n": pa.array([3], pa.int16())}))
    reader = open_reader("parquet")

    files, schema = reader.describe([str(tmp_path)])

    assert schema == pa.schema([("n", pa.int64()), ("a", pa.float64()), ("b", pa.string())])
    assert read_whole(reader, files, schema) == [
        {"n": 1, "a": None, "b": None},
        {"n": 1 << 40, "a": 1.5, "b": "x"},
        {"n": 3, "a": 2.5, "b": None},
    ]


def test_where_takes_rows_by_columns_that_not_every_file_has(tmp_path: Path) -> None:
    put(tmp_path, "1.parquet", pa.table({"n": [1, 2]}))
    put(tmp_path, "2.parquet", pa.table({"n": [3, 4], "kind": ["a", "b"]}))

    assert read(str(tmp_path), where="kind is null") == [{"n": 1, "kind": None}, {"n": 2, "kind": None}]
    assert read(str(tmp_path), where="kind = 'b'") == [{"n": 4, "kind": "b"}]


def test_a_file_that_has_none_of_the_columns_asked_for_is_named(tmp_path: Path) -> None:
    put(tmp_path, "1.parquet", pa.table({"n": [1], "m": [2]}))
    put(tmp_path, "2.parquet", pa.table({"n": [3]}))

    message = refusal(str(tmp_path), columns=["m"]).message

    assert "2.parquet has none of the columns of source.columns" in message
    assert "1.parquet has m" in message


def test_columns_that_are_not_asked_for_may_differ(tmp_path: Path) -> None:
    put(tmp_path, "1.parquet", numbers(1).append_column("x", pa.array([1])))
    put(tmp_path, "2.parquet", numbers(1, first=1).append_column("x", pa.array(["text"])))
    assert read(str(tmp_path), columns=["n"]) == [{"n": 0}, {"n": 1}]


def test_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    error = refusal(put(tmp_path, "x.parquet", numbers(1)), columns=["n", "x"])
    assert "has no column 'x' (it has n)" in error.message


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert "two columns 'a'" in refusal(put(tmp_path, "x.parquet", table)).message


def damaged(folder: Path, kind: str) -> None:
    path = folder / "2.parquet"
    data = path.read_bytes()
    path.write_bytes(
        {"empty": b"", "text": b"a,b\n1,2\n", "cut": data[:-20], "footer": data[:-30] + b"\xff" * 22 + data[-8:]}[kind]
    )


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "footer"])
def test_file_that_is_not_parquet_is_named(tmp_path: Path, kind: str) -> None:
    put(tmp_path, "1.parquet", numbers(10))
    put(tmp_path, "2.parquet", numbers(10))
    damaged(tmp_path, kind)
    error = refusal(str(tmp_path))
    assert error.reason == reasons.SOURCE_UNREADABLE
    assert "2.parquet: it cannot be read as Parquet" in error.message


def test_damaged_pages_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = put(tmp_path, "x.parquet", numbers(10_000), use_dictionary=False, compression="none", write_page_checksum=True)
    data = bytearray(Path(path).read_bytes())
    data[100:2_000] = b"\xff" * 1_900
    Path(path).write_bytes(data)
    error = refusal(path)
    assert error.reason == reasons.SOURCE_UNREADABLE
    assert "x.parquet: it cannot be read as Parquet" in error.message


def test_old_spark_timestamps_are_microseconds(tmp_path: Path) -> None:
    """As nanoseconds, those before 1677 and after 2262 would wrap (pyarrow's own writer does, so that none is written here)."""
    at = datetime.datetime(2024, 1, 1, 10, 0, 0, 5, tzinfo=datetime.UTC).replace(tzinfo=None)
    table = pa.table({"at": pa.array([at, None], pa.timestamp("us"))})
    path = put(tmp_path, "x.parquet", table, use_deprecated_int96_timestamps=True, store_schema=False)
    assert pq.read_schema(path).field("at").type == pa.timestamp("ns"), "not the old form"
    assert open_reader("parquet").describe([path])[1].field("at").type == pa.timestamp("us")
    assert read(path) == [{"at": at}, {"at": None}]


@pytest.mark.parametrize(
    ("groups", "position", "aligned"),
    [
        ([100] * 10, 0, 0),
        ([100] * 10, 90, 100),
        ([100] * 10, 110, 100),
        ([100] * 10, 89, 89),
        ([100] * 10, 111, 111),
        ([100] * 10, 995, 1000),
        ([1000], 500, 500),  # one row group: shared out all the same
        ([1] * 1000, 500, 500),
        ([6, 6], 5, 6),  # the nearer one
        ([], 0, 0),
    ],
)
def test_split_begins_at_the_nearest_row_group_within_the_slack(
    tmp_path: Path, groups: list[int], position: int, aligned: int
) -> None:
    with pq.ParquetWriter(tmp_path / "x.parquet", numbers(0).schema) as writer:
        for count in groups:
            writer.write_table(numbers(count))
    reader = open_reader("parquet")
    (file,), _ = reader.describe([str(tmp_path / "x.parquet")])
    assert reader.align(file, position, 10) == aligned


def test_splits_of_one_large_row_group_are_balanced(tmp_path: Path) -> None:
    reader = open_reader("parquet")
    (file,), _ = reader.describe([put(tmp_path, "x.parquet", numbers(1_000))])
    sizes = [(piece.end or 0) - piece.start for piece in cut(reader, file, range(125, 1_000, 125))]
    assert sizes == [125] * 8


def test_replaced_file_is_noticed_when_it_is_opened(tmp_path: Path) -> None:
    path = put(tmp_path, "x.parquet", numbers(5))
    reader = open_reader("parquet")
    (file,), schema = reader.describe([path])
    put(tmp_path, "y.parquet", numbers(5, first=5))
    (tmp_path / "y.parquet").rename(path)
    with pytest.raises(NeedsChange) as noticed:
        chunks_of(reader, file, whole(file), schema)
    assert noticed.value.reason == reasons.SOURCE_CHANGED
    assert file.etag in noticed.value.message


def test_only_the_rows_of_the_piece_are_given_across_row_groups(tmp_path: Path) -> None:
    path = put(tmp_path, "x.parquet", numbers(100), row_group_size=30)
    reader = open_reader("parquet")
    (file,), schema = reader.describe([path])
    for start, end in ((0, 1), (29, 31), (30, 60), (45, 95), (99, 100), (50, 50)):
        found = rows_of(chunks_of(reader, file, Range(file=0, start=start, end=end), schema))
        assert [row["n"] for row in found] == list(range(start, end))


TABLES = {
    "Delta": ("_delta_log/00000000000000000000.json", "source.spark with format: delta"),
    "Hudi": (".hoodie/hoodie.properties", "source.spark with format: hudi"),
    "Iceberg": ("metadata/00003-0b1a2c3d-0000-4000-8000-0123456789ab.metadata.json", "source.iceberg"),
    "Iceberg of Hadoop": ("metadata/v3.metadata.json", "source.iceberg"),
    "Iceberg, compressed": ("metadata/00000-0b1a2c3d-0000-4000-8000-0123456789ab.gz.metadata.json", "source.iceberg"),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("given", ["t/data", "t/data/*.parquet", "t/**/*.parquet", "*/data/", "t/data/one/x.parquet", "link"])
def test_files_in_the_folder_of_a_table_are_refused_and_its_source_is_named(tmp_path: Path, table: str, given: str) -> None:
    mark, source = TABLES[table]
    for number, name in enumerate(("t/data/one/x.parquet", "t/data/y.parquet")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"a": [number]}), tmp_path / name)
    (tmp_path / "link").symlink_to(tmp_path / "t" / "data")
    reader = open_reader("parquet")
    reader.describe([str(tmp_path / given)])
    (tmp_path / "t" / mark).parent.mkdir()
    (tmp_path / "t" / mark).write_text("{}")

    with pytest.raises(NeedsChange) as refused:
        reader.describe([str(tmp_path / given)])

    assert refused.value.reason == reasons.SOURCE_UNREADABLE
    assert f"{tmp_path.resolve()}/t is the folder of" in refused.value.message
    assert f"read the table by {source}, or copy the files to a folder of their own" in refused.value.message
    shutil.copytree(tmp_path / "t" / "data", tmp_path / "own")
    reader.describe([str(tmp_path / "own")])


@pytest.mark.parametrize("mark", ["metadata/about.json", "metadata/x.pdf.metadata.json", "other/_delta_log/0.json", "_SUCCESS"])
def test_what_only_looks_like_the_folder_of_a_table_is_read(tmp_path: Path, mark: str) -> None:
    (tmp_path / mark).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / mark).write_text("{}")
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "data" / "x.parquet")

    assert open_reader("parquet").describe([str(tmp_path / "data")])[1].names == ["a"]


@pytest.mark.parametrize("rows_in_a_group", [1, 2])
def test_a_file_of_which_arrow_gives_fewer_rows_than_its_footer_says_is_refused(tmp_path: Path, rows_in_a_group: int) -> None:
    """pyarrow 26 takes an empty first page of a list, which it writes where pages are tiny, for the end of the column."""
    path = tmp_path / "a.parquet"
    rows = pa.table({"v": pa.array([[1.5], [], None, [2.0], [1.0]], pa.list_(pa.float32()))})
    pq.write_table(rows, path, row_group_size=rows_in_a_group, data_page_size=1, use_dictionary=True)
    assert len(pq.read_table(path)) < 5

    with pytest.raises(NeedsChange, match="are missing, which it has as its footer says"):
        read(str(path))
