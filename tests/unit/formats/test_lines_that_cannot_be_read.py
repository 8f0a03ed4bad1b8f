"""Lines of text that cannot be read: each is found with its place, and those around it are read, however the file is cut."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_formats.files.csv import records as csv_records
from checkpoint_formats.files.csv import stream as csv_stream
from checkpoint_formats.files.parsing import BadLine
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from tests.support.effort import examples
from tests.support.reading import Row, chunks_of, cut, open_reader, scales, whole

#: What stands in a file, and what is read of it: a row, or None where the line cannot be read.
CSV_LINES: dict[str, Row | None] = {
    "1,x": {"n": 1, "text": "x"},
    '2,"a, b"': {"n": 2, "text": "a, b"},
    '3,"say ""hi"""': {"n": 3, "text": 'say "hi"'},
    "one,x": None,
    "4": None,
    "5,x,y": None,
    '6,"x",y': None,
    '15,"x"y': None,
    '"",",",""': None,
}
JSON_LINES: dict[str, Row | None] = {
    '{"n": 1, "text": "x"}': {"n": 1, "text": "x"},
    '{"text": "\\n"}': {"n": None, "text": "\n"},
    '{"n": "one", "text": "x"}': None,
    '{"n": 1, "text": ': None,
    '{"n": 1}{"n": 2}': None,
    "[1, 2]": None,
    "no json": None,
}
KINDS = {"csv": ("n,text\n0,first\n", CSV_LINES), "json": ('{"n": 0, "text": "first"}\n', JSON_LINES)}
FIRST = {"n": 0, "text": "first"}


def put(folder: Path | str, name: str, data: bytes | str) -> str:
    path = Path(folder) / name
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    return str(path)


def found_in(
    kind: str, path: str, positions: list[int], paces: list[float], rows: tuple[int, int | None] | None = None, **source: Any
) -> list[Row | str]:
    """Return the rows, and for each line that cannot be read what the file has at its place."""
    reader = open_reader(kind, sets_apart=True, types={"n": "int64"}, **source)
    (file,), schema = reader.describe([path])
    found: list[Row | str] = []
    pieces = [whole(file)] if file.end is None else cut(reader, file, positions)
    for piece in pieces if rows is None else [Range(file=0, start=rows[0], end=rows[1])]:
        for chunk in chunks_of(reader, file, piece, schema, paces):
            found += chunk.batch.to_pylist()
            if chunk.failed is not None:
                assert isinstance(chunk.failed, BadLine)
                assert chunk.batch.num_rows == 0
                ((start, end),) = chunk.bounds()
                assert start == chunk.start
                found.append(
                    Path(path).read_bytes()[start:end].decode().rstrip("\r\n") if file.unit == "bytes" else f"row {start}"
                )
    return found


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=examples(25))
@given(data=st.data(), positions=st.lists(st.integers(0, 200), max_size=3), paces=scales)
def test_each_line_that_cannot_be_read_is_told_at_its_place_and_the_others_are_read_however_the_file_is_cut(
    kind: str, data: st.DataObject, positions: list[int], paces: list[float]
) -> None:
    head, choices = KINDS[kind]
    chosen = data.draw(st.lists(st.sampled_from(sorted(choices)), max_size=12))
    text = head + "".join(line + data.draw(st.sampled_from(["\n", "\r\n", "\n\n"])) for line in chosen)
    expected = [FIRST, *(choices[line] or line for line in chosen)]
    with tempfile.TemporaryDirectory() as folder:
        assert found_in(kind, put(folder, f"x.{kind}", text), positions, paces) == expected
        numbered = [FIRST, *(choices[line] or f"row {number}" for number, line in enumerate(chosen, 1))]
        assert found_in(kind, put(folder, f"x.{kind}.gz", text), positions, paces) == numbered


#: The same of files that are read from their start: here a field may have line breaks in it.
RECORDS: dict[str, Row | None] = CSV_LINES | {
    '7,"two\nlines"': {"n": 7, "text": "two\nlines"},
    '8,"\r\n,\n"" \n"': {"n": 8, "text": '\r\n,\n" \n'},
    '9,5" pipe': {"n": 9, "text": '5" pipe'},
    "10,\ufeff": {"n": 10, "text": "\ufeff"},
    f'11,"{"日" * 90}"': {"n": 11, "text": "日" * 90},
    '"one\n,two",x': None,
    '12,"\n",\n': None,
    "\ufeff13,x": None,
    '14,"x\n" y,"\n"': None,
}
ESCAPED: dict[str, Row | None] = RECORDS | {
    "20,a\\,b": {"n": 20, "text": "a,b"},
    "21,a\\\nb": {"n": 21, "text": "a\nb"},
    '22,"a\\"\nb"': {"n": 22, "text": 'a"\nb'},
    "one\\\n,b": None,
    "23,\\\r,\\\n,x": None,
}


