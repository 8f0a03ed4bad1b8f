"""CSV that is read from its start: compressed, or with line breaks in fields, so that only a parser knows where a row ends.

pyarrow streams it as long as nothing is wrong. It tells of a block that something in it is, and no more: where such rows are set
apart, the text is then cut into records (`csv_records`), which are parsed apart. A row's number is the same by either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv

from checkpoint_formats.failures import explain, reading, unreadable
from checkpoint_formats.files.csv.dialect import EMPTY_LINE, EMPTY_LINE_WAY_OUT, FIRST_WAY_OUT, WAY_OUT, CsvDialect, name_columns
from checkpoint_formats.files.csv.inferred_columns import InferredColumns
from checkpoint_formats.files.csv.records import Records, RecordSplitter, too_long, without_end
from checkpoint_formats.files.csv.streamed_text import CheckedText, EndedText, QuotedText
from checkpoint_formats.files.lines import LONGEST_LINE_BYTES, line_blocks
from checkpoint_formats.files.parsing import MOST_PARTS_OF_A_SAMPLE, BadLine, parse_apart
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.files.texts import TextStream, is_gzip
from checkpoint_protocol.manifest.sources.source import FilesSource

_HEADER_BLOCK_BYTES: Final = 256 << 10
_SAMPLE_BLOCK_BYTES: Final = 4 << 20
_BLOCK_BYTES: Final = 8 << 20
_RECORDS_BLOCK_BYTES: Final = 4 << 20
_TOO_SMALL: Final = "straddling object"
_EMPTY: Final = "Empty CSV file"


def is_read_from_its_start(path: str, source: FilesSource) -> bool:
    """Whether only a parser that begins at the file's start knows where its rows are."""
    options = source.csv_options
    return is_gzip(path, source.compression) or options.multi_line or options.escape != ""


