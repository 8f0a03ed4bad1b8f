"""Rows that are newer than a sequence number, out of what another reader gives with their row lineage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

from checkpoint_formats.iceberg.changed import ChangedRowsReader
from checkpoint_formats.port import Chunk, Reader
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

SCHEMA = pa.schema([("id", pa.int64())])
FILE = SourceFile(path="/table/0.parquet", etag="", size_bytes=1, unit="rows", end=9)


@dataclass(frozen=True)
class Rows(Reader):
    """Gives rows that were updated at these sequence numbers; `kept` are their numbers in the file, from 2 on."""

    updated_at: Sequence[int | None]
    kept: Sequence[int] | None

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        rows = len(self.updated_at)
        columns = [pa.array(range(rows), pa.int64()), pa.array(range(rows), pa.int64()), pa.array(self.updated_at, pa.int64())]
        kept = None if self.kept is None else pa.array(self.kept, pa.uint64())
        yield Chunk(pa.RecordBatch.from_arrays(columns, schema=schema), piece.start, piece.end, kept)

    def check_unchanged(self, file: SourceFile) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("updated_at", "kept", "ids", "bounds"),
    [
        ([5, 6, 4, 7], None, [1, 3], [(3, 4), (5, 6)]),
        ([5, 6, 7], [0, 3, 4], [1, 2], [(5, 6), (6, 7)]),
        ([6, 7], None, [0, 1], [(2, 3), (3, 4)]),
        ([6, 7], [1, 3], [0, 1], [(3, 4), (5, 6)]),
        ([1, 2], None, [], []),
        ([None, 5], None, [0], [(2, 3)]),
        ([], None, [], []),
    ],
)
def test_rows_of_later_snapshots_are_given_with_their_places_and_those_of_which_nothing_is_known(
    updated_at: list[int | None], kept: list[int] | None, ids: list[int], bounds: list[tuple[int, int]]
) -> None:
    reader = ChangedRowsReader(Rows(updated_at, kept), after=5)

    (chunk,) = reader.read(FILE, Range(file=0, start=2, end=9), SCHEMA, BatchSizing(100))

    assert chunk.batch.schema == SCHEMA
    assert chunk.batch.column("id").to_pylist() == ids
    assert list(chunk.bounds()) == bounds
    assert (chunk.start, chunk.end) == (2, 9)
