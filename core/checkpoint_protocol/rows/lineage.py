"""Which rows of a segment were made of which of its positions, in a few numbers. Pure.

The positions of a segment are counted through all of its ranges, from 0 on, and its rows through all of its files. A `Run` is
so many pieces one after another, each of so many positions, of each of which so many rows were made. A piece of one position is
one row of the source, so that its rows are known exactly; of a larger piece it is known that its rows are of some of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from checkpoint_protocol.rows.positions import Range

#: Pieces, positions of each, rows made of each.
Run = tuple[int, int, int]
#: From one to before another.
Span = tuple[int, int]

#: Some 1.5 kB of a seal. Where rows give now none and now several, neighbours are told as one piece, the smallest first.
MOST_RUNS: Final = 128
#: Which number of a run says what its pieces have.
_POSITIONS: Final = 1
_ROWS: Final = 2


class Lineage:
    """The runs of a segment, gathered piece by piece; never many more than MOST_RUNS."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._most_positions = 2

    def add(self, runs: Iterable[Run]) -> None:
        for pieces, positions, rows in runs:
            if not positions and not rows:
                continue
            if self._runs and self._runs[-1][1:] == (positions, rows):
                pieces += self._runs.pop()[0]
            self._runs.append((pieces, positions, rows))
            if len(self._runs) > 2 * MOST_RUNS:
                self._runs, self._most_positions = _coarser(self._runs, self._most_positions)

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(_coarser(self._runs, self._most_positions)[0])


def _coarser(runs: list[Run], most_positions: int) -> tuple[list[Run], int]:
    """Return no more than MOST_RUNS, in which neighbours are joined to pieces of so many positions, or of as many as it takes."""
    while len(runs) > MOST_RUNS:
        joined: list[Run] = []
        for run in runs:
            if joined and _size(joined[-1]) + _size(run) <= most_positions:
                run = _as_one(joined.pop(), run)
            joined.append(run)
        runs = joined
        if len(runs) > MOST_RUNS:
            most_positions *= 2
    return runs, most_positions


def _size(run: Run) -> int:
    return run[0] * run[_POSITIONS]


def _as_one(first: Run, second: Run) -> Run:
    return 1, _size(first) + _size(second), first[0] * first[_ROWS] + second[0] * second[_ROWS]


def rows_made_of(runs: Sequence[Run], asked: Iterable[Span]) -> tuple[list[Span], bool]:
    """Return which rows were made of some positions, as the fewest spans, and whether exactly these were."""
    return _mapped(runs, asked, _POSITIONS, _ROWS)


def positions_of_rows(runs: Sequence[Run], asked: Iterable[Span]) -> tuple[list[Span], bool]:
    """Return of which positions some rows were made, as the fewest spans, and whether it was each of these."""
    return _mapped(runs, asked, _ROWS, _POSITIONS)


def _mapped(runs: Sequence[Run], asked: Iterable[Span], by: int, to: int) -> tuple[list[Span], bool]:
    found: list[Span] = []
    is_exact = True
    wanted = sorted(asked)
    at_by = at_to = 0
    for run in runs:
        pieces, each, gives = run[0], run[by], run[to]
        for start, end in wanted:
            first, last = max(start, at_by), min(end, at_by + pieces * each)
            if first >= last:
                continue
            from_piece, to_piece = (first - at_by) // each, -(-(last - at_by) // each)
            if gives:
                found.append((at_to + from_piece * gives, at_to + to_piece * gives))
            # Of a piece of several positions from which no row came, each has none.
            is_exact = is_exact and (run[_POSITIONS] == 1 or not run[_ROWS])
        at_by, at_to = at_by + pieces * each, at_to + pieces * gives
    return merged(found), is_exact


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the same numbers as the fewest spans, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if start == end:
            continue
        if found and start <= found[-1][1]:
            start, end = found[-1][0], max(end, found.pop()[1])
        found.append((start, end))
    return found


def counted_in(ranges: Sequence[Range], asked: Callable[[Range], Iterable[Span]]) -> list[Span]:
    """Return what is asked for of each of a segment's ranges, whose ends are known, counted through all of them."""
    found: list[Span] = []
    at = 0
    for piece in ranges:
        assert piece.end is not None
        for start, end in asked(piece):
            first, last = max(start, piece.start), min(end, piece.end)
            if first < last:
                found.append((at + first - piece.start, at + last - piece.start))
        at += piece.end - piece.start
    return merged(found)


def ranges_of(ranges: Sequence[Range], spans: Iterable[Span]) -> Iterator[Range]:
    """Give positions that are counted through all of a segment's ranges as those of its files: the reverse of `counted_in`."""
    wanted = list(spans)
    at = 0
    for piece in ranges:
        assert piece.end is not None
        length = piece.end - piece.start
        for start, end in wanted:
            first, last = max(start, at), min(end, at + length)
            if first < last:
                yield Range(file=piece.file, start=piece.start + first - at, end=piece.start + last - at)
        at += length
