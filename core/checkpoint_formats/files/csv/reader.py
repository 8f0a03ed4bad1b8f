"""CSV files: by byte in whole lines, or by row number where a line's end may be inside a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

import pyarrow as pa

from checkpoint_formats.failures import explain, unreadable
from checkpoint_formats.files.csv.dialect import EMPTY_LINE, EMPTY_LINE_WAY_OUT, FIRST_WAY_OUT, WAY_OUT, CsvDialect
from checkpoint_formats.files.csv.inferred_columns import InferredColumns, Sample, infer_types
from checkpoint_formats.files.csv.stream import CsvStream, is_read_from_its_start
from checkpoint_formats.files.file_columns import KeptColumns
from checkpoint_formats.files.lines import Lines, first_line, piece_of_lines, read_beginning
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.numbering import empty_chunk, number_rows
from checkpoint_formats.files.parsing import (
    BadLine,
    NotOneRowALine,
    chunks_of_lines,
    parse_lines,
    parse_or_name_the_line,
    without_bad_lines,
)
from checkpoint_formats.files.source_files import SourceFiles, for_each
from checkpoint_formats.files.texts import MARK_BYTES, byte_order_mark
from checkpoint_formats.port import NOTHING_TAKEN, Chunk, Described, SourceFilesReader, TakenColumns
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.plain_types import as_plain
from checkpoint_formats.rows.type_names import parse_type
from checkpoint_formats.rows.uniting import UnitedColumns
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.source import FilesSource
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

#: What programs write between fields, each as it is written in a manifest.
_DELIMITERS: Final = {",": "','", ";": "';'", "\t": '"\\t"', "|": "'|'"}


def likely_delimiter(names: Sequence[str], delimiter: str) -> str | None:
    """Return what seems to be between the columns of a header, as a manifest says it; None if nothing tells of another delimiter.

    A header of several columns is none, whatever is in their names.
    """
    if len(names) != 1:
        return None
    counts = {other: names[0].count(other) for other in _DELIMITERS if other != delimiter}
    most = max(counts, key=lambda other: counts[other])
    return _DELIMITERS[most] if counts[most] else None


def else_hint(delimiter: str | None) -> str:
    """Return what one can do, beside correcting the name, about a column that is not there."""
    return "" if delimiter is None else f", or set source.files.csv.delimiter: {delimiter} if that is between the columns"


def note_of(path: str, name: str, delimiter: str | None) -> str:
    """Return what is to be said of a file with such a header, although it can be read."""
    if delimiter is None:
        return ""
    return (
        f"csv.delimiter: {path} has one column, {name!r}; if {delimiter} is between the columns, "
        f"set source.files.csv.delimiter: {delimiter}"
    )


_SAMPLE_BYTES: Final = 4 << 20
_SAMPLE_FILES: Final = 3
_HEADER_WAY_OUT: Final = "rewrite the file, read it in a write of its own, or set source.files.csv.header: false if there is none"
_NO_HEADER_WAY_OUT: Final = (
    "rewrite the file, read it in a write of its own, or set source.files.csv.header: true if there is one"
)


@dataclass(frozen=True, slots=True)
class _Header:
    """A file up to the end of its first line, which may be a row, where its rows start, and the names that the line gives."""

    text: bytes
    start: int
    names: tuple[str, ...]


#: A file, which was not opened where its columns are known, with their names; None: it has no text.
_Examined = tuple[SourceFile | FoundFile, tuple[str, ...] | None]
_Filled = tuple[SourceFile | FoundFile, tuple[str, ...]]


class CsvReader(SourceFilesReader):
    """Positions are bytes; in gzip files, and with the options multiLine and escape, row numbers.

    A column goes by the name that the first line of its file gives it; what a file does not have is NULL in its rows. Without
    such a line, all files have the same columns in the same order. The types are inferred from the first rows of the first files
    that have the column, by the rules of checkpoint_protocol.rows.text_types, and where source.files.types names one, it is that.
    `sets_apart`: lines that cannot be read are rows that failed.
    """

    def __init__(
        self, source: FilesSource, columns: Sequence[str] | None, files: SourceFiles, *, sets_apart: bool = False
    ) -> None:
        options = source.csv_options
        self._sets_apart = sets_apart
        self._source = source
        self._header = options.header
        self._columns = columns
        self._types = {name: parse_type(name, text) for name, text in source.types.items()}
        self._files = files
        self._dialect = CsvDialect(options)
        self._stream = CsvStream(files, source, self._dialect, sets_apart=sets_apart)
        self._last_header: _Header | None = None

    def check(self, file: FoundFile) -> None:
        self._examine(file)

    def describe(self, found: Sequence[FoundFile], taken: TakenColumns = NOTHING_TAKEN) -> Described:
        rules = self._source.csv_options.model_dump_json(exclude={"null_values"})
        kept = KeptColumns(f"csv {self._source.compression} {rules}", taken)
        opened = iter(for_each(self._examine, [file for file in found if kept.of_taken(file.path) is None]))
        examined: list[_Examined] = []
        described: list[SourceFile] = []
        digests: dict[tuple[str, ...] | None, str] = {}
        for one in found:
            columns = kept.of_taken(one.path)
            if columns is not None:
                examined.append((one, tuple(columns.names) or None))
                continue
            file, names = next(opened)
            examined.append((file, names))
            if file.path not in taken:
                if names not in digests:
                    digests[names] = kept.digest_of(_without_types(names or ()))
                described.append(replace(file, columns=digests[names]))
        filled = _filled(examined)
        if not filled:
            raise unreadable(
                found[0].path,
                "neither it nor any other file of the source has a line of text, so that the columns are not known",
                "start the write when there are rows",
            )
        first = filled[0][0].path
        known = self._united_names(filled)
        likely = likely_delimiter(filled[0][1], self._source.csv_options.delimiter) if self._header else None
        if not self._header:
            for without_text in (one for one, names in examined if names is None):
                self._refuse_empty_lines_alone(self._opened(without_text), known)
        for name in self._types:
            if name not in known:
                raise NeedsChange(
                    reasons.MANIFEST_INVALID,
                    f"source file {first}: it has no column {name!r} (it has {', '.join(known)}); correct source.files.types"
                    + else_hint(likely),
                )
        chosen = [name for name in self._columns or known if name in known]
        inferred = infer_types([name for name in chosen if name not in self._types], self._samples(filled, chosen))
        types = self._types | inferred
        schema = pa.schema([(name, types[name]) for name in chosen])
        note = note_of(first, filled[0][1][0], likely)
        return Described(tuple(described), schema, f"source file {first}", known, else_hint(likely), note, kept.found)

    def samples(self, found: Sequence[FoundFile], columns: Sequence[str]) -> list[Sample]:
        """Return the rows by which the types of these columns are inferred where no type is given."""
        return list(self._samples(_filled(for_each(self._examine, found)), columns))

    def _united_names(self, filled: Sequence[_Filled]) -> tuple[str, ...]:
        """Return the names of all columns of all files, in the order of their appearance."""
        first, names = filled[0]
        united = UnitedColumns(is_same=self._source.schema_rule == "Same")
        known = dict.fromkeys(names)
        last: tuple[str, ...] | None = None
        for file, others in filled:
            if others == last:
                continue
            last = others
            if not self._header and len(others) != len(names):
                difference = f"it has {len(others)} columns, and {first.path} has {len(names)}"
                raise unreadable(file.path, difference, _NO_HEADER_WAY_OUT)
            # A first line that is a row shares no name with the header of another file.
            chosen = [name for name in others if self._columns is None or name in self._columns]
            united.add(f"source file {file.path}", _without_types(chosen))
            known |= dict.fromkeys(others)
        return tuple(known)

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        self._files.check_unchanged(file)
        if file.unit == "records":
            names = self._stream.names(file.path) or ()
            columns = self._columns_in(names, schema)
            found = self._stream.read(file.path, names, columns)
            batches = (one if isinstance(one, BadLine) else as_plain(one, schema) for one in found)
            yield from number_rows(file.path, batches, piece, schema, sizing)
            return
        end = file.size_bytes if piece.end is None else piece.end
        if piece.start >= end:
            yield empty_chunk(piece, schema)
            return
        names = self._examine_lines(file.path, file.size_bytes)[1] or ()
        columns = self._columns_in(names, schema)

        def parse(part: Lines) -> pa.RecordBatch:
            return as_plain(self._dialect.parse(part, names, columns), schema)

        for lines in piece_of_lines(self._files, file, piece.start, end, lambda: sizing.size_bytes):
            parsed = parse_lines(file.path, lines, parse, WAY_OUT, sets_apart=self._sets_apart)
            yield from chunks_of_lines(file.path, parsed, schema, spaces_are_blank=False)

    def _opened(self, file: SourceFile | FoundFile) -> SourceFile:
        return file if isinstance(file, SourceFile) else self._examine(file)[0]

    def _examine(self, file: FoundFile) -> tuple[SourceFile, tuple[str, ...] | None]:
        """Return a file's record and its column names; None if it has no text."""
        if is_read_from_its_start(file.path, self._source):
            names = self._stream.names(file.path)
            described = file.as_source("records", None)
        else:
            start, names = self._examine_lines(file.path, file.size_bytes)
            described = file.as_source("bytes", file.size_bytes, start=start)
        if names is not None and len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise unreadable(file.path, f"two columns are called {twice!r}", _HEADER_WAY_OUT)
        if self._header and any("\0" in name for name in names or ()):
            # Of UTF-16 whose first characters are not ASCII, `byte_order_mark` cannot tell.
            raise unreadable(file.path, "its first line has NUL characters, as UTF-16 text has", "convert it to UTF-8")
        return described, names

    def _examine_lines(self, path: str, size_bytes: int) -> tuple[int, tuple[str, ...] | None]:
        """Return where the rows start, and the column names."""
        beginning = read_beginning(self._files, path, size_bytes)
        # Of a million files, all begin with the same line.
        if (last := self._last_header) is not None and beginning.startswith(last.text):
            return last.start, last.names
        line = first_line(self._files, path, size_bytes, beginning)
        if line is None:
            return size_bytes, None
        try:
            names = self._dialect.names_in(line)
        except (pa.ArrowException, ValueError) as error:  # ValueError: not UTF-8 too
            remedy = error.remedy if isinstance(error, NotOneRowALine) else "mend the file, or convert it to UTF-8"
            raise unreadable(path, f"its first line: {explain(error)}", remedy) from error
        if not self._header and len(names) == 1 and line.position > (begin := _after_mark(path, beginning)):
            raise unreadable(path, f"line at byte {begin}: {EMPTY_LINE}", EMPTY_LINE_WAY_OUT)
        start, end = line.position + (line.size_bytes if self._header else 0), line.position + line.size_bytes
        # Without its line break the line may go on in another file.
        if beginning.endswith(b"\n", 0, end) and end <= len(beginning):
            self._last_header = _Header(beginning[:end], start, names)
        return start, names

    def _refuse_empty_lines_alone(self, file: SourceFile, names: Sequence[str]) -> None:
        """Refuse a file of empty lines and nothing else, where the other files have one column."""
        if file.unit == "records":
            self._stream.refuse_empty_lines(file.path, names)
        elif len(names) == 1:
            begin = _after_mark(file.path, read_beginning(self._files, file.path, file.size_bytes))
            if file.size_bytes > begin:
                raise unreadable(file.path, f"line at byte {begin}: {EMPTY_LINE}", EMPTY_LINE_WAY_OUT)

    def _columns_in(self, names: Sequence[str], schema: pa.Schema) -> InferredColumns:
        """Return those of the columns that a file has."""
        return InferredColumns(pa.schema([field for field in schema if field.name in names]), self._types)

    def _samples(self, filled: Sequence[_Filled], chosen: Sequence[str]) -> Iterator[Sample]:
        """Give the first rows of the first files that have rows, of each column that is chosen: without given types, binaries."""
        missing = dict.fromkeys(chosen, _SAMPLE_FILES)
        for file, names in filled:
            if not missing:
                return
            there = set(names)
            if missing.keys().isdisjoint(there):
                continue
            columns = [name for name in chosen if name in there]
            sample = self._sample(self._opened(file), names, {name: self._types.get(name, pa.binary()) for name in columns})
            if sample is None or not sample.rows.num_rows:
                continue
            for name in columns:
                if missing.get(name, 2) == 1:
                    del missing[name]
                elif name in missing:
                    missing[name] -= 1
            yield sample

    def _sample(self, file: SourceFile, names: Sequence[str], types: Mapping[str, pa.DataType]) -> Sample | None:
        if file.unit == "records":
            rows = self._stream.sample(file.path, names, types)
            return None if rows is None else Sample(file.path, rows, None)
        lines = next(piece_of_lines(self._files, file, file.start, file.size_bytes, lambda: _SAMPLE_BYTES), None)
        if lines is None:
            return None

        def infer(part: Lines) -> pa.Table:
            return self._dialect.infer(part, names, types, tuple(types))

        taken = without_bad_lines(file.path, lines, infer) if self._sets_apart else lines
        rows = parse_or_name_the_line(file.path, taken, infer, FIRST_WAY_OUT)
        return Sample(file.path, rows, partial(self._line_of, file, taken))

    def _line_of(self, file: SourceFile, lines: Lines, row: int) -> int:
        """Return the number of the line of a row: blank lines are no rows, and count as lines."""
        before = self._files.read_range(file.path, 0, lines.position).count(b"\n")
        text = lines.data[lines.begin : lines.end].splitlines()
        return before + 1 + next(islice((number for number, line in enumerate(text) if line), row, None))


def _after_mark(path: str, beginning: bytes) -> int:
    """Return where the text of a file begins."""
    return byte_order_mark(path, beginning[:MARK_BYTES])


def _without_types(names: Iterable[str]) -> pa.Schema:
    return pa.schema([(name, pa.null()) for name in names])


def _filled(examined: Sequence[_Examined]) -> list[_Filled]:
    return [(file, names) for file, names in examined if names is not None]