@pytest.mark.parametrize(("name", "options"), [("x.csv.gz", {}), ("x.csv", {"multiLine": True}), ("x.csv", {"escape": "\\"})])
@settings(deadline=None, max_examples=examples(25))
@given(data=st.data(), paces=scales, block_bytes=st.sampled_from([24, 64, 300, 8 << 20]))
def test_each_row_that_cannot_be_read_of_a_file_read_from_its_start_is_told_by_its_number_however_blocks_fall(
    name: str, options: dict[str, Any], data: st.DataObject, paces: list[float], block_bytes: int
) -> None:
    choices = ESCAPED if options.get("escape") else RECORDS
    chosen = data.draw(st.lists(st.sampled_from(sorted(choices)), max_size=12))
    breaks = st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\r\r\n"])
    text = "n,text\n0,first\n" + "".join(line + data.draw(breaks) for line in chosen)
    expected = [FIRST, *(choices[line] or f"row {number}" for number, line in enumerate(chosen, 1))]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        for constant in ("_HEADER_BLOCK_BYTES", "_SAMPLE_BLOCK_BYTES", "_BLOCK_BYTES", "_RECORDS_BLOCK_BYTES"):
            patched.setattr(csv_stream, constant, block_bytes)
        path = put(folder, name, text.rstrip("\r\n") if data.draw(st.booleans()) else text)
        assert found_in("csv", path, [], paces, options=options) == expected
        number = data.draw(st.integers(0, len(chosen)))
        assert found_in("csv", path, [], paces, rows=(number, number + 1), options=options) == [expected[number]]
        assert found_in("csv", path, [], paces, rows=(number, None), options=options) == expected[number:]


@pytest.mark.parametrize("line", ['{"n": 1}{"n": 2}', '{"n": 1} null', 'null {"n": 2}', '{"text": "}{"}{"n": 2}'])
@pytest.mark.parametrize("made_up_for", ["\n\n", '\n{"n":\n3}\n'], ids=["a_blank_line", "an_object_of_two_lines"])
def test_two_objects_in_a_line_are_no_rows_though_there_are_as_many_rows_as_lines(
    tmp_path: Path, line: str, made_up_for: str
) -> None:
    text = KINDS["json"][0] + line + made_up_for
    found = found_in("json", put(tmp_path, "x.json", text), [], [1.0])
    assert found[:2] == [FIRST, line]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_what_looks_like_two_objects_inside_of_a_text_is_one(tmp_path: Path, end: str) -> None:
    text = '{"n": 0, "text": "a} b {"}' + end + '{"n": 1, "text": "}{"}\n'
    rows = [{"n": 0, "text": "a} b {"}, {"n": 1, "text": "}{"}]
    assert found_in("json", put(tmp_path, "x.json", text), [], [1.0]) == rows


@pytest.mark.parametrize(
    ("kind", "line", "parts"),
    [
        ("csv", "one,x", ("column 'n'", "'one'")),
        ("csv", "5,x,y", ("Expected 2 columns, got 3", "begins '5,x,y'")),
        ("csv", "5,\x1b[31m,y", ("Expected 2 columns, got 3",)),
        ("json", '{"n": "one"}', ("n",)),
        ("json", "no json", ("begins 'no json'",)),
    ],
)
def test_what_is_wrong_is_said_with_the_value_or_a_beginning_that_can_be_shown(
    tmp_path: Path, kind: str, line: str, parts: tuple[str, ...]
) -> None:
    reader = open_reader(kind, sets_apart=True, types={"n": "int64"})
    (file,), schema = reader.describe([put(tmp_path, f"x.{kind}", KINDS[kind][0] + line + "\n")])

    (failed,) = [chunk.failed for chunk in chunks_of(reader, file, whole(file), schema) if chunk.failed is not None]

    assert failed.reason == reasons.SOURCE_UNREADABLE
    assert all(part in failed.message for part in parts)
    assert "\x1b" not in failed.message


