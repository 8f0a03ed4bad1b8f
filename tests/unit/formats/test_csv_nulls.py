r"""Null values with the escape in them, as MySQL's \N, and text that ends with an escape."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_formats.files.csv import stream as csv_stream
from checkpoint_formats.files.csv.nulls import MarkedText, NullMarks
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.source import CsvOptions
from tests.support.reading import Row, open_reader, read_whole, whole

MYSQL = {"escape": "\\", "nullValues": ["\\N"]}


def read(folder: Path, text: str | bytes, options: Mapping[str, Any], *, name: str = "x.csv", **source: Any) -> list[Row]:
    data = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    reader = open_reader("csv", options=options, **source)
    files, schema = reader.describe([str(folder / name)])
    return read_whole(reader, files, schema)


@pytest.mark.parametrize("sets_apart", [False, True])
@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_a_null_value_with_the_escape_is_null_and_the_column_stays_one_of_numbers(
    tmp_path: Path, name: str, sets_apart: bool
) -> None:
    text = "id,n,t\n1,\\N,\\N\n\\N,2,x\n3,3,\\N"
    assert read(tmp_path, text, MYSQL, name=name, sets_apart=sets_apart) == [
        {"id": 1, "n": None, "t": None},
        {"id": None, "n": 2, "t": "x"},
        {"id": 3, "n": 3, "t": None},
    ]


def test_only_a_whole_field_without_quotes_that_is_spelled_so_is_the_null_value(tmp_path: Path) -> None:
    texts = ["\\N", '"\\N"', "\\\\N", "x\\N", "\\Nx", "N", "a\\,\\N", '"a\n\\N\n"', '"a,\\N,"', "\\\n\\N"]
    text = "t,n\n" + "".join(f"{each},1\r\n" for each in texts)
    assert [row["t"] for row in read(tmp_path, text, MYSQL)] == [
        None,
        "N",
        "\\N",
        "xN",
        "Nx",
        "N",
        "a,N",
        "a\nN\n",
        "a,N,",
        "\nN",
    ]


def test_without_quotes_a_null_value_with_the_escape_is_null_beside_others(tmp_path: Path) -> None:
    options = {"escape": "\\", "nullValues": ["\\N", "", "\\", "a,\\b", "NA"], "delimiter": "\t", "quote": ""}
    assert read(tmp_path, 't\tn\n"\\N"\t\\N\n\t1\nNA\t2\na,\\b\t3\n', options) == [
        {"t": '"N"', "n": None},
        {"t": None, "n": 1},
        {"t": None, "n": 2},
        {"t": None, "n": 3},
    ]


def test_a_null_value_that_no_field_can_be_is_of_no_field(tmp_path: Path) -> None:
    options = {"escape": "\\", "nullValues": ["\\", "a,\\b", '"\\N"']}
    assert read(tmp_path, 'a,b\n\\\\,"\\N"\n', options) == [{"a": "\\", "b": "N"}]


def test_a_header_that_is_spelled_as_the_null_value_is_a_name(tmp_path: Path) -> None:
    assert read(tmp_path, "\n\\N,b\n\\N,1\n", MYSQL) == [{"N": None, "b": 1}]
    assert read(tmp_path, "\\N,b\n", {**MYSQL, "header": False}) == [{"f0": None, "f1": "b"}]


def test_a_line_that_cannot_be_read_beside_null_values_is_named_as_it_stands_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(NeedsChange) as refused:
        read(tmp_path, "a,b\n1,\\N\n1,\\N,2\n", MYSQL)
    assert "got 3: 1,\\N,2" in refused.value.message

    path = tmp_path / "x.csv"
    reader = open_reader("csv", options=MYSQL, sets_apart=True)
    (file,), schema = reader.describe([str(path)])
    chunks = list(reader.read(file, whole(file), schema, BatchSizing(interval_s=60.0)))
    assert [row for chunk in chunks for row in chunk.batch.to_pylist()] == [{"a": 1, "b": None}]
    (failed,) = [chunk.failed.message for chunk in chunks if chunk.failed is not None]
    assert "(it begins '1,\\\\N,2')" in failed


def test_a_value_that_does_not_fit_its_column_is_quoted_once(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,x\none,y\n")
    reader = open_reader("csv", sets_apart=True, types={"a": "int64"})
    (file,), schema = reader.describe([str(path)])

    chunks = reader.read(file, whole(file), schema, BatchSizing(interval_s=60.0))

    (failed,) = [chunk.failed.message for chunk in chunks if chunk.failed is not None]
    assert "'one'" in failed
    assert "it begins" not in failed


def test_blocks_of_any_size_have_the_same_null_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a,b,c\n" + "".join(f'{n},\\N,"x\r\ny\\N"\r\n' if n % 3 else f"\\N,{n},\\\\N\r\n" for n in range(300))
    expected = read(tmp_path, text, MYSQL)
    assert sum(row["a"] is None for row in expected) == 100
    assert sum(row["b"] is None for row in expected) == 200
    assert {row["c"] for row in expected} == {"\\N", "x\r\nyN"}

    for size in (50, 51, 64, 100, 1000):
        monkeypatch.setattr(csv_stream, "_BLOCK_BYTES", size)
        assert read(tmp_path, text, MYSQL) == expected


@given(pieces=st.lists(st.sampled_from(["\\N", ",", "\n", "\r\n", '"', "\\", "x", '""']), max_size=40), size=st.integers(40, 60))
def test_a_text_that_is_marked_in_parts_is_the_one_that_is_marked_at_once(pieces: list[str], size: int) -> None:
    nulls = NullMarks(CsvOptions(escape="\\", null_values=("\\N",)))
    data = "".join(pieces).encode() + b"\n"
    parts = [data[at : at + 3] for at in range(0, len(data), 3)]
    marked = MarkedText(lambda _: parts.pop(0) if parts else b"", nulls, has_header=False)

    given = list(iter(lambda: marked.read(size), b""))

    assert b"".join(given) == nulls.into_rows(data)
    assert all(len(part) <= size for part in given)
    assert nulls.spelled_out(b"".join(given).decode()) == data.decode()


def test_a_field_that_is_longer_than_a_block_is_read_beside_null_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_stream, "_BLOCK_BYTES", 64)
    long = "x" * 5_000
    assert read(tmp_path, f'a,b\n\\N,"{long}\n"\n1,\\N\n', MYSQL) == [{"a": None, "b": f"{long}\n"}, {"a": 1, "b": None}]


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
@pytest.mark.parametrize("text", ["a,b\n1,\\", "a,b\n1,x\\\\\\", "a,b\\"])
@pytest.mark.parametrize("sets_apart", [False, True])
def test_text_that_ends_with_an_escape_is_refused_with_its_place(tmp_path: Path, text: str, name: str, sets_apart: bool) -> None:
    with pytest.raises(NeedsChange) as refused:
        read(tmp_path, text, {"escape": "\\"}, name=name, sets_apart=sets_apart)

    assert refused.value.reason == reasons.SOURCE_UNREADABLE
    assert f"{name}: its last byte, at byte {len(text) - 1} of its text, is the escape '\\\\'" in refused.value.message


def test_an_escaped_escape_or_line_break_may_end_a_text(tmp_path: Path) -> None:
    assert read(tmp_path, "a,b\n1,\\\\", {"escape": "\\"}) == [{"a": 1, "b": "\\"}]
    assert read(tmp_path, "a,b\n1,x\\\n", {"escape": "\\"}) == [{"a": 1, "b": "x\n"}]
