"""Arithmetic of positions: which parts of which files are done, and which remain. Pure.

A position is a number inside one input file; its unit is fixed per file by the input record (row number, byte offset, or
record number in a text that can only be read from its start). Ranges are half open; an end of None means "to the end of the
file", used where the end is not known before it was read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import ConfigDict, Field, GetCoreSchemaHandler
from pydantic.dataclasses import dataclass
from pydantic_core import CoreSchema

from checkpoint_protocol.plain_values import of_plain_values

_Position = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class Range:
    """Positions start <= p < end of the file with this index in the epoch's input record.

    With slots, and no pydantic model: a plan has one for each of a million files, and a model takes five times the memory.
    """

    file: _Position
    start: _Position
    end: _Position | None = None

    def __post_init__(self) -> None:
        if self.end is not None and self.end < self.start:
            raise ValueError(f"range ends at {self.end}, before its start {self.start}")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: CoreSchema = of_plain_values(handler(source))
        return schema


_INFINITE = 1 << 62


def _interval(piece: Range) -> tuple[int, int]:
    return piece.start, _INFINITE if piece.end is None else piece.end


def _range(file: int, start: int, end: int) -> Range:
    return Range(file=file, start=start, end=None if end >= _INFINITE else end)


def _merged(ranges: Iterable[Range]) -> Iterator[tuple[int, int, int]]:
    """Give the same positions as file, start and end, in the fewest and in order."""
    plain = [(piece.file, *_interval(piece)) for piece in ranges]
    plain.sort()  # costs next to nothing where they are in order already
    file = start = end = -1
    for next_file, next_start, next_end in plain:
        if next_start == next_end:
            continue
        if next_file == file and next_start <= end:
            end = max(end, next_end)
            continue
        if file >= 0:
            yield file, start, end
        file, start, end = next_file, next_start, next_end
    if file >= 0:
        yield file, start, end


def merge(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the same positions as the fewest ranges, sorted by file and start. Empty ranges vanish."""
    return tuple(_range(*plain) for plain in _merged(ranges))


def subtract(ranges: Iterable[Range], covered: Iterable[Range]) -> tuple[Range, ...]:
    """Return the positions of `ranges` that are not in `covered`, as sorted disjoint ranges. Goes once through both."""
    holes = _merged(covered)
    hole = next(holes, None)
    remaining: list[Range] = []
    for file, start, end in _merged(ranges):
        while hole is not None and (hole[0], hole[2]) <= (file, start):
            hole = next(holes, None)
        while hole is not None and hole[0] == file and hole[1] < end and start < end:
            if start < hole[1]:
                remaining.append(_range(file, start, hole[1]))
            start = hole[2]
            if start < end:  # else it may reach into the next range
                hole = next(holes, None)
        if start < end:
            remaining.append(_range(file, start, end))
    return tuple(remaining)


def overlap(ranges: Iterable[Range]) -> tuple[Range, Range] | None:
    """Return two of the ranges that share a position, or None: rows counted twice would show here."""
    previous: Range | None = None
    for piece in sorted((r for r in ranges if _interval(r)[0] < _interval(r)[1]), key=lambda r: (r.file, *_interval(r))):
        if previous is not None and previous.file == piece.file and piece.start < _interval(previous)[1]:
            return previous, piece
        previous = piece
    return None


class Cover:
    """Positions that are asked for piece by piece, in any order: each takes a search, and no pass through all of them."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        merged = list(_merged(ranges))
        self._starts = [(file, start) for file, start, _ in merged]
        self._ends = [end for _, _, end in merged]

    def holds(self, piece: Range) -> bool:
        """Whether all positions of a piece are among them."""
        start, end = _interval(piece)
        if start == end:
            return True
        at = bisect_right(self._starts, (piece.file, start)) - 1
        return at >= 0 and self._starts[at][0] == piece.file and self._ends[at] >= end


class Pieces:
    """Many ranges, in twenty-four bytes each."""

    def __init__(self) -> None:
        self._files, self._starts, self._ends = array("q"), array("q"), array("q")

    def add(self, ranges: Iterable[Range]) -> None:
        for piece in ranges:
            start, end = _interval(piece)
            if start < end:
                self._files.append(piece.file)
                self._starts.append(start)
                self._ends.append(end)

    def by_file(self) -> Iterator[tuple[int, tuple[Range, ...]]]:
        """Give each file that has any with its ranges as they were added, sorted by start; files rise."""
        found: list[Range] = []
        for number in sorted(range(len(self._files)), key=lambda number: (self._files[number], self._starts[number])):
            piece = _range(self._files[number], self._starts[number], self._ends[number])
            if found and found[-1].file != piece.file:
                yield found[-1].file, tuple(found)
                found = []
            found.append(piece)
        if found:
            yield found[-1].file, tuple(found)

    def merged(self) -> tuple[Range, ...]:
        """Return the same positions as the fewest ranges, sorted by file and start."""
        return merge(piece for _, pieces in self.by_file() for piece in pieces)
