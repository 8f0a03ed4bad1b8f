"""CSV files: by byte in whole lines, or by row number where a line's end may be inside a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import pyarrow as pa

from checkpoint_formats.batch_sizing import BatchSizing
from checkpoint_formats.failures import explain, unreadable
from checkpoint_formats.files.csv.dialect import FIRST_WAY_OUT, WAY_OUT, CsvDialect
from checkpoint_formats.files.csv.inference import infer_types
from checkpoint_formats.files.csv.inferred_columns import InferredColumns
from checkpoint_formats.files.csv.stream import CsvStream
from checkpoint_formats.files.lines import Lines, first_line, line_start, piece_of_lines, read_beginning
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.numbering import empty_chunk, number_rows
from checkpoint_formats.files.parsing import (
    NotOneRowALine,
    chunks_of_lines,
    parse_lines,
    parse_or_name_the_line,
    without_bad_lines,
)
from checkpoint_formats.files.source_files import SourceFiles, for_each
from checkpoint_formats.files.texts import is_gzip
from checkpoint_formats.port import Chunk
from checkpoint_formats.type_names import parse_type
from checkpoint_protocol.manifest import Source
from checkpoint_protocol.positions import Range
from checkpoint_protocol.records import SourceFile

_SAMPLE_BYTES: Final = 4 << 20
_SAMPLE_FILES: Final = 3
_HEADER_WAY_OUT: Final = "rewrite the file, read it in a write of its own, or set source.options.header: false if there is none"


@dataclass(frozen=True, slots=True)
class _Header:
    """A file up to the end of its first line, which may be a row, where its rows start, and the names that the line gives."""

    text: bytes
    start: int
    names: tuple[str, ...]


class CsvReader:
    """Positions are bytes; in gzip files, and with the options multiLine and escape, row numbers.

    All files have the same columns in the same order. The types are inferred from the first files' first rows by the rules of
    checkpoint_protocol.text_types, and where source.types names one, it is that. `sets_apart`: lines that cannot be read are rows
    that failed.
    """

    def __init__(self, source: Source, files: SourceFiles, *, sets_apart: bool = False) -> None:
        self._sets_apart = sets_apart
        self._options = source.options
        self._columns = source.columns
        self._types = {name: parse_type(name, text) for name, text in source.types.items()}
        self._files = files
        self._dialect = CsvDialect(source.options)
        self._stream = CsvStream(files, source.options, self._dialect, sets_apart=sets_apart)
        self._last_header: _Header | None = None

    def describe(self, paths: Sequence[str]) -> tuple[tuple[SourceFile, ...], pa.Schema]:
        looked_at = for_each(self._look, self._files.expand(paths))
        described = tuple(file for file, _ in looked_at)
        filled = [(file, names) for file, names in looked_at if names is not None]
        if not filled:
            raise unreadable(
                described[0].path,
                "neither it nor any other file of the source has a line of text, so that the columns are not known",
                "start the write when there are rows",
            )
        first, names = filled[0]
        for file, others in filled:
            _check_same(first.path, names, file.path, others)
        self._check_known(first.path, names)
        chosen = self._columns or names
        samples = islice(self._samples([file for file, _ in filled], names), _SAMPLE_FILES)
        types = self._types | infer_types([name for name in chosen if name not in self._types], samples)
        return described, pa.schema([(name, types[name]) for name in chosen])

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        return position if file.unit == "records" else line_start(self._files, file, position)

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        self._files.check_unchanged(file)
        columns = InferredColumns(schema, self._types)
        if file.unit == "records":
            names = self._stream.names(file.path) or ()
            batches = self._stream.read(file.path, names, columns)
            yield from number_rows(file.path, batches, piece, schema, sizing)
            return
        end = file.size_bytes if piece.end is None else piece.end
        if piece.start >= end:
            yield empty_chunk(piece, schema)
            return
        names = self._look_at_lines(file.path, file.size_bytes)[1] or ()
        for lines in piece_of_lines(self._files, file, piece.start, end, lambda: sizing.size_bytes):
            parsed = parse_lines(
                file.path, lines, lambda part: self._dialect.parse(part, names, columns), WAY_OUT, sets_apart=self._sets_apart
            )
            yield from chunks_of_lines(file.path, parsed, schema, spaces_are_blank=False)

    def check_unchanged(self, file: SourceFile) -> None:
        self._files.check_unchanged(file)

    def _look(self, file: FoundFile) -> tuple[SourceFile, tuple[str, ...] | None]:
        """Return a file's record and its column names; None if it has no text."""
        if is_gzip(file.path, self._options) or self._options.multi_line or self._options.escape:
            names = self._stream.names(file.path)
            described = SourceFile(path=file.path, etag=file.etag, size_bytes=file.size_bytes, unit="records", end=None)
        else:
            start, names = self._look_at_lines(file.path, file.size_bytes)
            described = SourceFile(
                path=file.path, etag=file.etag, size_bytes=file.size_bytes, unit="bytes", start=start, end=file.size_bytes
            )
        if names is not None and len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise unreadable(file.path, f"two columns are called {twice!r}", _HEADER_WAY_OUT)
        return described, names

    def _look_at_lines(self, path: str, size_bytes: int) -> tuple[int, tuple[str, ...] | None]:
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
            way_out = error.way_out if isinstance(error, NotOneRowALine) else "mend the file, or convert it to UTF-8"
            raise unreadable(path, f"its first line: {explain(error)}", way_out) from error
        start, end = line.position + (line.size_bytes if self._options.header else 0), line.position + line.size_bytes
        # Without its line break the line may go on in another file.
        if beginning.endswith(b"\n", 0, end) and end <= len(beginning):
            self._last_header = _Header(beginning[:end], start, names)
        return start, names

    def _samples(self, files: Sequence[SourceFile], names: tuple[str, ...]) -> Iterator[tuple[str, pa.Table]]:
        """Give the first rows of each file that has rows: the columns whose types are not given, as binaries."""
        columns = self._columns or names
        types = {name: self._types.get(name, pa.binary()) for name in columns}
        for file in files:
            table = self._sample(file, names, types)
            if table is not None and table.num_rows:
                yield file.path, table

    def _sample(self, file: SourceFile, names: Sequence[str], types: Mapping[str, pa.DataType]) -> pa.Table | None:
        if file.unit == "records":
            return self._stream.sample(file.path, names, types)
        lines = next(piece_of_lines(self._files, file, file.start, file.size_bytes, lambda: _SAMPLE_BYTES), None)
        if lines is None:
            return None

        def infer(part: Lines) -> pa.Table:
            return self._dialect.infer(part, names, types, tuple(types))

        taken = without_bad_lines(file.path, lines, infer) if self._sets_apart else lines
        return parse_or_name_the_line(file.path, taken, infer, FIRST_WAY_OUT)

    def _check_known(self, path: str, names: tuple[str, ...]) -> None:
        for field, asked in (("columns", self._columns or ()), ("types", tuple(self._types))):
            for name in asked:
                if name not in names:
                    raise unreadable(path, f"it has no column {name!r} (it has {', '.join(names)})", f"correct source.{field}")


def _check_same(first_path: str, expected: tuple[str, ...], path: str, names: tuple[str, ...]) -> None:
    if names == expected:
        return
    if len(names) != len(expected):
        difference = f"it has {len(names)} columns, and {first_path} has {len(expected)}"
    else:
        number = next(i for i, name in enumerate(names) if name != expected[i])
        difference = f"its column {number + 1} is {names[number]!r}, and that of {first_path} is {expected[number]!r}"
    raise unreadable(path, difference, _HEADER_WAY_OUT)