@pytest.mark.parametrize("line", ['7,"open\n8,x', '7,"two\nlines"\n8,x', '7,"open",y,"\n8,x'])
def test_a_field_that_does_not_end_on_its_line_ends_the_reading_as_ever(tmp_path: Path, line: str) -> None:
    """What comes after it cannot be told from it: to go on at the next line could make rows of the inside of a field."""
    reader = open_reader("csv", sets_apart=True, types={"n": "int64"})
    _, schema = reader.describe([put(tmp_path, "first.csv", KINDS["csv"][0])])
    path = put(tmp_path, "x.csv", f"n,text\n0,first\n{line}\n")
    head = SourceFiles(StorageSettings()).head(path)
    assert head is not None
    file = SourceFile(path=path, etag=head.etag, size_bytes=head.size_bytes, unit="bytes", start=7, end=head.size_bytes)

    with pytest.raises(NeedsChange, match=r"line at byte 15: .*multiLine: true"):
        chunks_of(reader, file, whole(file), schema)


def test_a_line_at_the_beginning_that_cannot_be_read_does_not_keep_the_columns_from_being_known(tmp_path: Path) -> None:
    for name, line in (("x.csv", "1,x,y"), ("x.csv.gz", "1,x,y"), ("x.json", "no json")):
        kind = name.split(".")[1]
        head, _ = KINDS[kind]
        path = put(tmp_path, name, head + line + "\n")
        with pytest.raises(NeedsChange, match="mend the file"):
            open_reader(kind).describe([path])
        _, schema = open_reader(kind, sets_apart=True).describe([path])
        assert [(field.name, str(field.type)) for field in schema] == [("n", "int64"), ("text", "string")]


def test_many_bad_lines_are_found_only_as_far_as_they_are_asked_for(tmp_path: Path) -> None:
    reader = open_reader("csv", sets_apart=True, types={"n": "int64"})
    (file,), schema = reader.describe([put(tmp_path, "x.csv", "n,text\n0,first\n" + "one,x\n" * 50_000)])
    chunks = reader.read(file, whole(file), schema, BatchSizing(60.0, scale=1.0))
    assert [next(chunks).failed is not None for _ in range(4)] == [False, True, True, True]


@pytest.mark.parametrize("before", ["", "one,x\n"])
def test_a_field_without_an_end_ends_the_reading_of_a_file_read_from_its_start(tmp_path: Path, before: str) -> None:
    reader = open_reader("csv", sets_apart=True, types={"n": "int64"})
    (file,), schema = reader.describe([put(tmp_path, "x.csv.gz", f'n,text\n0,first\n{before}1,x\n2,"open\n3,y\n')])
    with pytest.raises(NeedsChange, match="its last quoted field has no end"):
        chunks_of(reader, file, whole(file), schema)


def test_rows_after_a_field_that_is_too_long_are_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_stream, "LONGEST_LINE_BYTES", 512)
    monkeypatch.setattr(csv_records, "LONGEST_LINE_BYTES", 512)
    for constant in ("_BLOCK_BYTES", "_RECORDS_BLOCK_BYTES"):
        monkeypatch.setattr(csv_stream, constant, 64)
    reader = open_reader("csv", sets_apart=True, types={"n": "int64"})
    _, schema = reader.describe([put(tmp_path, "first.csv.gz", "n,text\n0,first\n")])
    path = put(tmp_path, "x.csv.gz", 'n,text\n0,first\none,x\n2,"' + "3,y\n" * 600 + '"\n4,z\n')
    head = SourceFiles(StorageSettings()).head(path)
    assert head is not None
    file = SourceFile(path=path, etag=head.etag, size_bytes=head.size_bytes, unit="records", end=None)
    with pytest.raises(NeedsChange, match="a quoted field in it has no end"):
        chunks_of(reader, file, whole(file), schema)

    # The ways out: the mended file, or a quote that is part of the text, in a write of another name.
    for number, (text, options) in enumerate([('2,"' + "3,y" * 10 + '"\n', {}), ('2,"3\n', {"quote": ""})]):
        mended = put(tmp_path, f"{number}.csv.gz", "n,text\n0,first\n" + text)
        assert len(found_in("csv", mended, [], [1.0], options=options)) == 2
