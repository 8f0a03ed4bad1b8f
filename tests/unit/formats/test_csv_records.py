"""Records of CSV text: their ends are where pyarrow finds those of its rows, whatever the text and the dialect are."""

from __future__ import annotations

import io
from typing import cast

import pyarrow as pa
import pyarrow.csv
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from checkpoint_formats.files.csv.dialect import CsvDialect
from checkpoint_formats.files.csv.records import Records, RecordSplitter
from checkpoint_formats.files.csv.streamed_text import QuotedText
from checkpoint_formats.files.texts import TextStream
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.source import CsvOptions
from tests.support.effort import examples

#: A row as its fields, or the text of one that has another number of fields than the first.
Found = tuple[bytes, ...] | str

#: An escape that is the quote is what some programs write; a delimiter that is one of them is no dialect.
dialects = st.builds(
    CsvOptions,
    delimiter=st.sampled_from([",", "\t", "^", "]", "a"]),
    quote=st.sampled_from(['"', '"', "'", "-", ""]),
    escape=st.sampled_from(["", "", "\\", "^", '"', "-"]),
).filter(lambda options: options.delimiter != options.escape)


@st.composite
def texts(draw: st.DrawFn, options: CsvOptions) -> bytes:
    """A text that ends with a line break, as the one that is split does."""
    special = [text for text in (options.delimiter, options.quote, options.escape) if text]
    pieces = [*special, *special, "\n", "\r", "\r\n", "a", "é", "日", " ", "\ufeff", options.quote * 2, "x" * 60]
    return "".join(draw(st.lists(st.sampled_from(pieces), max_size=30))).encode() + b"\n"


def rows_by_pyarrow(data: bytes, options: CsvOptions, columns: int, block_bytes: int | None = None) -> list[Found]:
    """Return all rows in their order: parsed in one block, or as a stream in blocks of a size."""
    wrong: dict[int, str] = {}

    def take(row: pa.csv.InvalidRow) -> str:
        wrong[row.number] = row.text
        return "skip"

    parse = CsvDialect(options).parse_options
    parse.invalid_row_handler = take
    names = [f"f{number}" for number in range(columns)]
    read = pa.csv.ReadOptions(use_threads=False, block_size=block_bytes or len(data) + 2, column_names=names)
    convert = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.binary()))
    # As a byte order mark it would be dropped at the start.
    text = io.BytesIO(b"\n" + data)
    if block_bytes is None:
        rows = pa.csv.read_csv(text, read, parse, convert).to_pylist()
    else:
        quoted = QuotedText(cast(TextStream, text), options.quote.encode())
        with pa.csv.open_csv(pa.PythonFile(quoted, mode="r"), read, parse, convert) as reader:
            rows = [row for batch in reader for row in batch.to_pylist()]
    right = iter([tuple(row.values()) for row in rows])
    return [wrong[number] if number in wrong else next(right) for number in range(1, len(rows) + len(wrong) + 1)]


def split(data: bytes, options: CsvOptions, block_bytes: int) -> tuple[list[bytes], bool]:
    """Return the records one by one, blank lines too, and whether the text ends outside of quotes."""
    records: list[bytes] = []
    blocks = RecordSplitter(options).blocks(io.BytesIO(data).read, lambda: block_bytes, "x.csv")
    while True:
        try:
            block = next(blocks)
        except StopIteration:
            return records, True
        except NeedsChange:
            return records, False
        assert block.position == sum(map(len, records))
        parts = alone(block)
        assert block.rows == sum(part.rows for part in parts)
        records += [part.buffer.to_pybytes() for part in parts]


def alone(records: Records) -> list[Records]:
    """Halve records until each is alone."""
    middle = records.line_end_near_the_middle()
    if middle is None:
        return [records]
    first, rest = records.cut_at(middle)
    return alone(first) + alone(rest)


@settings(deadline=None, max_examples=examples(500))
@given(options=dialects, data=st.data(), columns=st.integers(1, 3), block_bytes=st.sampled_from([1, 7, 40, 1000]))
def test_each_record_by_itself_is_the_row_that_pyarrow_finds_in_the_whole_text(
    options: CsvOptions, data: st.DataObject, columns: int, block_bytes: int
) -> None:
    text = data.draw(texts(options))
    records, is_closed = split(text, options, block_bytes)
    whole = rows_by_pyarrow(text, options, columns)

    by_record = [row for record in records for row in rows_by_pyarrow(record, options, columns)]

    assert all(len(rows_by_pyarrow(record, options, columns)) == (record.strip(b"\r\n") != b"") for record in records)
    if is_closed:
        assert b"".join(records) == text
        assert by_record == whole
    else:
        assert len(whole) == len(by_record) + 1
        assert whole[:-1] == by_record


@settings(deadline=None, max_examples=examples(300))
@given(options=dialects, data=st.data())
def test_text_is_told_to_end_inside_quotes_where_pyarrow_takes_a_row_after_it_for_the_field(
    options: CsvOptions, data: st.DataObject
) -> None:
    text = data.draw(texts(options))
    _, is_closed = split(text, options, 1000)
    more = rows_by_pyarrow(text + b"\n\nx\n", options, 2)
    assert (len(more) == len(rows_by_pyarrow(text, options, 2)) + 1) == is_closed


@settings(deadline=None, max_examples=examples(200))
@given(options=dialects, data=st.data(), columns=st.integers(1, 3), block_bytes=st.sampled_from([9, 20, 65, 130]))
def test_pyarrow_finds_the_same_rows_in_a_stream_wherever_its_blocks_meet(
    options: CsvOptions, data: st.DataObject, columns: int, block_bytes: int
) -> None:
    text = data.draw(texts(options))
    try:
        streamed = rows_by_pyarrow(text, options, columns, block_bytes)
    except pa.ArrowInvalid as error:
        assume("straddling object" not in str(error))
        raise
    assert streamed == rows_by_pyarrow(text, options, columns)
