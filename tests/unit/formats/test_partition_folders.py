"""Folders `key=value` are columns of the rows of every format."""

from __future__ import annotations

import datetime
import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from tests.support.reading import Row, check_exactly_once, files_source, open_reader, read_whole


def parquet(**columns: list[Any]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


#: The same rows, a = 1 and 2, in every format that has columns of its own.
TWO_ROWS = {
    "x.parquet": parquet(a=[1, 2]),
    "x.csv": b"a\n1\n2\n",
    "x.csv.gz": gzip.compress(b"a\n1\n2\n"),
    "x.json": b'{"a": 1}\n{"a": 2}\n',
    "x.json.gz": gzip.compress(b'{"a": 1}\n{"a": 2}\n'),
}
SOME = parquet(a=[1])


def put(folder: Path, files: dict[str, bytes]) -> str:
    for name, data in files.items():
        path = folder / "lake" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return f"{folder}/lake/"


def format_of(name: str) -> str:
    return name.split(".")[1]


def read(root: str, format: str = "parquet", **source: Any) -> list[Row]:
    reader = open_reader(format, **source)
    files, schema = reader.describe([root])
    return read_whole(reader, files, schema)


def refusal(root: str, format: str = "parquet", **source: Any) -> NeedsChange:
    with pytest.raises(NeedsChange) as refused:
        read(root, format, **source)
    return refused.value


@pytest.mark.parametrize("name", TWO_ROWS)
def test_folders_are_columns_of_every_format_with_the_types_of_csv(tmp_path: Path, name: str) -> None:
    root = put(tmp_path, {f"year={year}/country=NO/day=2025-01-05/zip=0{year}/{name}": TWO_ROWS[name] for year in (2024, 2025)})
    assert read(root, format_of(name)) == [
        {"a": a, "year": year, "country": "NO", "day": datetime.date(2025, 1, 5), "zip": f"0{year}"}
        for year in (2024, 2025)
        for a in (1, 2)
    ]


@pytest.mark.parametrize(
    "path", ["year=2025/country=NO/*.parquet", "year=2025/", "year=2025/country=NO/x.parquet", "**/*.parquet"]
)
def test_all_folders_on_the_path_count_however_the_source_names_it(tmp_path: Path, path: str) -> None:
    root = put(tmp_path, {"year=2025/country=NO/x.parquet": SOME})
    assert read(root + path) == [{"a": 1, "year": 2025, "country": "NO"}]


@pytest.mark.parametrize("name", TWO_ROWS)
def test_folders_that_are_to_be_ignored_are_no_columns(tmp_path: Path, name: str) -> None:
    root = put(tmp_path, {f"year=2025/{name}": TWO_ROWS[name], name: TWO_ROWS[name]})
    assert read(root, format_of(name), partitions="Ignore") == [{"a": 1}, {"a": 2}] * 2


def test_whole_files_have_the_columns_of_their_folders_too(tmp_path: Path) -> None:
    root = put(tmp_path, {"kind=png/a": b"a", "kind=pdf/b": b"bb"})
    columns = ["kind", "size"]
    assert read(root, "binary", columns=columns) == [{"kind": "pdf", "size": 2}, {"kind": "png", "size": 1}]
    where = "kind = 'pdf' and size > 0"
    assert read(root, "binary", columns=[*columns, "content"], where=where) == [{"kind": "pdf", "size": 2, "content": b"bb"}]


def test_null_and_encoded_values_are_what_was_written(tmp_path: Path) -> None:
    folders = ['n=1/t=a%2Fb%3D%C3%A9 "x"', "n=__HIVE_DEFAULT_PARTITION__/t=__HIVE_DEFAULT_PARTITION__", "n=-3/t="]
    root = put(tmp_path, {f"{folder}/x.parquet": SOME for folder in folders})
    found = sorted(((row["n"], row["t"]) for row in read(root)), key=str)
    assert found == [(-3, None), (1, 'a/b=é "x"'), (None, None)]


@pytest.mark.parametrize("name", ["x.csv", "x.json"])
def test_types_that_are_given_win(tmp_path: Path, name: str) -> None:
    root = put(tmp_path, {f"zip=7/hour=1/{name}": TWO_ROWS[name]})
    rows = read(root, format_of(name), types={"zip": "string", "hour": "decimal(4,2)", "a": "string"})
    assert [str(value) for value in rows[0].values()] == ["1", "7", "1.00"]
    error = refusal(root, format_of(name), types={"zip": "date"})
    assert "zip" in str(error)
    assert "source.files.types" in str(error)


def test_types_of_folders_may_be_given_for_parquet_and_no_others(tmp_path: Path) -> None:
    root = put(tmp_path, {"zip=7/x.parquet": SOME})
    assert read(root, types={"zip": "string"}) == [{"a": 1, "zip": "7"}]
    error = refusal(root, types={"a": "string"})
    assert error.reason == reasons.MANIFEST_INVALID
    assert "leave it out, or cast in a step" in str(error)


@pytest.mark.parametrize("name", TWO_ROWS)
def test_columns_and_where_name_folders_as_other_columns(tmp_path: Path, name: str) -> None:
    root = put(tmp_path, {f"year={year}/{name}": TWO_ROWS[name] for year in (2024, 2025)})
    assert read(root, format_of(name), columns=["year", "a"], where="year > 2024 and a = 2") == [{"year": 2025, "a": 2}]
    rows = read(root, format_of(name), columns=["a", "year"], where="year = 2024 or a = 2")
    assert [(row["year"], row["a"]) for row in rows] == [(2024, 1), (2024, 2), (2025, 2)]
    assert read(root, format_of(name), columns=["a"]) == [{"a": 1}, {"a": 2}] * 2


def test_columns_of_folders_alone_are_read_of_parquet_and_refused_of_text(tmp_path: Path) -> None:
    assert read(put(tmp_path / "p", {"year=2025/x.parquet": TWO_ROWS["x.parquet"]}), columns=["year"]) == [{"year": 2025}] * 2
    error = refusal(put(tmp_path / "c", {"year=2025/x.csv": TWO_ROWS["x.csv"]}), "csv", columns=["year"])
    assert "add one of a" in str(error)
    assert error.reason == reasons.MANIFEST_INVALID


@pytest.mark.parametrize(
    ("name", "data"),
    [("x.parquet", parquet(a=[1], year=[1999])), ("x.csv", b"a,year\n1,1999\n"), ("x.json", b'{"a": 1, "year": 1999}\n')],
)
def test_a_file_with_the_column_of_its_folder_is_refused_and_read_where_folders_are_ignored(
    tmp_path: Path, name: str, data: bytes
) -> None:
    root = put(tmp_path, {f"year=2025/{name}": data})
    assert "has a column 'year' itself" in str(refusal(root, format_of(name)))
    assert read(root, format_of(name), partitions="Ignore") == [{"a": 1, "year": 1999}]


def test_a_field_of_json_that_comes_up_after_the_sample_and_is_a_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = put(tmp_path, {"year=2025/x.json": b'{"a": 1}\n' * 30 + b'{"a": 1, "year": 1999}\n'})
    monkeypatch.setattr("checkpoint_formats.files.json.reader._SAMPLE_BYTES", 40)
    assert "has a column 'year' itself" in str(refusal(root, "json"))


@pytest.mark.parametrize(
    ("one", "other"), [("year=1", "."), ("year=1", "month=1"), ("year=1/month=1", "year=1"), ("a=1/b=1", "b=1/a=1")]
)
def test_files_in_folders_of_other_keys_are_refused_with_both_paths(tmp_path: Path, one: str, other: str) -> None:
    root = put(tmp_path, {f"{one}/x.parquet": SOME, f"{other}/y.parquet": SOME})
    error = refusal(root)
    assert error.reason == reasons.SOURCE_UNREADABLE
    assert all(part in str(error) for part in ("x.parquet", "y.parquet", "source.files.partitions: Ignore"))


@pytest.mark.parametrize(("folder", "problem"), [("a=1/a=2", "two of its folders"), ("a=%ff", "not UTF-8")])
def test_folders_that_tell_no_value_are_refused(tmp_path: Path, folder: str, problem: str) -> None:
    assert problem in str(refusal(put(tmp_path, {f"{folder}/x.parquet": SOME})))


def test_the_option_is_part_of_what_a_source_is() -> None:
    assert files_source("parquet").identity != files_source("parquet", partitions="Ignore").identity


@pytest.mark.parametrize("name", TWO_ROWS)
def test_every_row_comes_once_however_the_file_is_cut(tmp_path: Path, name: str) -> None:
    root = put(tmp_path, {f"year=2025/{name}": TWO_ROWS[name]})
    reader = open_reader(format_of(name))
    [file], schema = reader.describe([root])
    check_exactly_once(reader, file, schema, [1, 3], [1e-6], [{"a": 1, "year": 2025}, {"a": 2, "year": 2025}])
