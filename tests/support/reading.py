"""Reading a source as the tasks do: piece by piece, at any sizing, with the rules that every reader must keep."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.port import Chunk, Reader
from checkpoint_formats.readers import file_reader_for
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.selecting import SelectingReader, selection_of
from checkpoint_formats.rows.uniting import else_hint_of, unite
from checkpoint_formats.rows.where import Filter
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import Output
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

Row = dict[str, Any]

#: From a row or two at a time to everything at once, changing from chunk to chunk.
scales = st.lists(st.sampled_from([2**-16, 2**-15, 2**-14, 2**-13, 2**-10, 1.0]), min_size=1, max_size=4)


class FilesReader(SelectingReader):
    """Finds, describes and reads the files of a source, as a driver and its tasks do one after the other."""

    def __init__(
        self, source: Source, storage: StorageSettings | None = None, *, sets_apart: bool = False, outputs: Sequence[Output] = ()
    ) -> None:
        storage = storage or StorageSettings()
        assert source.files is not None
        self._taken = selection_of(source)
        self._files = SourceFiles(storage, outputs)
        self._reader = file_reader_for(source.files, self._taken, storage, sets_apart=sets_apart)
        super().__init__(self._taken, self._reader)

    def describe(self, paths: Sequence[str]) -> tuple[tuple[SourceFile, ...], pa.Schema]:
        described = self._reader.describe(self._files.expand(paths))
        schema = unite([described], self._taken)
        if self._taken.condition is not None:
            Filter(self._taken.condition, schema, else_hint_of([described]))
        return described.files, schema


def files_source(
    format: str, paths: Sequence[str] = ("unused",), options: Mapping[str, Any] | None = None, **more: Any
) -> Source:
    """Return a source of files. `options`: those of CSV, and compression; `more`: fields of files, and columns and where."""
    beside = {name: more.pop(name) for name in ("columns", "where") if name in more}
    files = {"format": format, "paths": paths, **more}
    if csv := {name: value for name, value in (options or {}).items() if name != "compression"}:
        files["csv"] = csv
    if options and "compression" in options:
        files["compression"] = options["compression"]
    return Source.model_validate_json(json.dumps({"files": files, **beside}))


def open_reader(format: str, storage: StorageSettings | None = None, *, sets_apart: bool = False, **source: Any) -> FilesReader:
    return FilesReader(files_source(format, **source), storage, sets_apart=sets_apart)


def chunks_of(reader: Reader, file: SourceFile, piece: Range, schema: pa.Schema, paces: Sequence[float] = (1.0,)) -> list[Chunk]:
    """Read a piece; check what every reader promises of positions and schemas."""
    sizing = BatchSizing(interval_s=60.0, scale=paces[0])
    chunks = []
    for chunk, scale in zip(reader.read(file, piece, schema, sizing), itertools.cycle([*paces[1:], paces[0]]), strict=False):
        chunks.append(chunk)
        sizing.scale = scale
    assert chunks, "a reader gives at least one chunk"
    assert [chunk.start for chunk in chunks] == [piece.start, *(chunk.end for chunk in chunks[:-1])]
    assert chunks[-1].end == piece.end
    assert all(chunk.end is not None and chunk.end > chunk.start for chunk in chunks[:-1])
    assert all(chunk.batch.schema.equals(schema) for chunk in chunks)
    return chunks


def rows_of(chunks: Iterable[Chunk]) -> list[Row]:
    return [row for chunk in chunks for row in chunk.batch.to_pylist()]


def whole(file: SourceFile) -> Range:
    return Range(file=0, start=file.start, end=file.end)


def read_whole(reader: Reader, files: Sequence[SourceFile], schema: pa.Schema) -> list[Row]:
    return [row for file in files for row in rows_of(chunks_of(reader, file, whole(file), schema))]


def cut(reader: Reader, file: SourceFile, positions: Sequence[int]) -> list[Range]:
    """Cut a file near the given positions, as a plan does."""
    assert file.end is not None
    borders = {file.start, file.end}
    for position in positions:
        aligned = reader.align(file, min(position, file.end), 0)
        assert min(position, file.end) <= aligned <= file.end or aligned == file.start
        borders.add(aligned)
    ordered = sorted(borders)
    return [Range(file=0, start=start, end=end) for start, end in itertools.pairwise(ordered)]


def check_exactly_once(
    reader: Reader, file: SourceFile, schema: pa.Schema, positions: Sequence[int], paces: Sequence[float], expected: list[Row]
) -> None:
    """However a file is cut, and wherever reading stops and goes on, each row comes once and in order."""
    pieces = [whole(file)] if file.end is None else cut(reader, file, positions)
    by_piece = [chunks_of(reader, file, piece, schema, paces) for piece in pieces]
    assert [row for chunks in by_piece for row in rows_of(chunks)] == expected
    for piece, chunks in zip(pieces, by_piece, strict=True):
        for stop in {0, len(chunks) // 2, len(chunks) - 2} & set(range(len(chunks) - 1)):
            rest = Range(file=0, start=chunks[stop].end or 0, end=piece.end)
            assert rows_of(chunks_of(reader, file, rest, schema, paces)) == rows_of(chunks[stop + 1 :])
