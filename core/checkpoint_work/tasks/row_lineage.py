"""Which rows of a segment were made of which of its positions, as its seal tells it: see `checkpoint_protocol.rows.lineage`.

Called by segments.py. Known where rows lie at positions; not where keys tell them apart, nor of groups of rows with one key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkpoint_protocol.rows.lineage import MOST_RUNS, Lineage, Run
from checkpoint_work.steps.batches import Batch
from checkpoint_work.steps.row_numbers import taken_off
from checkpoint_work.tasks.rows_by_position import PlacedChunk

_Numbers = npt.NDArray[np.int64]


@dataclass(slots=True)
class LineageOfSegment:
    """Gathers the lineage of a segment, group by group."""

    _lineage: Lineage = field(default_factory=Lineage)
    _is_known: bool = True
    #: The last group went to an end of a file that nobody knew: positions behind it cannot be counted.
    _has_ended: bool = False

    def begin(self, batches: Sequence[Batch]) -> LineageOfGroup:
        return LineageOfGroup(self, batches)

    @property
    def runs(self) -> tuple[Run, ...] | None:
        return self._lineage.runs if self._is_known else None

    def add(self, batches: Sequence[Batch], numbers: _Numbers | None, rows: int) -> None:
        """Take a group of which so many rows were made; `numbers`: of which of its rows each was, None: not known."""
        chunks = [batch for batch in batches if isinstance(batch, PlacedChunk) and not batch.chunk.group]
        if self._has_ended or len(chunks) < len(batches):
            self._is_known = False
        if not self._is_known:
            return
        self._has_ended = any(chunk.chunk.end is None for chunk in chunks)
        if self._has_ended and chunks[-1].chunk.end is not None:
            self._is_known = False
            return
        self._lineage.add(_runs_of(chunks, numbers, rows))


@dataclass(slots=True)
class LineageOfGroup:
    """Takes the numbers of a group's rows off as they are made."""

    segment: LineageOfSegment
    batches: Sequence[Batch]
    _numbers: list[_Numbers] = field(default_factory=list)
    _is_known: bool = True
    _rows: int = 0

    def taken(self, made: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows as the table has them."""
        rows, numbers = taken_off(made)
        self._rows += rows.num_rows
        if numbers is None or numbers.null_count:
            self._is_known = False
        else:
            self._numbers.append(numbers.to_numpy().astype(np.int64))
        return rows

    def end(self) -> None:
        numbers = np.concatenate([np.zeros(0, np.int64), *self._numbers]) if self._is_known else None
        if numbers is not None and np.any(np.diff(numbers) < 0):
            numbers = None
        self.segment.add(self.batches, numbers, self._rows)


def _runs_of(chunks: Sequence[PlacedChunk], numbers: _Numbers | None, rows: int) -> Iterator[Run]:
    if numbers is None:
        yield 1, sum(chunk.positions for chunk in chunks), rows
        return
    first = 0
    for chunk in chunks:
        count = chunk.chunk.batch.num_rows
        low, high = np.searchsorted(numbers, (first, first + count))
        starts = chunk.row_starts()
        if starts is None:
            yield 1, chunk.positions, int(high - low)
        else:
            yield from _of_rows(starts, np.bincount(numbers[low:high] - first, minlength=count), chunk.positions)
        first += count


def _of_rows(starts: _Numbers, made: npt.NDArray[Any], positions: int) -> Iterator[Run]:
    """Give runs of rows of one position each, and of what lies between them, which was left out."""
    sizes, rows = np.ones(2 * len(starts) + 1, np.int64), np.zeros(2 * len(starts) + 1, np.int64)
    rows[1::2] = made
    sizes[::2] = np.append(starts, positions) - np.append(0, starts + 1)
    filled = sizes > 0
    sizes, rows = sizes[filled], rows[filled]
    begins = np.flatnonzero(np.append(True, (np.diff(sizes) != 0) | (np.diff(rows) != 0)))[: len(sizes)]
    pieces = np.diff(np.append(begins, len(sizes)))
    yield from zip(*(column.tolist() for column in _few(pieces, sizes[begins], rows[begins])), strict=True)


def _few(pieces: _Numbers, sizes: _Numbers, rows: _Numbers) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return no more runs than a seal has: there may be as many as rows. Neighbours are joined, the smallest first."""
    most_positions = 2
    while len(pieces) > MOST_RUNS:
        positions, made = pieces * sizes, pieces * rows
        ends = np.cumsum(positions)
        places = (ends - positions) // most_positions
        is_alone = np.maximum(ends - 1, ends - positions) // most_positions != places
        begins = np.flatnonzero(np.append(True, (np.diff(places) != 0) | is_alone[1:] | is_alone[:-1]))
        is_one = np.diff(np.append(begins, len(pieces))) == 1
        sizes = np.where(is_one, sizes[begins], np.add.reduceat(positions, begins))
        rows = np.where(is_one, rows[begins], np.add.reduceat(made, begins))
        pieces = np.where(is_one, pieces[begins], 1)
        most_positions *= 2
    return pieces, sizes, rows
