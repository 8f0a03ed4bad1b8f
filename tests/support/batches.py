"""Batches of numbered rows, as a task takes them from its source."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.records import RowPosition
from checkpoint_protocol.rows.positions import Range
from checkpoint_work.steps.places import Place


class Rows:
    """A batch of numbered rows, from one number to before another."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.unreadable: CheckpointError | None = None

    @property
    def rows(self) -> pa.RecordBatch:
        return pa.record_batch({"id": pa.array(range(self.start, self.end), pa.int64())})

    @property
    def place(self) -> Place:
        return Place("in", "rows", self.start)

    @property
    def source_rows(self) -> int:
        return self.end - self.start

    @property
    def positions(self) -> int:
        return self.end - self.start

    @property
    def may_begin_segment(self) -> bool:
        return True

    def identity_of(self, number: int) -> RowPosition:
        return RowPosition(range=Range(file=0, start=self.start + number, end=self.start + number + 1))

    def slice(self, start: int, end: int) -> Rows:
        return Rows(self.start + start, self.start + end)


def batches(rows: int, size: int = 10) -> Iterator[Rows]:
    for start in range(0, rows, size):
        yield Rows(start, min(rows, start + size))
