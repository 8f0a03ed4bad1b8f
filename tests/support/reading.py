"""Reading a source as the tasks do: piece by piece, at any sizing, with the rules that every reader must keep."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from checkpoint_formats.batch_sizing import BatchSizing
from checkpoint_formats.port import Chunk, FileReader, Reader
from checkpoint_formats.readers import file_reader_for
from checkpoint_protocol.manifest import Source
from checkpoint_protocol.positions import Range
from checkpoint_protocol.records import SourceFile
from checkpoint_protocol.storage import StorageSettings

Row = dict[str, Any]

#: From a row or two at a time to everything at once, changing from chunk to chunk.
scales = st.lists(st.sampled_from([2**-16, 2**-15, 2**-14, 2**-13, 2**-10, 1.0]), min_size=1, max_size=4)


def open_reader(format: str, storage: StorageSettings | None = None, *, sets_apart: bool = False, **source: Any) -> FileReader:
    document = json.dumps({"format": format, "path": "unused", **source})
    return file_reader_for(Source.model_validate_json(document), storage or StorageSettings(), sets_apart=sets_apart)


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
