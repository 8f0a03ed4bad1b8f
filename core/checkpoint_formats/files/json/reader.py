"""Files of JSON objects, one a line: by byte in whole lines, or by row number where they are compressed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import pyarrow as pa

from checkpoint_formats.failures import reading, unreadable
from checkpoint_formats.files.json.objects import FIRST_WAY_OUT, WAY_OUT, check_objects, infer_schema, parse_objects
from checkpoint_formats.files.lines import Lines, line_blocks, piece_of_lines
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.numbering import empty_chunk, number_rows
from checkpoint_formats.files.parsing import BadLine, chunks_of_lines, parse_lines, parse_or_name_the_line, without_bad_lines
from checkpoint_formats.files.source_files import SourceFiles, for_each
from checkpoint_formats.files.texts import MARK_BYTES, TextStream, byte_order_mark, is_gzip
from checkpoint_formats.port import NOTHING_TAKEN, Chunk, Described, SourceFilesReader, TakenColumns
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.type_names import parse_type
from checkpoint_protocol.manifest.sources.source import FilesSource
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

_BLOCK_BYTES: Final = 4 << 20
_SAMPLE_BYTES: Final = 4 << 20
_SAMPLE_FILES: Final = 3
_ELSE: Final = ", or give a field that the first rows do not have a type by source.files.types"


class JsonReader(SourceFilesReader):
    """Positions are bytes; in gzip files, row numbers.

    The columns are those of the first files' first rows, and those that source.files.types names. A field that comes up only
    later is refused, since its values would be lost without a word; unless source.columns chooses the fields. A missing one is
    NULL.
    `sets_apart`: lines that cannot be read are rows that failed.
    """

    def __init__(
        self, source: FilesSource, columns: Sequence[str] | None, files: SourceFiles, *, sets_apart: bool = False
    ) -> None:
        self._sets_apart = sets_apart
        self._compression = source.compression
        self._columns = columns
        self._types = {name: parse_type(name, text) for name, text in source.types.items()}
        self._files = files

    def check(self, file: FoundFile) -> None:
        self._examine(file)

    def describe(self, found: Sequence[FoundFile], taken: TakenColumns = NOTHING_TAKEN) -> Described:
        described = tuple(for_each(self._examine, [file for file in found if file.path not in taken]))
        new = iter(described)
        # Of those that are taken only the ones that tell the columns are looked at.
        schema = self._infer(self._examine(file) if file.path in taken else next(new) for file in found)
        first = f"source file {found[0].path}"
        if not schema.names:
            raise unreadable(
                found[0].path,
                "neither it nor any other file of the source has an object with fields, so that the columns are not known",
                "start the write when there are rows, or name the columns by source.files.types",
            )
        names = [name for name in self._columns or schema.names if name in schema.names]
        return Described(described, pa.schema([schema.field(name) for name in names]), first, tuple(schema.names), _ELSE)

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        self._files.check_unchanged(file)
        others: Final = "ignore" if self._columns else "error"

        def parsed(lines: Lines) -> Iterator[tuple[Lines, pa.RecordBatch | BadLine]]:
            return parse_lines(
                file.path,
                lines,
                lambda part: parse_objects(part, schema, others, self._types),
                WAY_OUT,
                sets_apart=self._sets_apart,
            )

        if file.unit == "records":
            blocks = line_blocks(TextStream(self._files, file.path, True).read, 0, lambda: _BLOCK_BYTES, file.path)
            rows = (found for lines in blocks for _, found in parsed(lines))
            yield from number_rows(file.path, rows, piece, schema, sizing)
            return
        end = file.size_bytes if piece.end is None else piece.end
        if piece.start >= end:
            yield empty_chunk(piece, schema)
        for lines in piece_of_lines(self._files, file, piece.start, end, lambda: sizing.size_bytes):
            yield from chunks_of_lines(file.path, parsed(lines), schema, spaces_are_blank=True)

    def _examine(self, file: FoundFile) -> SourceFile:
        if is_gzip(file.path, self._compression):
            return file.as_source("records", None)
        start = byte_order_mark(file.path, self._files.read_range(file.path, 0, min(MARK_BYTES, file.size_bytes)))
        return file.as_source("bytes", file.size_bytes, start=start)

    def _infer(self, files: Iterable[SourceFile]) -> pa.Schema:
        """Return the fields of the first rows of the first files that have rows, in the order of their appearance."""
        samples = self.samples(files)
        together = b"\n".join(lines.buffer.to_pybytes() for _, lines in samples)
        paths = ", ".join(path for path, _ in samples)
        with reading(paths or "(none)", "the fields have no common types", FIRST_WAY_OUT, self._files.settings_place):
            found = infer_schema(Lines(together, 0, len(together), 0), self._types)
        for name, kind in self._types.items():
            index = found.get_field_index(name)
            field = pa.field(name, kind)
            found = found.append(field) if index < 0 else found.set(index, field)
        return found

    def samples(self, files: Iterable[SourceFile]) -> list[tuple[str, Lines]]:
        """Return the first rows of the first files that have rows, by which the types are inferred, with the files' paths."""
        return list(islice(self._samples(files), _SAMPLE_FILES))

    def _samples(self, files: Iterable[SourceFile]) -> Iterator[tuple[str, Lines]]:
        for file in files:
            if file.unit == "records":
                stream = TextStream(self._files, file.path, gzip=True)
                blocks = line_blocks(stream.read, 0, lambda: _SAMPLE_BYTES, file.path)
            else:
                blocks = piece_of_lines(self._files, file, file.start, file.size_bytes, lambda: _SAMPLE_BYTES)
            lines = next(blocks, None)
            if lines is not None and self._sets_apart:
                lines = without_bad_lines(file.path, lines, lambda part: check_objects(part, self._types))
            if lines is not None and not lines.is_blank:
                # By itself first: what is wrong is then found in its file.
                parse_or_name_the_line(file.path, lines, lambda part: infer_schema(part, self._types), FIRST_WAY_OUT)
                yield file.path, lines
