"""CSV: every row once however a file is cut, and nothing read wrongly without a word."""

from __future__ import annotations

import csv
import gzip
import io
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_formats.files import lines
from checkpoint_formats.files.csv import reader as csv_reader
from checkpoint_formats.files.csv import stream as csv_stream
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from tests.support.effort import examples
from tests.support.reading import (
    Row,
    check_exactly_once,
    chunks_of,
    cut,
    open_reader,
    read_whole,
    rows_of,
    scales,
    whole,
)

PATIENT = settings(deadline=None)
TEXT_ONLY = {"nullValues": ()}


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "multi.csv"])
@pytest.mark.parametrize("sets_apart", [False, True])
@pytest.mark.parametrize("rows", ["1\n\n2\n", "1\n\n", "\n1\n", "1\r\n\r\n2", "\n", "1\n\n\n\n2\n"])
def test_an_empty_line_of_one_column_is_refused_as_it_may_be_a_missing_value(
    tmp_path: Path, name: str, sets_apart: bool, rows: str
) -> None:
    path = tmp_path / name
    data = f"n\n{rows}".encode()
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    reader = open_reader("csv", sets_apart=sets_apart, options={"multiLine": name == "multi.csv"})

    with pytest.raises(NeedsChange, match="is empty, which in a file of one column may be a missing value") as refused:
        reader.describe([str(path)])

    assert refused.value.reason == reasons.SOURCE_UNREADABLE


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "multi.csv"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("rows", [b"\n1\n2\n", b"\r\n\r\n1\r\n", b"1\n\n2\n", b"\n", b"\n\n"])
def test_an_empty_line_of_one_column_without_a_header_is_refused_wherever_it_is(
    tmp_path: Path, name: str, mark: bytes, rows: bytes
) -> None:
    for file, data in ((f"1{name}", b"7\n"), (f"2{name}", mark + rows)):
        (tmp_path / file).write_bytes(gzip.compress(data) if file.endswith("gz") else data)
    reader = open_reader("csv", options={"header": False, "multiLine": name == "multi.csv"})

    def read_all() -> None:
        files, schema = reader.describe([str(tmp_path)])
        read_whole(reader, files, schema)

    with pytest.raises(NeedsChange, match=rf"2{name}: line at byte .* is empty") as refused:
        read_all()

    assert refused.value.reason == reasons.SOURCE_UNREADABLE


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "multi.csv"])
def test_files_without_any_byte_beside_one_column_without_a_header_have_no_rows(tmp_path: Path, name: str) -> None:
    for file, data in ((f"1{name}", b"7\n"), (f"2{name}", b""), (f"3{name}", b"\xef\xbb\xbf")):
        (tmp_path / file).write_bytes(gzip.compress(data) if file.endswith("gz") else data)
    reader = open_reader("csv", options={"header": False, "multiLine": name == "multi.csv"})

    files, schema = reader.describe([str(tmp_path)])

    assert [list(row.values()) for row in read_whole(reader, files, schema)] == [[7]]


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "multi.csv"])
def test_empty_lines_of_several_columns_and_before_the_header_are_no_rows(tmp_path: Path, name: str) -> None:
    for header, row, expected in (("a,b", "1,2", [{"a": 1, "b": 2}]), ("a", "1", [{"a": 1}])):
        path = tmp_path / name
        between = "\n" if "," in header else ""
        data = f"\n\n{header}\n{between}{row}\n{between}".encode()
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        reader = open_reader("csv", options={"multiLine": name == "multi.csv"})
        files, schema = reader.describe([str(path)])
        assert read_whole(reader, files, schema) == expected


