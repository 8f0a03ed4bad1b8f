"""Arithmetic of positions: which parts of which files are done, and which remain. Pure.

A position is a number inside one input file; its unit is fixed per file by the input record (row number, byte offset, or
record number in a text that can only be read from its start). Ranges are half open; an end of None means "to the end of the
file", used where the end is not known before it was read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Range(BaseModel):
    """Positions start <= p < end of the file with this index in the epoch's input record."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    file: int = Field(ge=0)
    start: int = Field(ge=0)
    end: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> Range:
        if self.end is not None and self.end < self.start:
            raise ValueError(f"range ends at {self.end}, before its start {self.start}")
        return self


_INFINITE = 1 << 62


def _interval(piece: Range) -> tuple[int, int]:
    return piece.start, _INFINITE if piece.end is None else piece.end


def _range(file: int, start: int, end: int) -> Range:
    return Range(file=file, start=start, end=None if end >= _INFINITE else end)


def merge(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the same positions as the fewest ranges, sorted by file and start. Empty ranges vanish."""
    by_file: dict[int, list[tuple[int, int]]] = {}
    for piece in ranges:
        start, end = _interval(piece)
        if start < end:
            by_file.setdefault(piece.file, []).append((start, end))
    merged: list[Range] = []
    for file in sorted(by_file):
        intervals = sorted(by_file[file])
        current_start, current_end = intervals[0]
        for start, end in intervals[1:]:
            if start <= current_end:
                current_end = max(current_end, end)
            else:
                merged.append(_range(file, current_start, current_end))
                current_start, current_end = start, end
        merged.append(_range(file, current_start, current_end))
    return tuple(merged)


def subtract(ranges: Iterable[Range], covered: Iterable[Range]) -> tuple[Range, ...]:
    """Return the positions of `ranges` that are not in `covered`, as sorted disjoint ranges."""
    holes: dict[int, list[tuple[int, int]]] = {}
    for piece in merge(covered):
        holes.setdefault(piece.file, []).append(_interval(piece))
    remaining: list[Range] = []
    for piece in merge(ranges):
        start, end = _interval(piece)
        for hole_start, hole_end in holes.get(piece.file, ()):
            if hole_end <= start or hole_start >= end:
                continue
            if start < hole_start:
                remaining.append(_range(piece.file, start, hole_start))
            start = max(start, hole_end)
            if start >= end:
                break
        if start < end:
            remaining.append(_range(piece.file, start, end))
    return tuple(remaining)


def overlap(ranges: Iterable[Range]) -> tuple[Range, Range] | None:
    """Return two of the ranges that share a position, or None: rows counted twice would show here."""
    previous: Range | None = None
    for piece in sorted((r for r in ranges if _interval(r)[0] < _interval(r)[1]), key=lambda r: (r.file, *_interval(r))):
        if previous is not None and previous.file == piece.file and piece.start < _interval(previous)[1]:
            return previous, piece
        if previous is None or previous.file != piece.file or _interval(piece)[1] > _interval(previous)[1]:
            previous = piece
    return None


class Pieces:
    """Many ranges, in sixteen bytes each."""

    def __init__(self) -> None:
        self._bounds: dict[int, array[int]] = {}

    def add(self, ranges: Iterable[Range]) -> None:
        for piece in ranges:
            start, end = _interval(piece)
            if start < end:
                self._bounds.setdefault(piece.file, array("q")).extend((start, end))

    def first_overlap(self) -> Range | None:
        """Return a range that shares a position with another; None if every position is there once."""
        for file in sorted(self._bounds):
            previous_end = 0
            for start, end in self._intervals(file):
                if start < previous_end:
                    return _range(file, start, end)
                previous_end = end
        return None

    def merged(self) -> tuple[Range, ...]:
        """Return the same positions as the fewest ranges, sorted by file and start."""
        found: list[Range] = []
        for file in sorted(self._bounds):
            start = end = -1
            for next_start, next_end in self._intervals(file):
                if next_start > end:
                    if end >= 0:
                        found.append(_range(file, start, end))
                    start = next_start
                end = max(end, next_end)
            found.append(_range(file, start, end))
        return tuple(found)

    def _intervals(self, file: int) -> list[tuple[int, int]]:
        bounds = self._bounds[file]
        return sorted(zip(bounds[::2], bounds[1::2], strict=True))
