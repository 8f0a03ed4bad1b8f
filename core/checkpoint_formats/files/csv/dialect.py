"""CSV as the source's options describe it, parsed by pyarrow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv

from checkpoint_formats.files.csv.inferred_columns import InferredColumns
from checkpoint_formats.files.csv.nulls import NullMarks
from checkpoint_formats.files.csv.records import Quotes, Records
from checkpoint_formats.files.lines import Lines
from checkpoint_formats.files.parsing import NotOneRowALine
from checkpoint_formats.files.texts import UTF8_MARK
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.source import CsvOptions

#: What helps while rows are read. The file itself is fixed then: rows of it may be sealed.
WAY_OUT: Final = (
    "set onRowError: Quarantine to set such lines apart and go on, give the column a type that holds all its values by "
    "source.files.types (steps and table have to take it), or name what stands for NULL in source.files.csv.nullValues; what is "
    "sealed stays"
)
#: What helps while the columns are inferred, before the input is fixed.
FIRST_WAY_OUT: Final = (
    "mend the file, set onRowError: Quarantine to set such lines apart, or give the column a type that holds all its values by "
    "source.files.types"
)
_NO_ROW: Final = "CSV parse error"  # so pyarrow says that a line has not the fields of a row
_BREAK_IN_FIELD: Final = "a quoted field does not end on its line"
_BREAK_WAY_OUT: Final = (
    "set source.files.csv.quote: '' if the quote is part of the text, or source.files.csv.multiLine: true if fields have line "
    "breaks in them (once rows are sealed: in a write of another name)"
)


#: pyarrow writes a NULL of a single column so, DuckDB and polars read it so, and Spark and pandas pass such lines over.
EMPTY_LINE: Final = "it is empty, which in a file of one column may be a missing value as well as no row"
EMPTY_LINE_WAY_OUT: Final = "remove the line, or write a missing value as a text that source.files.csv.nullValues names (NA)"


class CsvDialect:
    """Splits text into fields and converts them to fixed types."""

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self._invalid_rows = 0
        self.quotes = Quotes(options)
        self.nulls = NullMarks(options)
        for name, problem in options.problems().items():
            raise NeedsChange(reasons.MANIFEST_INVALID, f"source.files.csv.{name}: {problem}")
        try:
            self.parse_options = pa.csv.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                double_quote=True,
                escape_char=options.escape or False,
                newlines_in_values=True,
            )
            self.parse_options.validate()
            self._counting_options = pa.csv.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                double_quote=True,
                escape_char=options.escape or False,
                newlines_in_values=True,
                invalid_row_handler=self._count_invalid,
            )
        except (ValueError, TypeError) as error:
            raise NeedsChange(
                reasons.MANIFEST_INVALID,
                f"source.files.csv: delimiter, quote and escape: {error}; one ASCII character is expected",
            ) from error

    def convert_options(self, types: Mapping[str, pa.DataType], columns: Sequence[str] | None) -> Any:
        return pa.csv.ConvertOptions(
            column_types=dict(types),
            include_columns=None if columns is None else list(columns),
            null_values=list(self.nulls.for_pyarrow),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def names_in(self, line: Lines) -> tuple[str, ...]:
        """Return the column names that the first line of a file gives: its fields, or f0, f1, ... without a header."""
        self.quotes.check(line.data, line.begin, line.end)
        line = line.with_break()  # without one, a header and no rows would be nothing to pyarrow
        table = self._read_csv(line, pa.csv.ConvertOptions(), autogenerate_column_names=not self._options.header)
        if self._options.header and table.num_rows:
            raise NotOneRowALine("its lines end in \\r alone", "convert them to \\n")
        names = tuple(table.column_names)
        self._check_is_closed(line, names)
        return names

    def parse(self, lines: Lines, names: Sequence[str], columns: InferredColumns) -> pa.RecordBatch:
        """Return the rows of whole lines: as many as there are lines. ArrowInvalid or NotOneRowALine otherwise.

        A chunk may be cut at any line end, which is right only where no field has a line break in it. If one had, then either
        some row would take up several lines, or the last line would end inside quotes: both are refused. As the first line of
        a file starts outside of quotes, so does then, chunk by chunk, every other.
        """
        parsed = columns.parsed
        rows = self.infer(lines, names, {field.name: field.type for field in parsed}, parsed.names)
        return columns.read([_one_array(rows[name]) for name in parsed.names])

    def infer(
        self, lines: Lines, names: Sequence[str], types: Mapping[str, pa.DataType], columns: Sequence[str] | None
    ) -> pa.Table:
        """As `parse`, but with types taken from the values where none is given."""
        may_lose_a_row = len(names) == 1 and lines.has_blank
        if lines.is_blank and not may_lose_a_row:
            chosen = names if columns is None else columns
            return pa.schema([(name, types.get(name, pa.null())) for name in chosen]).empty_table()
        self.quotes.check(lines.data, lines.begin, lines.end)
        if lines.data.startswith(UTF8_MARK, lines.begin):
            # pyarrow would drop it, but only at a file's start it is a mark; here it is text. Blank lines do not matter.
            data = b"\n" + lines.data[lines.begin : lines.end]
            lines = Lines(data, 0, len(data), lines.position - 1)
        table = self._read_csv(lines, self.convert_options(types, columns), column_names=list(names))
        if not lines.are_as_many_as(table.num_rows, spaces_are_blank=False):
            raise NotOneRowALine(_BREAK_IN_FIELD, _BREAK_WAY_OUT)
        self._check_is_closed(lines, names)
        if may_lose_a_row:  # last: in quotes it is no line
            raise NotOneRowALine(EMPTY_LINE, EMPTY_LINE_WAY_OUT)
        return table

    def parse_records(
        self, records: Records, names: Sequence[str], types: Mapping[str, pa.DataType], columns: Sequence[str]
    ) -> pa.RecordBatch:
        """Return the rows of records, which may have line breaks in them: as many as there are records."""
        self.quotes.check(records.data, records.begin, records.end)
        data = records.buffer
        if self.nulls:
            data = pa.py_buffer(self.nulls.into_rows(data.to_pybytes()))
        if records.position and records.data.startswith(UTF8_MARK, records.begin):
            data = pa.py_buffer(b"\n" + data.to_pybytes())  # as in `infer`: here it is no mark
        read = pa.csv.ReadOptions(use_threads=False, block_size=data.size + 1, column_names=list(names))
        try:
            table = pa.csv.read_csv(pa.BufferReader(data), read, self.parse_options, self.convert_options(types, columns))
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(self.nulls.spelled_out(name_columns(str(error), names))) from error
        if table.num_rows != records.rows:
            raise NotOneRowALine(
                f"it cannot be told where its {records.rows} rows end, of which {table.num_rows} are found",
                "set source.files.csv.quote: '' if quotes are part of the text, or rewrite the file",
            )
        return pa.RecordBatch.from_arrays([_one_array(column) for column in table.columns], schema=table.schema)

    def _check_is_closed(self, lines: Lines, names: Sequence[str]) -> None:
        """Refuse lines that end inside quotes: pyarrow takes the end of the text for the end of the field."""
        last = lines.last_filled_line()
        if not self._options.quote or self._options.quote.encode() not in last:
            return
        data = last + self.sentinel(names)
        as_bytes = pa.csv.ConvertOptions(column_types={name: pa.binary() for name in names})
        table = self._read_csv(Lines(data, 0, len(data), 0), as_bytes, column_names=list(names))
        if table.num_rows != 2:
            raise NotOneRowALine(_BREAK_IN_FIELD, _BREAK_WAY_OUT)

    def sentinel(self, names: Sequence[str]) -> bytes:
        """Return one more row for a text; it is found there unless the text ends inside quotes."""
        return b"\nx" + self._options.delimiter.encode() * (len(names) - 1) + b"\n"

    def _read_csv(self, lines: Lines, convert: Any, **options: Any) -> pa.Table:
        # All in one block: where blocks meet, pyarrow would look for the ends of rows by itself.
        read = pa.csv.ReadOptions(use_threads=False, block_size=lines.size_bytes + 1, **options)
        try:
            return pa.csv.read_csv(pa.BufferReader(lines.buffer), read, self.parse_options, convert)
        except pa.ArrowInvalid as error:
            problem = name_columns(str(error), options.get("column_names", ()))
            quote = self._options.quote.encode()
            has_quotes = quote and lines.data.find(quote, lines.begin, lines.end) >= 0
            if _NO_ROW in problem and has_quotes and not self._is_one_row_a_line(lines, options.get("column_names", ())):
                raise NotOneRowALine(problem, _BREAK_WAY_OUT) from error
            raise pa.ArrowInvalid(problem) from error

    def _is_one_row_a_line(self, lines: Lines, names: Sequence[str]) -> bool:
        """Whether each line is a row, of however many fields, and the last one ends outside of quotes."""
        if not names:
            return False
        data = lines.data[lines.begin : lines.end].rstrip(b"\r\n") + self.sentinel(names)
        read = pa.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=list(names))
        as_bytes = pa.csv.ConvertOptions(column_types={name: pa.binary() for name in names})
        self._invalid_rows = 0
        try:
            table = pa.csv.read_csv(pa.py_buffer(data), read, self._counting_options, as_bytes)
        except pa.ArrowInvalid:
            return False
        return Lines(data, 0, len(data), 0).are_as_many_as(table.num_rows + self._invalid_rows, spaces_are_blank=False)

    def _count_invalid(self, _row: Any) -> str:
        self._invalid_rows += 1
        return "skip"


def name_columns(message: str, names: Sequence[str]) -> str:
    """Put the names of columns where pyarrow gives their numbers."""

    def named(match: re.Match[str]) -> str:
        number = int(match[1])
        return f"column {names[number]!r}:" if number < len(names) else match[0]

    return re.sub(r"In CSV column #(\d+):", named, message)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
