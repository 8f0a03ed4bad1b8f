"""CSV that is read from its start: compressed, or with line breaks in fields, so that only a parser knows where a row ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv

from checkpoint_protocol.manifest import SourceOptions
from checkpoint_spark.sources.csv_dialect import STREAM_WAY_OUT, CsvDialect, name_columns
from checkpoint_spark.sources.failures import explain, reading, unreadable
from checkpoint_spark.sources.files import SourceFiles
from checkpoint_spark.sources.inferred_columns import InferredColumns
from checkpoint_spark.sources.lines import LONGEST_LINE_BYTES, line_blocks
from checkpoint_spark.sources.texts import TextStream, is_gzip

_HEADER_BLOCK_BYTES: Final = 256 << 10
_SAMPLE_BLOCK_BYTES: Final = 4 << 20
_BLOCK_BYTES: Final = 8 << 20
_TOO_SMALL: Final = "straddling object"
_EMPTY: Final = "Empty CSV file"


class CsvStream:
    """Reads one file a call, in bounded memory. Rows that are longer than a block make it read again with larger blocks."""

    def __init__(self, files: SourceFiles, options: SourceOptions, dialect: CsvDialect) -> None:
        self._files = files
        self._options = options
        self._dialect = dialect

    def names(self, path: str) -> tuple[str, ...] | None:
        """Return the column names, or None if every line of the file is blank."""
        with reading(path, "its first line cannot be read", "mend the file, or convert it to UTF-8"):
            first = self._first(path, _HEADER_BLOCK_BYTES, self._dialect.convert_options({}, None))
            return None if first is None else tuple(first.schema.names)

    def sample(self, path: str, types: Mapping[str, pa.DataType], columns: Sequence[str] | None) -> pa.Table | None:
        """Return the first rows, with types taken from the values where none is given."""
        return self._first(path, _SAMPLE_BLOCK_BYTES, self._dialect.convert_options(types, columns))

    def read(self, path: str, names: Sequence[str], columns: InferredColumns) -> Iterator[pa.RecordBatch]:
        """Give all rows. NeedsChange(SourceUnreadable) says near which row the file is wrong."""
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
                block_bytes = self._larger(path, block_bytes, error, given, names)
        # An odd number of quotes, or a field that goes on to the end: each may be by right, and is looked at.
        if text.quotes % 2 or (text.quotes and may_be_open):
            self._check_is_closed(path, block_bytes, names, given)

    def _first(self, path: str, block_bytes: int, convert: Any) -> pa.Table | None:
        while True:
            try:
                with self._open(self._text(path), block_bytes, convert) as reader:
                    batch = _next(reader)
                    return reader.schema.empty_table() if batch is None else pa.Table.from_batches([batch])
            except pa.ArrowInvalid as error:
                if self._is_empty(path, error):
                    return None
                block_bytes = self._larger(path, block_bytes, error, 0, ())

    def _text(self, path: str, tail: bytes = b"\n") -> _QuotedText:
        # Without a line break at the end, a header and no rows would be nothing to pyarrow.
        return _QuotedText(TextStream(self._files, path, is_gzip(path, self._options), tail), self._options.quote.encode())

    def _open(self, text: _QuotedText, block_bytes: int, convert: Any) -> Any:
        return pa.csv.open_csv(
            pa.PythonFile(text, mode="r"),
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

    def _larger(self, path: str, block_bytes: int, error: Exception, row: int, names: Sequence[str]) -> int:
        if _TOO_SMALL in str(error) and block_bytes < LONGEST_LINE_BYTES:
            return min(block_bytes * 8, LONGEST_LINE_BYTES)
        problem = explain(ValueError(name_columns(str(error), names)))
        if _TOO_SMALL in str(error):
            problem = f"it is longer than {LONGEST_LINE_BYTES >> 20} MiB, or a quoted field in it has no end"
        raise unreadable(path, f"near row {row}: {problem}", STREAM_WAY_OUT) from error

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
            raise unreadable(
                path,
                "its last quoted field has no end",
                "mend the file, or set source.options.quote: '' if the character is part of the text",
            )


class _QuotedText:
    """A text for pyarrow, in which quotes are counted.

    What is given never ends between \\r and \\n: pyarrow takes that for the end of a row also inside quotes, and drops the \\n.
    """

    closed = False

    def __init__(self, stream: TextStream, quote: bytes) -> None:
        self._stream = stream
        self._quote = quote
        self._kept = b""
        self.quotes = 0

    def read(self, size_bytes: int) -> bytes:
        data = self._kept + self._stream.read(size_bytes - len(self._kept))
        self._kept = b"\r" if len(data) > 1 and data.endswith(b"\r") else b""
        data = data[: len(data) - len(self._kept)]
        if self._quote:
            self.quotes += data.count(self._quote)
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
        self._stream.close()


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