def put(folder: Path, name: str, data: bytes | str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def read(*paths: str, **source: Any) -> list[Row]:
    reader = open_reader("csv", **source)
    files, schema = reader.describe(paths)
    return read_whole(reader, files, schema)


def schema_of(*paths: str, **source: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in open_reader("csv", **source).describe(paths)[1]}


def refusal(*paths: str, **source: Any) -> NeedsChange:
    with pytest.raises(NeedsChange) as refused:
        read(*paths, **source)
    return refused.value


# --- exactness ------------------------------------------------------------------------------------------------------------

_words = st.lists(st.sampled_from(["a", "é", "日", ",", '"', " ", "'", "\t", "x" * 150]), max_size=4).map("".join)
_breaks = st.sampled_from(["\n", "\r\n"])


@st.composite
def written_field(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> tuple[str, str]:
    """A value and one of the ways to write it."""
    value = draw(texts)
    bare = "," not in value and "\n" not in value and "\r" not in value and not value.startswith('"')
    if bare and draw(st.booleans()):
        return value, value  # also with quotes in it, which mean nothing there
    return value, '"' + value.replace('"', '""') + '"'


@st.composite
def csv_files(draw: st.DrawFn, texts: st.SearchStrategy[str] = _words) -> tuple[bytes, list[Row], bool]:
    """A file of two columns and what is in it: the number of the row, and a text."""
    header = draw(st.booleans())
    names = ("n", "text") if header else ("f0", "f1")
    parts = [draw(st.sampled_from(["", "\ufeff"])), draw(st.sampled_from(["", "\n"]))]
    if header:
        parts += [",".join(names), draw(_breaks)]
    rows = []
    for number in range(draw(st.integers(0 if header else 1, 12))):
        value, written = draw(written_field(texts))
        rows.append({names[0]: str(number), names[1]: value})
        parts += [f"{number},{written}", draw(_breaks), draw(st.sampled_from(["", "", "\n", "\r\n"]))]
    text = "".join(parts)
    return (text.rstrip("\r\n") if draw(st.booleans()) and rows else text).encode(), rows, header


positions = st.lists(st.integers(0, 2_000), max_size=5)


@settings(deadline=None, max_examples=examples(300))
@given(file=csv_files(), positions=positions, paces=scales)
def test_every_row_comes_once_however_the_file_is_cut(
    file: tuple[bytes, list[Row], bool], positions: list[int], paces: list[float]
) -> None:
    data, rows, header = file
    names = ("n", "text") if header else ("f0", "f1")
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), "é #%20.csv", data)
        reader = open_reader("csv", types=dict.fromkeys(names, "string"), options={"header": header, **TEXT_ONLY})
        (described,), schema = reader.describe([path])
        assert described.unit == "bytes"
        check_exactly_once(reader, described, schema, positions, paces, rows)


_lines = st.lists(st.sampled_from(["a", "é", ",", '"', "\n", "\r\n", "\n\n", "x" * 150]), max_size=6).map("".join)


@PATIENT
@given(file=csv_files(_lines), paces=scales, gzipped=st.booleans())
def test_every_row_of_fields_with_line_breaks_comes_once(
    file: tuple[bytes, list[Row], bool], paces: list[float], gzipped: bool
) -> None:
    data, rows, header = file
    names = ("n", "text") if header else ("f0", "f1")
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), "x.csv.gz", gzip.compress(data)) if gzipped else put(Path(folder), "x.csv", data)
        options = {"header": header, **TEXT_ONLY} | ({} if gzipped else {"multiLine": True})
        reader = open_reader("csv", types=dict.fromkeys(names, "string"), options=options)
        (described,), schema = reader.describe([path])
        assert (described.unit, described.start, described.end) == ("records", 0, None)
        check_exactly_once(reader, described, schema, [], paces, rows)


@settings(deadline=None, max_examples=examples(250))
@given(file=csv_files(_lines), positions=positions, paces=scales)
def test_line_break_in_a_field_is_refused_wherever_the_cuts_are(
    file: tuple[bytes, list[Row], bool], positions: list[int], paces: list[float]
) -> None:
    """Without multiLine. A write ends only if all its pieces were read, so one refusal anywhere is enough."""
    data, rows, header = file
    names = ("n", "text") if header else ("f0", "f1")
    if not any("\n" in row[names[1]] for row in rows):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), "x.csv", data)
        # Described as a file of the same rows without breaks, since describing looks at the first rows itself.
        put(Path(folder), "plain.csv", ("n,text\n" if header else "") + "0,a\n")
        reader = open_reader("csv", types=dict.fromkeys(names, "string"), options={"header": header, **TEXT_ONLY})
        _, schema = reader.describe([str(Path(folder) / "plain.csv")])
        described = described_by_hand(reader, path, data, data.index(b"0,") if rows else len(data))
        pieces = cut(reader, described, positions)
        with pytest.raises(NeedsChange, match="multiLine"):
            rows_of(chunk for piece in pieces for chunk in chunks_of(reader, described, piece, schema, paces))


def described_by_hand(reader: Any, path: str, data: bytes, start: int) -> SourceFile:
    head = SourceFiles(StorageSettings()).head(path)
    assert head is not None
    return SourceFile(path=path, etag=head.etag, size_bytes=len(data), unit="bytes", start=start, end=len(data))


def test_stray_quotes_do_not_hide_an_open_field(tmp_path: Path) -> None:
    """Two quotes in the line, and yet it ends inside a field: counting quotes would not do."""
    path = put(tmp_path, "x.csv", 'a,b\n5" pipe,"open\nend",1\n')
    assert "a quoted field does not end on its line" in refusal(path, types={"a": "string", "b": "string"}).message


def test_line_of_many_blocks_is_one_row(tmp_path: Path) -> None:
    long = "y" * (9 << 20)
    path = put(tmp_path, "x.csv", f"a,b\n1,x\n2,{long}\n3,z\n")
    reader = open_reader("csv")
    (file,), schema = reader.describe([path])
    chunks = chunks_of(reader, file, whole(file), schema, [2**-16])
    assert [chunk.batch.num_rows for chunk in chunks] == [1, 1, 1]
    assert rows_of(chunks)[1] == {"a": 2, "b": long}
    assert reader.align(file, 100, 0) == len(f"a,b\n1,x\n2,{long}\n")


