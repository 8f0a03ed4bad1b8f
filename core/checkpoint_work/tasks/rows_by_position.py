"""Rows that are known by their positions in files: those of a split, read by a format's reader.

Whoever tries a task again reads the positions that are left. Called by executor.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from checkpoint_formats.files.source_files import for_each
from checkpoint_formats.port import Chunk, Reader
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.selecting import Addresses, addresses_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, Superseded
from checkpoint_protocol.records import PositionsCovered, RowPosition, Seal
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range, merge, subtract
from checkpoint_work.steps.places import Place, PlaceOfGroup


def ranges_of(seal: Seal) -> tuple[Range, ...]:
    """Return the positions that a seal covers. Corrupt if it covers keys: all rows of a write are identified alike."""
    if not isinstance(seal.covered, PositionsCovered):
        raise Corrupt(
            reasons.RECORD_UNREADABLE, f"seal {seal.link} of task {seal.task} of attempt {seal.attempt} has no positions"
        )
    return seal.covered.ranges


@dataclass(frozen=True, slots=True)
class RowsByPosition:
    """A RowSource: some pieces of files. `keeps_groups`: a chunk is what comes together, and a file what is sealed together."""

    pieces: tuple[Range, ...]
    files: Sequence[SourceFile]
    schema: pa.Schema
    reader: Reader
    keeps_groups: bool = False

    def rest(self, chain: tuple[Seal, ...], sizing: BatchSizing, _lost: Superseded | None) -> Iterator[PlacedChunk]:
        for piece in subtract(self.pieces, [piece for seal in chain for piece in ranges_of(seal)]):
            if piece.file >= len(self.files):
                raise Corrupt(
                    reasons.RECORD_UNREADABLE,
                    f"the plan names file {piece.file} of an input of {len(self.files)}: that was removed and put again after "
                    "the plan, as where the write was deleted meanwhile",
                )
            file = self.files[piece.file]
            for chunk in self.reader.read(file, piece, self.schema, sizing):
                placed = PlacedChunk(piece.file, file, chunk)
                yield from [placed] if self.keeps_groups else placed.parts(sizing.most_rows)

    def begin_segment(self) -> _Positions:
        return _Positions(self)


@dataclass(slots=True)
class PlacedChunk:
    """A Batch: a chunk, and the number of its file in the input. A segment may end after any of them."""

    file: int
    source: SourceFile
    chunk: Chunk
    _bounds: Sequence[tuple[int, int]] | None = None
    #: Of a part of a chunk: how that names its rows.
    _place: Place | None = None

    @property
    def rows(self) -> pa.RecordBatch:
        return self.chunk.batch

    @property
    def place(self) -> Place:
        if self._place is not None:
            return self._place
        if self.chunk.group:
            return PlaceOfGroup(self.source.path, self.source.unit, self.chunk.start, name=self.chunk.group)
        return Place(self.source.path, self.source.unit, self.chunk.start, self.chunk.kept, self.source.etag, self._row_bounds)

    @property
    def unreadable(self) -> CheckpointError | None:
        return self.chunk.failed

    @property
    def source_rows(self) -> int:
        return int(self.chunk.batch.num_rows) + (self.chunk.failed is not None)

    @property
    def positions(self) -> int:
        return self.source_rows if self.chunk.end is None else self.chunk.end - self.chunk.start

    @property
    def may_begin_segment(self) -> bool:
        """Always, but within a fragment whose columns become one file, and within a bucket of groups."""
        return (self.source.pack is None and not self.chunk.group) or self.chunk.start == 0

    def addresses(self) -> Addresses:
        """Return where the rows are in their dataset."""
        assert self.source.fragment is not None
        chunk = self.chunk
        if chunk.row_bounds is None:
            kept = np.arange(chunk.batch.num_rows) if chunk.kept is None else chunk.kept.to_numpy().astype(np.int64)
            return addresses_of(self.source.fragment, chunk.start + kept)
        return addresses_of(self.source.fragment, np.array([start for start, _ in chunk.bounds()], np.int64))

    def row_starts(self) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
        """Return the rows' places after the chunk's start; None where positions do not count rows: finding them takes a pass."""
        if self.source.unit == "bytes" or self.chunk.failed is not None:
            return None
        if self._bounds is not None:
            return np.array([start - self.chunk.start for start, _ in self._bounds], np.int64)
        if self.chunk.row_bounds is not None:
            return None
        rows = self.chunk.batch.num_rows
        return np.arange(rows) if self.chunk.kept is None else self.chunk.kept.to_numpy().astype(np.int64)

    def identity_of(self, number: int) -> RowPosition:
        start, end = self._row_bounds()[number]
        return RowPosition(range=Range(file=self.file, start=start, end=end))

    def slice(self, start: int, end: int) -> PlacedChunk:
        """Return some of the rows, with the positions up to the next row: those of rows that were left out are covered, too."""
        chunk, bounds, place = self.chunk, self._row_bounds(), self.place
        first = chunk.start if start == 0 else bounds[start][0]
        last = chunk.end if end == len(bounds) else bounds[end][0]
        kept = pa.array(range(start, end)) if place.kept is None else place.kept.slice(start, end - start)
        rows = bounds[start:end]
        part = Chunk(chunk.batch.slice(start, end - start), first, last, row_bounds=lambda: rows)
        return PlacedChunk(self.file, self.source, part, rows, replace(place, kept=kept, begins=lambda: rows))

    def parts(self, most_rows: int | None) -> Iterator[PlacedChunk]:
        """Give the chunk, or parts of it that have no more rows than these."""
        rows = self.chunk.batch.num_rows
        if most_rows is None or rows <= most_rows:
            yield self
            return
        for start in range(0, rows, most_rows):
            yield self.slice(start, min(start + most_rows, rows))

    def _row_bounds(self) -> Sequence[tuple[int, int]]:
        if self._bounds is None:
            self._bounds = self.chunk.bounds()
        return self._bounds


@dataclass(slots=True)
class _Positions:
    """Where the rows of a segment lie. The files must still be those that were read when it ends."""

    source: RowsByPosition
    #: Of each run of neighbours its file, start and end: of small groups there are many.
    _covered: list[tuple[int, int, int | None]] = field(default_factory=list)
    _rows: int = 0

    def add(self, batch: PlacedChunk, _failed: Sequence[int]) -> None:
        start, end = batch.chunk.start, batch.chunk.end
        if self._covered and self._covered[-1][0] == batch.file and self._covered[-1][2] == start:
            start = self._covered.pop()[1]
        self._covered.append((batch.file, start, end))
        self._rows += batch.source_rows

    def finish(self) -> tuple[PositionsCovered, int]:
        files = [self.source.files[index] for index in sorted({file for file, _, _ in self._covered})]
        # Where each file is one row, a segment is of thousands of them.
        for_each(self.source.reader.check_unchanged, files)
        return PositionsCovered(
            ranges=merge(Range(file=file, start=start, end=end) for file, start, end in self._covered)
        ), self._rows
