"""How much to read at a time: little where the steps are slow, so that a segment can end in time; much where that is faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

MOST_ROWS: Final = 65_536
_MOST_BYTES: Final = 8 << 20
#: Nobody knows yet how long a row takes, and a crash is not to cost more than an interval.
_FIRST: Final = 4 / MOST_ROWS
_MOST_S: Final = 1.0
#: A chunk that has not so many times more, or fewer, rows than the one before the change tells nothing about the change.
_LEAST_CHANGE: Final = 1.33
#: What was read before a change comes after it. Where more chunks keep the old size, the source does not follow.
_MOST_STALE: Final = 3


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of the scale that is to be judged by the next chunks: the scale before, and the chunk that was the reason."""

    scale: float
    rows: int
    seconds: float


@dataclass(slots=True)
class BatchSizing:
    """The size of the next chunk, adapted to how long the last ones took.

    Chunks aim at a quarter of the checkpoint interval and at one second at the most: a step of one second a row is then fed
    row by row, and a fast one 65,536 rows at a time. But where smaller chunks take as long (a step that waits for something, for
    all rows at once), they are made larger for as long as more rows are done in a second: up to a quarter of the interval, or
    what even small ones take.
    `least_rows`: not fewer than these, whatever they take, but never more than `most_rows`. Text is read by bytes: who reads it
    divides a chunk that has more.
    """

    interval_s: float
    scale: float = _FIRST
    least_rows: int = 1
    most_rows: int | None = None
    _change: _Change | None = None
    _stale: int = 0
    #: How long chunks take that no other size makes faster; None where that is not known.
    _settled_s: float | None = None

    def __post_init__(self) -> None:
        self.scale = min(max(self.scale, self._smallest), self._largest)

    @property
    def _smallest(self) -> float:
        return min(self.least_rows, self.most_rows or MOST_ROWS, MOST_ROWS) / MOST_ROWS

    @property
    def _largest(self) -> float:
        return max(self._smallest, min(self.most_rows or MOST_ROWS, MOST_ROWS) / MOST_ROWS)

    @property
    def rows(self) -> int:
        return max(1, int(MOST_ROWS * self.scale))

    @property
    def size_bytes(self) -> int:
        return max(1, int(_MOST_BYTES * self.scale))

    def took(self, seconds: float, rows: int | None = None) -> None:
        """Adapt to the time that one chunk took from reading to writing. `rows`: how many it had; by default as many as asked."""
        rows = self.rows if rows is None else rows
        if self._change is not None and not self._judge(self._change, seconds, rows):
            return
        aim_s = min(self.interval_s / 4, _MOST_S)
        if self._settled_s is not None and aim_s / 4 <= seconds <= 2 * self._settled_s:
            return
        self._settled_s = None
        if seconds > aim_s:
            self._change_to(self.scale / max(2.0, seconds / aim_s), seconds, rows)
        elif seconds < aim_s / 4:
            self.scale = min(self._largest, self.scale * 4)

    def _judge(self, change: _Change, seconds: float, rows: int) -> bool:
        """Keep a change that was a gain, and take back another one. Return whether the chunk is to be measured as any other."""
        ratio = rows / max(1, change.rows)
        if (ratio if self.scale > change.scale else 1 / max(ratio, 1e-9)) < _LEAST_CHANGE:
            self._stale += 1
            if self._stale < _MOST_STALE:
                return False
            self._change = None
            return True
        self._change, self._stale = None, 0
        gained_half = (1 + ratio) / 2
        if self.scale < change.scale:
            if seconds <= change.seconds * gained_half:
                return True
            # Fewer rows take as long: then more may, too.
            self.scale = change.scale
            self._grow(change.seconds, change.rows)
        elif seconds * gained_half <= change.seconds * ratio and seconds <= self._most_s(change):
            self._grow(seconds, rows)
        else:
            self.scale, self._settled_s = change.scale, max(change.seconds, _MOST_S / 4)
        return False

    def _most_s(self, change: _Change) -> float:
        return max(self.interval_s / 4, change.seconds * 1.25)

    def _grow(self, seconds: float, rows: int) -> None:
        self._settled_s = max(seconds, _MOST_S / 4)
        if seconds <= self.interval_s:
            self._change_to(self.scale * 2, seconds, rows)

    def _change_to(self, scale: float, seconds: float, rows: int) -> None:
        scale = min(self._largest, max(self._smallest, scale))
        if scale != self.scale:
            self._change, self._stale = _Change(self.scale, rows, seconds), 0
            self.scale = scale


def cut(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Give the batch in pieces of about so many bytes in memory, and of one row at least. Copies nothing."""
    if batch.nbytes <= most_bytes or batch.num_rows <= 1:
        yield batch
        return
    rows = max(1, batch.num_rows * most_bytes // batch.nbytes)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