def test_row_longer_than_a_block_of_compressed_text_is_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_HEADER_BLOCK_BYTES", "_SAMPLE_BLOCK_BYTES", "_BLOCK_BYTES"):
        monkeypatch.setattr(csv_stream, name, 64)
    long = "y" * 3_000
    rows = "".join(f"{number},{long if number % 7 == 5 else 'x'}\n" for number in range(40))
    path = put(tmp_path, "x.csv.gz", gzip.compress(f"a,b\n{rows}".encode()))
    assert [row["a"] for row in read(path)] == list(range(40))
    assert [len(row["b"]) for row in read(path)] == [3_000 if number % 7 == 5 else 1 for number in range(40)]


def test_row_of_compressed_text_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (csv_stream, lines):
        monkeypatch.setattr(module, "LONGEST_LINE_BYTES", 512)
    monkeypatch.setattr(csv_stream, "_BLOCK_BYTES", 64)
    path = put(tmp_path, "x.csv.gz", gzip.compress(b'a,b\n1,x\n2,"' + b"y\n" * 3_000))
    reader = open_reader("csv")
    (file,), schema = open_reader("csv").describe([put(tmp_path, "y.csv.gz", gzip.compress(b"a,b\n1,x\n"))])
    head = SourceFiles(StorageSettings()).head(path)
    assert head is not None
    file = SourceFile(path=path, etag=head.etag, size_bytes=head.size_bytes, unit="records", end=None)
    with pytest.raises(NeedsChange, match=r"x\.csv\.gz: near row 1: .*a quoted field in it has no end"):
        chunks_of(reader, file, whole(file), schema)


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_file_that_ends_inside_quotes_is_refused(tmp_path: Path, name: str) -> None:
    data = b'a,b\n1,x\n2,"open\n3,y\n'
    path = put(tmp_path, name, gzip.compress(data) if name.endswith(".gz") else data)
    message = refusal(path, types={"a": "string"}, options={"multiLine": name == "x.csv"}).message
    assert path in message
    assert "its last quoted field has no end" in message


@pytest.mark.parametrize("columns", [None, ["a"]])
@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('a,b\n1,5" pipe\n2,"unclosed\n3,foo\n4,bar\n', {"multiLine": True}),
        ('a,b\n1,"C:\\"\n2,foo\n3,bar\n', {"escape": "\\"}),
        ('a,b\n1,"""\n2,foo"\n3,"bar"\n4,"\n', {"multiLine": True}),
    ],
    ids=["a quote in text", "a path before the quote", "pairs"],
)
def test_file_that_ends_inside_quotes_is_refused_whatever_the_number_of_quotes(
    tmp_path: Path, text: str, options: dict[str, Any], columns: list[str] | None
) -> None:
    message = refusal(put(tmp_path, "x.csv", text), types={"a": "string"}, options=options, columns=columns).message
    assert "its last quoted field has no end" in message