class CsvStream:
    """Reads one file a call, in bounded memory. Rows that are longer than a block make it read again with larger blocks.

    `sets_apart`: rows that cannot be read are given as such, and do not end the reading.
    """

    def __init__(self, files: SourceFiles, source: FilesSource, dialect: CsvDialect, *, sets_apart: bool = False) -> None:
        options = source.csv_options
        self._sets_apart = sets_apart
        self._splitter = RecordSplitter(options)
        self._files = files
        self._options = options
        self._compression = source.compression
        self._dialect = dialect

    def names(self, path: str) -> tuple[str, ...] | None:
        """Return the column names, or None if every line of the file is blank."""
        with reading(path, "its first line cannot be read", "mend the file, or convert it to UTF-8", self._files.settings_place):
            with closing(self._text(path)) as text:
                blocks = self._splitter.blocks(text.read, lambda: _HEADER_BLOCK_BYTES, path)
                records = next((records for records in blocks if records.rows), None)
            if records is None:
                return None
            # By itself: a row after it may be wrong. Without a line break, a header and no rows would be nothing to pyarrow.
            data = records.cut_at_row(1)[0].buffer.to_pybytes() + b"\n"
            self._dialect.quotes.check(data, 0, len(data))
            options = pa.csv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, autogenerate_column_names=not self._options.header
            )
            return tuple(pa.csv.read_csv(pa.py_buffer(data), options, self._dialect.parse_options).column_names)

    def sample(self, path: str, names: Sequence[str], types: Mapping[str, pa.DataType]) -> pa.Table | None:
        """Return the columns of the first rows that have types; None if there are none."""
        self.refuse_empty_lines(path, names)
        convert = self._dialect.convert_options(types, tuple(types))
        block_bytes = _SAMPLE_BLOCK_BYTES
        while True:
            try:
                with self._open(self._text(path), block_bytes, convert) as reader:
                    batch = _next(reader)
                    return None if batch is None else pa.Table.from_batches([batch])
            except pa.ArrowInvalid as error:
                if self._is_empty(path, error):
                    return None
                if self._sets_apart and not _is_too_small(error):
                    break
                block_bytes = self._larger(path, block_bytes, error, 0, names, FIRST_WAY_OUT)
        records = next(self._records(path, _SAMPLE_BLOCK_BYTES, 0), None)
        if records is None:
            return None
        parts = parse_apart(path, records, lambda part: self._dialect.parse_records(part, names, types, tuple(types)))
        batches = [found for _, found in islice(parts, MOST_PARTS_OF_A_SAMPLE) if not isinstance(found, BadLine)]
        return pa.Table.from_batches(batches) if batches else None

    def read(self, path: str, names: Sequence[str], columns: InferredColumns) -> Iterator[pa.RecordBatch | BadLine]:
        """Give all rows. NeedsChange(SourceUnreadable) says near which row the file is wrong."""
        self.refuse_empty_lines(path, names)
        schema = columns.parsed
        types = {field.name: field.type for field in schema}
        # The last column is read in any case: a field without an end is its last one.
        last = [name for name in names[-1:] if name not in types]
        convert = self._dialect.convert_options(types | dict.fromkeys(last, pa.binary()), [*schema.names, *last])
        block_bytes = _BLOCK_BYTES
        given = 0
        may_be_open = False
        while True:
            rows = 0
            text = self._text(path)
            try:
                with self._open(text, block_bytes, convert) as reader:
                    while (batch := _next(reader)) is not None:
                        fresh = batch.slice(min(batch.num_rows, max(0, given - rows)))
                        rows += batch.num_rows
                        read = columns.read(fresh.columns[: len(schema)])
                        given += fresh.num_rows
                        may_be_open = _ends_in_a_break(batch, names)
                        yield read
                break
            except pa.ArrowInvalid as error:
                if self._is_empty(path, error):
                    return
                if self._sets_apart and not _is_too_small(error):
                    yield from self._read_apart(path, names, columns, given)
                    return
                block_bytes = self._larger(path, block_bytes, error, given, names, WAY_OUT)
        # An odd number of quotes, or a field that goes on to the end: each may be by right, and is looked at.
        if text.quotes % 2 or (text.quotes and may_be_open):
            self._check_is_closed(path, block_bytes, names, given)

    def _read_apart(
        self, path: str, names: Sequence[str], columns: InferredColumns, given: int
    ) -> Iterator[pa.RecordBatch | BadLine]:
        """Give the rows after those that are given: what can be read in batches, and each that cannot with why."""
        parsed = columns.parsed
        types = {field.name: field.type for field in parsed}

        def parse(part: Records) -> pa.RecordBatch:
            return columns.read(self._dialect.parse_records(part, names, types, parsed.names).columns)

        for records in self._records(path, _RECORDS_BLOCK_BYTES, given):
            for _, found in parse_apart(path, records, parse):
                yield found

    def _records(self, path: str, block_bytes: int, given: int) -> Iterator[Records]:
        """Give records in blocks that have rows: without the header, and the rows that are given."""
        skipped = given + (1 if self._options.header else 0)
        with closing(self._text(path)) as text:
            for records in self._splitter.blocks(text.read, lambda: block_bytes, path):
                rows = records.rows
                if rows > skipped:
                    yield records.cut_at_row(skipped)[1]
                skipped = max(0, skipped - rows)

    def refuse_empty_lines(self, path: str, names: Sequence[str]) -> None:
        """Refuse an empty line of a file of one column, but before its header: pyarrow passes it over, as any it may."""
        if len(names) != 1:
            return
        first_row = None if self._options.header else 0
        with closing(self._text(path, b"")) as text:
            for records in self._splitter.blocks(text.read, lambda: _RECORDS_BLOCK_BYTES, path):
                for place in records.blank_places:
                    if first_row is None and records.cut_at(int(place))[0].rows:
                        first_row = records.position
                    if first_row is not None:
                        raise unreadable(path, f"line at byte {records.position + int(place)}: {EMPTY_LINE}", EMPTY_LINE_WAY_OUT)
                first_row = records.position if first_row is None and records.rows else first_row

    def _text(self, path: str, tail: bytes = b"\n") -> QuotedText:
        # Without a line break at the end, a header and no rows would be nothing to pyarrow.
        stream = TextStream(self._files, path, is_gzip(path, self._compression))
        return QuotedText(EndedText(stream, tail, path, self._options), self._options.quote.encode())

    def _open(self, text: QuotedText, block_bytes: int, convert: Any) -> Any:
        checked = CheckedText(text, self._dialect.quotes, self._dialect.nulls, has_header=self._options.header)
        return pa.csv.open_csv(
            pa.PythonFile(checked, mode="r"),
            pa.csv.ReadOptions(use_threads=False, block_size=block_bytes, autogenerate_column_names=not self._options.header),
            self._dialect.parse_options,
            convert,
        )

    def _is_empty(self, path: str, error: Exception) -> bool:
        """Whether it is an error because there is nothing; pyarrow says the same of a first block without text."""
        if _EMPTY not in str(error):
            return False
        blocks = line_blocks(self._text(path).read, 0, lambda: _HEADER_BLOCK_BYTES, path)
        return all(lines.is_blank for lines in blocks)

    def _larger(self, path: str, block_bytes: int, error: Exception, row: int, names: Sequence[str], remedy: str) -> int:
        if _is_too_small(error):
            if block_bytes < LONGEST_LINE_BYTES:
                return min(block_bytes * 8, LONGEST_LINE_BYTES)
            raise too_long(path, f"near row {row}") from error
        problem = explain(ValueError(self._dialect.nulls.spelled_out(name_columns(str(error), names))))
        raise unreadable(path, f"near row {row}: {problem}", remedy) from error

    def _check_is_closed(self, path: str, block_bytes: int, names: Sequence[str], rows: int) -> None:
        """Refuse a file that ends inside quotes: pyarrow takes its end for the end of the field, however much that swallowed.

        Quotes inside of unquoted text may be odd in number, and a field may have a break at its end; so a row is added, and must
        be found.
        """
        convert = pa.csv.ConvertOptions(column_types={name: pa.binary() for name in names})
        found = 0
        try:
            with self._open(self._text(path, self._dialect.sentinel(names)), block_bytes, convert) as reader:
                while (batch := _next(reader)) is not None:
                    found += batch.num_rows
        except pa.ArrowInvalid:
            found = 0
        if found != rows + 1:
            raise without_end(path)


def _is_too_small(error: Exception) -> bool:
    """Whether a block is: no other of pyarrow's messages begins so, also where it quotes a value."""
    return str(error).startswith(_TOO_SMALL)


def _next(reader: Any) -> pa.RecordBatch | None:
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None


def _ends_in_a_break(batch: pa.RecordBatch, names: Sequence[str]) -> bool:
    """Whether the last field of the last row ends with a line break, as one without an end does: it has swallowed the text's."""
    if not batch.num_rows or not names:
        return False
    field = batch.column(batch.schema.get_field_index(names[-1]))[batch.num_rows - 1].as_py()
    return field[-1:] in ("\n", b"\n") if isinstance(field, str | bytes) else False
