"""`source.where` and `source.columns` for every format: rows that are not taken, and columns that only `where` needs, go here.

A row that is left out is covered all the same: its position belongs to the chunk, so that it is sealed as done, and is not read
again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_formats.batch_sizing import BatchSizing
from checkpoint_formats.port import Chunk, FileReader, Reader
from checkpoint_formats.where import Filter
from checkpoint_protocol.manifest import Source
from checkpoint_protocol.positions import Range
from checkpoint_protocol.records import SourceFile
from checkpoint_protocol.where import Condition, columns_of, parse_where


def condition_of(source: Source) -> Condition | None:
    return None if source.where is None else parse_where(source.where)


def as_read(source: Source) -> Source:
    """Return the source with the columns that must be read: those that are asked for, then those that only `where` needs."""
    condition = condition_of(source)
    if source.columns is None or condition is None:
        return source
    return source.model_copy(update={"columns": tuple(dict.fromkeys((*source.columns, *columns_of(condition))))})


class SelectingReader:
    """Gives what another reader reads without the rows that `where` does not take, and without columns nobody asked for.

    The schema that `read` is given is the one under which the input is recorded: with the columns of `where`. The batches have
    the columns of `given_schema`.
    """

    def __init__(self, source: Source, inner: Reader) -> None:
        self._columns = source.columns
        self._condition = condition_of(source)
        self._inner = inner

    def given_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema if self._columns is None else pa.schema([schema.field(name) for name in self._columns])

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        return self._inner.align(file, position, slack)

    def check_unchanged(self, file: SourceFile) -> None:
        self._inner.check_unchanged(file)

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        rows = None if self._condition is None else Filter(self._condition, schema)
        given = self.given_schema(schema)
        for chunk in self._inner.read(file, piece, schema, sizing):
            taken = chunk if rows is None else _take(chunk, rows)
            if len(given) == len(schema):
                yield taken
            else:
                yield replace(taken, batch=taken.batch.select(given.names))


class SelectingFileReader(SelectingReader):
    """The same of a format whose files are found by their paths."""

    def __init__(self, source: Source, inner: FileReader) -> None:
        super().__init__(source, inner)
        self._describing = inner

    def describe(self, paths: Sequence[str]) -> tuple[tuple[SourceFile, ...], pa.Schema]:
        files, schema = self._describing.describe(paths)
        if self._condition is not None:
            Filter(self._condition, schema)
        return files, schema


def _take(chunk: Chunk, rows: Filter) -> Chunk:
    if chunk.failed is not None:
        return chunk  # nobody can say whether it would be taken
    taken = rows.take(chunk.batch)
    if len(taken) == chunk.batch.num_rows:
        return chunk
    kept = taken if chunk.kept is None else pc.take(chunk.kept, taken)
    return replace(chunk, batch=chunk.batch.take(taken), kept=kept)