def test_file_that_ends_inside_quotes_is_refused_also_in_a_column_of_numbers(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", 'a,b\n1,2\n2,"3\n')
    assert path in refusal(path, types={"b": "int64"}, options={"multiLine": True}).message


@pytest.mark.parametrize("columns", [None, ["a"]])
def test_line_break_at_the_end_of_the_last_field_is_part_of_it(tmp_path: Path, columns: list[str] | None) -> None:
    path = put(tmp_path, "x.csv", 'a,b\n1,"x\n"')
    row = {"a": 1, "b": "x\n"}
    assert read(path, options={"multiLine": True}, columns=columns) == [{name: row[name] for name in columns or row}]


def test_line_break_in_a_field_that_two_blocks_share_is_kept_whole(tmp_path: Path) -> None:
    start = 'a,b\n1,"'
    text = "x" * ((8 << 20) - len(start) - 1)
    path = put(tmp_path, "x.csv", f'{start}{text}\r\nend"\r\n2,y\r\n')

    first, second = read(path, options={"multiLine": True})

    assert first["b"] == f"{text}\r\nend"
    assert second == {"a": 2, "b": "y"}


@pytest.mark.parametrize("multi_line", [False, True])
def test_odd_quotes_inside_of_unquoted_text_are_text(tmp_path: Path, multi_line: bool) -> None:
    path = put(tmp_path, "x.csv", 'a,b\n1,5" pipe\n2,"ok"\n3,"1"" x"\n4,6" pipe')
    assert [row["b"] for row in read(path, options={"multiLine": multi_line})] == ['5" pipe', "ok", '1" x', '6" pipe']


def test_byte_order_mark_inside_of_a_file_is_text_in_every_cut(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", "\ufeffa,b\nx,1\n\ufeffy,2\n")
    reader = open_reader("csv")
    (file,), schema = reader.describe([path])
    for scale in (1.0, 2**-16 / 20):
        assert [row["a"] for row in rows_of(chunks_of(reader, file, whole(file), schema, [scale]))] == ["x", "\ufeffy"]


def test_several_members_of_a_gzip_file_are_one_text(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv.gz", gzip.compress(b"a,b\n1,") + gzip.compress(b"x\n2,y\n"))
    assert read(path) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


# --- options --------------------------------------------------------------------------------------------------------------


def test_delimiter_quote_and_null_values(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", "a|b|c\n'x|y'|-|NA\n-|'-'|\n")
    options = {"delimiter": "|", "quote": "'", "nullValues": ["-"]}
    assert read(path, options=options) == [{"a": "x|y", "b": None, "c": "NA"}, {"a": None, "b": "-", "c": ""}]


def test_the_empty_field_is_null_and_nothing_else_unless_it_is_named(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", 'a,b\n,1\n"",2\nNA,\nnull,3\nNULL,4\n')
    assert read(path) == [
        {"a": None, "b": 1},
        {"a": "", "b": 2},
        {"a": "NA", "b": None},
        {"a": "null", "b": 3},
        {"a": "NULL", "b": 4},
    ]


def test_null_values_that_are_named_are_null_unless_quoted(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", 'a,b\n,1\n"",2\nNA,\n"NA",NULL\nnull,3\n')
    assert read(path, options={"nullValues": ["", "NA", "null", "NULL"]}) == [
        {"a": None, "b": 1},
        {"a": "", "b": 2},
        {"a": None, "b": None},
        {"a": "NA", "b": None},
        {"a": None, "b": 3},
    ]


def test_no_quote_character(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", 'a,b\n"x,1\n"y",2\n')
    assert read(path, options={"quote": ""}) == [{"a": '"x', "b": 1}, {"a": '"y"', "b": 2}]


def test_escaped_text_is_read_from_the_start(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", "a,b\nx\\,y,1\nv\\\nw,2\n")
    reader = open_reader("csv", options={"escape": "\\"})
    (file,), schema = reader.describe([path])
    assert file.unit == "records"
    assert read_whole(reader, [file], schema) == [{"a": "x,y", "b": 1}, {"a": "v\nw", "b": 2}]


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": "é"},
        {"delimiter": "\n"},
        {"quote": "é"},
        {"escape": "\n"},
        {"delimiter": '"'},
        {"delimiter": "|", "quote": "|"},
        {"delimiter": "\\", "escape": "\\"},
    ],
)
def test_character_that_cannot_be_is_refused_before_any_file_is_read(options: dict[str, str]) -> None:
    with pytest.raises(NeedsChange) as refused:
        open_reader("csv", options=options)
    assert refused.value.reason == reasons.MANIFEST_INVALID


def test_a_quote_may_be_the_delimiter_where_there_is_no_quote_as_the_message_says(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", 'a"b\n1"x,y\n')

    with pytest.raises(NeedsChange, match="or set quote: '' if there is none"):
        read(path, options={"delimiter": '"'})

    assert read(path, options={"delimiter": '"', "quote": ""}) == [{"a": 1, "b": "x,y"}]


@pytest.mark.parametrize(
    ("name", "options", "unit"),
    [
        ("x.csv", {}, "bytes"),
        ("x.csv.gz", {}, "records"),
        ("X.CSV.GZ", {}, "records"),
        ("x.csv.gz", {"compression": "None"}, "bytes"),
        ("x.csv", {"compression": "Gzip"}, "records"),
        ("x.csv", {"multiLine": True}, "records"),
    ],
)
def test_unit_of_positions(tmp_path: Path, name: str, options: dict[str, Any], unit: str) -> None:
    gzipped = unit == "records" and "multiLine" not in options
    path = put(tmp_path, name, gzip.compress(b"a\n1\n") if gzipped else b"a\n1\n")
    reader = open_reader("csv", options=options)
    (file,), schema = reader.describe([path])
    assert file.unit == unit
    assert read_whole(reader, [file], schema) == [{"a": 1}]


def test_compression_that_is_not_supported_is_refused_by_name(tmp_path: Path) -> None:
    error = refusal(put(tmp_path, "x.csv.zst", "a\n1\n"))
    assert error.reason == reasons.SOURCE_UNREADABLE
    assert "x.csv.zst" in error.message
    assert read(str(tmp_path / "x.csv.zst"), options={"compression": "None"}) == [{"a": 1}]


@pytest.mark.parametrize("data", [b"plain text, not gzip", gzip.compress(b"a,b\n" + bytes(range(48, 58)) * 999, mtime=0)[:-9]])
def test_gzip_that_cannot_be_decompressed_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    error = refusal(put(tmp_path, "x.csv.gz", data))
    assert error.reason == reasons.SOURCE_UNREADABLE
    assert "x.csv.gz" in error.message


# --- columns and types ----------------------------------------------------------------------------------------------------


def test_columns_are_pruned_in_the_order_asked_for(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", "a,b,c\n1,x,2\n3,y,4\n")
    for options in ({}, {"multiLine": True}):
        assert [list(row.items()) for row in read(path, columns=["c", "a"], options=options)] == [
            [("c", 2), ("a", 1)],
            [("c", 4), ("a", 3)],
        ]


def test_columns_that_are_not_asked_for_need_not_fit_any_type(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", b"a,b\n1,\xff\n")
    assert read(path, columns=["a"]) == [{"a": 1}]


def test_types_are_inferred_over_the_first_files(tmp_path: Path) -> None:
    files = {
        "1": "i,d,s,day,at,none,b,t\n1,1,1,2024-01-01,2024-01-01,,true,12:00:00\n",
        "2": "i,d,s,day,at,none,b,t\n2,1.5,x,2024-01-02,2024-01-01T10:00:00.5,,false,13:00:00\n",
    }
    for name, text in files.items():
        put(tmp_path, name, text)
    assert schema_of(str(tmp_path)) == {
        "i": "int64",
        "d": "double",
        "s": "string",
        "day": "date32[day]",
        "at": "timestamp[us]",
        "none": "string",
        "b": "bool",
        "t": "string",
    }
    assert [str(row["at"]) for row in read(str(tmp_path))] == ["2024-01-01 00:00:00", "2024-01-01 10:00:00.500000"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("2024-01-01T10:00:00Z", "timestamp[us, tz=UTC]"),
        ("2024-01-01 10:00:00.123456", "timestamp[us]"),
        ("2024-01-01 10:00:00.123456789", "timestamp[ns]"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"multiLine": True}])
def test_timestamps_have_room_for_fractions(tmp_path: Path, value: str, kind: str, options: dict[str, Any]) -> None:
    path = put(tmp_path, "x.csv", f"a,b\n1,{value}\n2,\n")
    assert schema_of(path, options=options)["b"] == kind
    assert read(path, options=options)[0]["b"] is not None


@pytest.mark.parametrize("options", [{}, {"multiLine": True}])
@pytest.mark.parametrize(
    ("values", "kind", "read_as"),
    [
        (["1", "12345678901234567891"], "decimal128(38, 0)", [Decimal(1), Decimal(12345678901234567891)]),
        (["1" * 38, ""], "decimal128(38, 0)", [Decimal("1" * 38), None]),
        (["1" * 39, "2"], "string", ["1" * 39, "2"]),
        (["1.5", "12345678901234567891"], "string", ["1.5", "12345678901234567891"]),
        (["1.5", "9007199254740993"], "string", ["1.5", "9007199254740993"]),
        (["004", "00501"], "string", ["004", "00501"]),
        (["+49301234", "1"], "string", ["+49301234", "1"]),
        (["12E45", "1"], "string", ["12E45", "1"]),
        ([" 5", "1"], "string", [" 5", "1"]),
        (["10:30", ""], "string", ["10:30", None]),
        (["1.50", "2.25"], "double", [1.5, 2.25]),
        (["3.9", "3.10"], "string", ["3.9", "3.10"]),
        (["0xffffffffffffffff", "1"], "string", ["0xffffffffffffffff", "1"]),
        (["12e4567", "1234567"], "string", ["12e4567", "1234567"]),
        (["inf", "1e+16"], "double", [float("inf"), 1e16]),
    ],
)
def test_what_is_no_number_as_it_is_written_is_not_read_as_another_one(
    tmp_path: Path, values: list[str], kind: str, read_as: list[Any], options: dict[str, Any]
) -> None:
    path = put(tmp_path, "x.csv", "a,n\n" + "".join(f"{number},{value}\n" for number, value in enumerate(values)))
    assert schema_of(path, options=options)["n"] == kind
    assert [row["n"] for row in read(path, options=options)] == read_as


def test_large_integers_of_one_file_are_the_type_of_all(tmp_path: Path) -> None:
    put(tmp_path, "1", "n\n1\n")
    put(tmp_path, "2", "n\n12345678901234567891\n")
    assert [row["n"] for row in read(str(tmp_path))] == [Decimal(1), Decimal(12345678901234567891)]


def test_types_that_are_given_win(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", "a,b,c,d\n007,1.10,2024-01-01 00:00:00,x\n")
    types = {"a": "string", "b": "decimal(5, 2)", "c": "timestamp[ms]"}
    for options in ({}, {"multiLine": True}):
        assert schema_of(path, types=types, options=options) == {
            "a": "string",
            "b": "decimal128(5, 2)",
            "c": "timestamp[ms]",
            "d": "string",
        }
        assert read(path, types=types, options=options)[0]["a"] == "007"


LATER = {
    "a leading zero": ("7", "007"),
    "a sign": ("7", "+7"),
    "a space": ("7", " 7"),
    "another base": ("7", "0xffffffff"),
    "a negative zero": ("7", "-0"),
    "a fraction": ("7", "7.0"),
    "64 bits are too few": ("7", "9223372036854775808"),
    "a large integer in doubles": ("1.5", "9007199254740993"),
    "too many digits": ("1.5", "0.300000000000000041"),
    "an exponent": ("1.5", "12E45"),
    "no point": ("1.5", ".5"),
    "another truth": ("true", "1"),
    "no day": ("2024-01-01", "2024-1-5"),
    "no time": ("2024-01-01 10:00", "2024-01-01 10"),
    "another zone": ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00+02:00"),
    "a fraction of a large integer": ("12345678901234567891", "1.0"),
}


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize(("first", "later"), LATER.values(), ids=LATER)
def test_later_text_that_its_type_would_change_is_refused_and_read_where_the_type_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, later: str, gzipped: bool
) -> None:
    monkeypatch.setattr(csv_reader, "_SAMPLE_BYTES", 50)
    monkeypatch.setattr(csv_stream, "_SAMPLE_BLOCK_BYTES", 50)
    data = ("a,n\n" + f"1,{first}\n" * 50 + f"2,{later}\n").encode()
    path = put(tmp_path, "x.csv.gz", gzip.compress(data)) if gzipped else put(tmp_path, "x.csv", data)

    refused = refusal(path)

    assert refused.reason == reasons.SOURCE_UNREADABLE
    for part in (
        "column 'n'",
        repr(later),
        "source.files.types",
        "near row 0" if gzipped else f"line at byte {data.index(b'2,')}",
    ):
        assert part in refused.message
    assert read(path, types={"n": "string"})[-1] == {"a": 2, "n": later}


@pytest.mark.parametrize(
    ("given", "text", "value"),
    [("int64", "007", 7), ("double", "9007199254740993", 9007199254740992.0), ("double", "12E45", 12e45), ("bool", "1", True)],
)
def test_a_type_that_is_given_reads_what_an_inferred_one_would_refuse(
    tmp_path: Path, given: str, text: str, value: object
) -> None:
    assert read(put(tmp_path, "x.csv", f"n\n{text}\n"), types={"n": given}) == [{"n": value}]


@pytest.mark.parametrize("options", [{}, {"multiLine": True}])
def test_later_value_that_does_not_fit_names_file_place_column_and_way_out(tmp_path: Path, options: dict[str, Any]) -> None:
    path = put(tmp_path, "x.csv", "id,amount\n" + "1,2\n" * 3_000_000 + "1,2.5\n" + "1,2\n" * 1_000_000)
    error = refusal(path, options=options)
    assert error.reason == reasons.SOURCE_UNREADABLE
    where = "near row 2" if options else "line at byte 12000010"
    for part in (path, where, "'amount'", "2.5", "source.files.types"):
        assert part in error.message


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    error = refusal(put(tmp_path, "x.csv", b"a,b\n1,\xe9\n"))
    assert "UTF-8" in error.message
    assert "'b'" in error.message
    assert read(str(tmp_path / "x.csv"), types={"b": "binary"}) == [{"a": 1, "b": b"\xe9"}]


@pytest.mark.parametrize("options", [{}, {"multiLine": True}])
def test_header_that_is_not_utf8_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    error = refusal(put(tmp_path, "x.csv", b"a,\xe9\n1,2\n"), options=options)
    assert error.reason == reasons.SOURCE_UNREADABLE
    assert "x.csv: its first line" in error.message


def test_line_with_another_number_of_fields_is_named(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", "a,b\n1,2\n3,4,5\n")
    assert "line at byte 8: CSV parse error: Expected 2 columns, got 3" in refusal(path).message


# --- headers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize(
    ("header", "source", "difference"),
    [
        ("7,8", {}, "they have no column in common"),
        ("a,b,c", {"schema": "Same"}, "has a column 'c'"),
        ("a", {"schema": "Same"}, "has no column 'b'"),
        ("a,B", {"schema": "Same"}, "has no column 'b'"),
        ("1,2,3", {"options": {"header": False}}, "it has 3 columns"),
    ],
)
def test_file_with_another_header_is_named(
    tmp_path: Path, header: str, source: dict[str, Any], difference: str, gzipped: bool
) -> None:
    for name, text in (("1.csv", "a,b\n"), ("2.csv", ""), ("3.csv", "a,b\n1,2\n"), ("4.csv", f"{header}\n{header}\n")):
        if gzipped:
            put(tmp_path, f"{name}.gz", gzip.compress(text.encode()))
        else:
            put(tmp_path, name, text)
    error = refusal(str(tmp_path), **source)
    assert error.reason == reasons.SOURCE_UNREADABLE
    for part in ("4.csv", "1.csv", difference):
        assert part in error.message


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("sets_apart", [False, True])
def test_columns_are_united_by_the_names_in_the_first_lines(tmp_path: Path, gzipped: bool, sets_apart: bool) -> None:
    texts = ("a,b\n1,x\n", "c,b,a\n0.5,y,2\n", "b\nz\n", "d,a\n007,3\n")
    for number, text in enumerate(texts):
        put(tmp_path, f"{number}.csv{'.gz' if gzipped else ''}", gzip.compress(text.encode()) if gzipped else text)
    reader = open_reader("csv", sets_apart=sets_apart)

    files, schema = reader.describe([str(tmp_path)])

    assert {field.name: str(field.type) for field in schema} == {"a": "int64", "b": "string", "c": "double", "d": "string"}
    assert [list(row.values()) for row in read_whole(reader, files, schema)] == [
        [1, "x", None, None],
        [2, "y", 0.5, None],
        [None, "z", None, None],
        [3, None, None, "007"],
    ]


def test_a_column_that_only_a_late_file_has_is_sampled_there(tmp_path: Path) -> None:
    for number in range(9):
        put(tmp_path, f"{number}.csv", "a\n1\n" if number < 8 else "a,late\n1,2024-01-05\n")

    assert schema_of(str(tmp_path)) == {"a": "int64", "late": "date32[day]"}


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("gzipped", [False, True])
def test_header_without_rows_is_a_file_without_rows(tmp_path: Path, end: str, gzipped: bool) -> None:
    data = f"a,b{end}".encode()
    path = put(tmp_path, "x.csv.gz", gzip.compress(data)) if gzipped else put(tmp_path, "x.csv", data)
    assert schema_of(path) == {"a": "string", "b": "string"}
    assert read(path) == []


@pytest.mark.parametrize("name", ["empty.csv", "empty.csv.gz"])
def test_file_without_text_has_no_rows_and_no_columns_to_compare(tmp_path: Path, name: str) -> None:
    data = b"\r\n\n"
    put(tmp_path, name, gzip.compress(data) if name.endswith(".gz") else data)
    put(tmp_path, "null.csv", b"")
    put(tmp_path, "x.csv", "a\n1\n")
    assert read(str(tmp_path)) == [{"a": 1}]


def test_source_without_any_text_is_refused_because_its_columns_are_unknown(tmp_path: Path) -> None:
    assert "the columns are not known" in refusal(put(tmp_path, "x.csv", "")).message


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    assert "two columns are called 'a'" in refusal(put(tmp_path, "x.csv", "a,b,a\n1,2,3\n")).message


@pytest.mark.parametrize(("field", "value"), [("columns", ["a", "x"]), ("types", {"x": "int64"})])
def test_column_that_is_not_there_is_named(tmp_path: Path, field: str, value: Any) -> None:
    error = refusal(put(tmp_path, "x.csv", "a,b\n1,2\n"), **{field: value})
    assert "has no column 'x' (it has a, b)" in error.message
    assert {"columns": "source.columns", "types": "source.files.types"}[field] in error.message


@pytest.mark.parametrize("header", [True, False])
def test_what_one_file_begins_with_says_nothing_of_another(tmp_path: Path, header: bool) -> None:
    """As each of them alone, in any order: with and without line breaks, blank lines and byte order marks."""
    texts = (
        "a,b\n1,2\n",
        "a,b",
        "a,b\r\n1,2\n",
        "\n\na,b\n1,2",
        "\ufeffa,b\n3,4\n",
        "",
        "\n",
        "a,b\n",
        "a,b\n\n1,2\n",
        "a,b\n1,2\n",
    )
    plain = put(tmp_path, "z.csv", "a,b\n1,2\n")  # looked at last
    for order in (1, -1):
        folder = tmp_path / f"order {order}"
        paths = [put(folder, f"{number}.csv", text) for number, text in enumerate(texts[::order])]

        together, _ = open_reader("csv", options={"header": header}).describe([*paths, plain])

        alone = [open_reader("csv", options={"header": header}).describe([path, plain])[0][0] for path in paths]
        assert list(together[:-1]) == alone


def test_header_with_line_breaks_in_names(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", '"a\nb",c\n1,2\n')
    assert "multiLine" in refusal(path).message
    assert read(path, options={"multiLine": True}) == [{"a\nb": 1, "c": 2}]


def test_lines_that_end_in_returns_alone_are_refused(tmp_path: Path) -> None:
    assert "\\r alone" in refusal(put(tmp_path, "x.csv", "a,b\r1,2\r")).message


# --- the file changes -----------------------------------------------------------------------------------------------------


def test_replaced_file_is_noticed_when_it_is_opened(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", "a\n1\n")
    reader = open_reader("csv")
    (file,), schema = reader.describe([path])
    put(tmp_path, "y.csv", "a\n2\n")
    (tmp_path / "y.csv").rename(path)
    with pytest.raises(NeedsChange) as noticed:
        chunks_of(reader, file, whole(file), schema)
    assert noticed.value.reason == reasons.SOURCE_CHANGED
    with pytest.raises(NeedsChange):
        reader.check_unchanged(file)


def test_file_cut_short_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", "a\n" + "1\n" * 5_000_000)
    reader = open_reader("csv")
    (file,), schema = reader.describe([path])
    chunks = reader.read(file, Range(file=0, start=file.start, end=file.end), schema, BatchSizing(60.0))
    next(chunks)
    with open(path, "r+b") as opened:
        opened.truncate(4_000_000)
    with pytest.raises(NeedsChange) as noticed:
        list(chunks)
    assert noticed.value.reason == reasons.SOURCE_CHANGED


def test_python_agrees_on_the_rows(tmp_path: Path) -> None:
    """Not only our own idea of CSV: the standard library writes and reads the same."""
    rows = [[str(number), f'x "{number}", é', "a\nb" if number % 3 else ""] for number in range(50)]
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL).writerows([["n", "text", "more"], *rows])
    path = put(tmp_path, "x.csv", buffer.getvalue())
    types = dict.fromkeys(("n", "text", "more"), "string")
    assert [list(row.values()) for row in read(path, types=types, options={"multiLine": True})] == rows


def test_schema_has_no_metadata_and_all_columns_are_optional(tmp_path: Path) -> None:
    _, schema = open_reader("csv").describe([put(tmp_path, "x.csv", "a\n1\n")])
    assert schema.equals(pa.schema([("a", pa.int64())]), check_metadata=True)


AFTER_QUOTE = "text follows the closing quote of a field"
ESCAPE_HINT = "set source.files.csv.escape: '\\'"
WAYS_OF_READING = [
    ("x.csv", {}, "line at byte 12: "),
    ("x.csv.gz", {}, "near row 0: "),
    ("x.csv", {"multiLine": True}, "near row 0: "),
]


@pytest.mark.parametrize(("name", "options", "place"), WAYS_OF_READING)
@pytest.mark.parametrize("types", [{}, {"a": "int64", "b": "string"}], ids=["inferred", "given"])
def test_a_field_that_goes_on_after_its_closing_quote_is_no_row_and_the_escape_is_named(
    tmp_path: Path, name: str, options: dict[str, Any], place: str, types: dict[str, str]
) -> None:
    """Spark, MySQL and OpenCSV write quotes in a field so; by default pyarrow makes `say \\hi\\""` of it."""
    text = 'a,b\n1,plain\n2,"say \\"hi\\""\n'
    path = put(tmp_path, name, gzip.compress(text.encode()) if name.endswith(".gz") else text)

    message = refusal(path, options=options, types=types).message

    assert f"{place}{AFTER_QUOTE}: as \\ stands before it, {ESCAPE_HINT}" in message
    assert path in message
    assert read(path, options={**options, "escape": "\\"}, types=types) == [{"a": 1, "b": "plain"}, {"a": 2, "b": 'say "hi"'}]


@pytest.mark.parametrize("text", ['"x"y', '"x" ', '"x""y"z', '"a,b"c', '"a "b" c"', '""x', '"x\\"y"'])
@pytest.mark.parametrize(("name", "options", "place"), WAYS_OF_READING)
def test_text_after_a_closing_quote_is_found_in_every_field(
    tmp_path: Path, text: str, name: str, options: dict[str, Any], place: str
) -> None:
    for row in (f"{text},1,2", f"1,{text},2", f"1,2,{text}"):
        lines = f"a,b,c\n0,0,0\n{row}\n1,1,1\n"
        path = put(tmp_path, name, gzip.compress(lines.encode()) if name.endswith(".gz") else lines)
        assert AFTER_QUOTE in refusal(path, options=options, types={"a": "string", "b": "string", "c": "string"}).message


def test_text_after_a_closing_quote_is_found_wherever_blocks_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f'{number},"a ""b"", {"x" * (number % 7)}"\n' for number in range(40))
    for size_bytes in (16, 33, 64):
        monkeypatch.setattr(csv_stream, "_BLOCK_BYTES", size_bytes)
        whole_file = put(tmp_path, "x.csv.gz", gzip.compress(f"n,t\n{rows}".encode()))
        assert len(read(whole_file)) == 40
        wrong = put(tmp_path, "y.csv.gz", gzip.compress(f'n,t\n{rows}40,"x"y\n'.encode()))
        assert AFTER_QUOTE in refusal(wrong, types={"t": "string", "n": "int64"}).message


def test_a_header_that_goes_on_after_a_closing_quote_is_refused(tmp_path: Path) -> None:
    for name, options in (("x.csv", {}), ("x.csv", {"multiLine": True})):
        path = put(tmp_path, name, '"a \\"b\\"",c\n1,2\n')
        assert AFTER_QUOTE in refusal(path, options=options).message
        assert read(path, options={**options, "escape": "\\"}) == [{'a "b"': 1, "c": 2}]


def test_quotes_inside_of_unquoted_text_and_without_quoting_are_text(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", 'a,b\n5" pipe,a"b"c\n')
    assert read(path) == [{"a": '5" pipe', "b": 'a"b"c'}]
    path = put(tmp_path, "y.csv", 'a,b\n"x"y,1\n')
    assert read(path, options={"quote": ""}) == [{"a": '"x"y', "b": 1}]
