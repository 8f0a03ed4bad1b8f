"""Arithmetic of positions, against an oracle that counts on its fingers: sets of (file, position)."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from checkpoint_protocol.rows import positions
from checkpoint_protocol.rows.positions import Cover, Range, merge, overlap, subtract

#: Positions from here on stand for "for ever" in the oracle.
END = 24

Position = tuple[int, int]


def positions_in(*pieces: Range) -> set[Position]:
    return {(piece.file, at) for piece in pieces for at in range(piece.start, END + 1 if piece.end is None else piece.end)}


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    start = draw(st.integers(0, END))
    end = draw(st.none() | st.integers(start, END))
    return Range(file=draw(st.integers(0, 2)), start=start, end=end)


many = st.lists(ranges(), max_size=6)


def assert_sorted_disjoint_and_fewest(pieces: tuple[Range, ...]) -> None:
    for before, after in itertools.pairwise(pieces):
        assert before.file <= after.file
        if before.file == after.file:
            assert before.end is not None
            assert before.end < after.start, "touching ranges are one range"
    assert all(piece.end is None or piece.start < piece.end for piece in pieces)


@given(many)
@settings(deadline=None)
def test_merge_keeps_exactly_the_positions_in_the_fewest_ranges(pieces: list[Range]) -> None:
    merged = merge(pieces)

    assert positions_in(*merged) == positions_in(*pieces)
    assert_sorted_disjoint_and_fewest(merged)


@given(many, many)
@settings(deadline=None)
def test_subtract_keeps_exactly_the_positions_that_are_not_covered(pieces: list[Range], covered: list[Range]) -> None:
    remaining = subtract(pieces, covered)

    assert positions_in(*remaining) == positions_in(*pieces) - positions_in(*covered)
    assert_sorted_disjoint_and_fewest(remaining)


@given(many)
@settings(deadline=None)
def test_overlap_names_two_ranges_that_share_a_position_exactly_if_there_are_two(pieces: list[Range]) -> None:
    found = overlap(pieces)

    total = sum(len(positions_in(piece)) for piece in pieces)
    if total == len(positions_in(*pieces)):
        assert found is None
    else:
        assert found is not None
        first, second = found
        assert positions_in(first) & positions_in(second)
        assert pieces.count(first) + pieces.count(second) >= 2
        assert first in pieces
        assert second in pieces


@given(many, many)
@settings(deadline=None)
def test_what_remains_and_what_is_covered_never_overlap_and_make_the_whole(pieces: list[Range], covered: list[Range]) -> None:
    remaining = subtract(pieces, covered)

    assert overlap([*remaining, *merge(covered)]) is None
    assert merge([*remaining, *covered]) == merge([*pieces, *covered])


@pytest.mark.parametrize(
    ("pieces", "covered", "remaining"),
    [
        ([(0, 0, None)], [(0, 0, 10)], [(0, 10, None)]),
        ([(0, 0, None)], [(0, 10, None)], [(0, 0, 10)]),
        ([(0, 0, None)], [(0, 0, None)], []),
        ([(0, 5, None)], [(0, 0, 5)], [(0, 5, None)]),
        ([(0, 0, 10)], [(0, 3, 4), (0, 6, None)], [(0, 0, 3), (0, 4, 6)]),
        ([(0, 0, 10)], [(1, 0, None)], [(0, 0, 10)]),
        ([(0, 0, 10)], [(0, 4, 4)], [(0, 0, 10)]),
        ([(0, 7, 7)], [], []),
        ([(0, 0, 1 << 40)], [(0, 1, (1 << 40) - 1)], [(0, 0, 1), (0, (1 << 40) - 1, 1 << 40)]),
    ],
)
def test_subtract_with_open_and_empty_ends(
    pieces: list[tuple[int, int, int | None]],
    covered: list[tuple[int, int, int | None]],
    remaining: list[tuple[int, int, int | None]],
) -> None:
    def as_ranges(plain: list[tuple[int, int, int | None]]) -> list[Range]:
        return [Range(file=file, start=start, end=end) for file, start, end in plain]

    assert list(subtract(as_ranges(pieces), as_ranges(covered))) == as_ranges(remaining)


def test_ranges_that_touch_do_not_overlap() -> None:
    assert overlap([Range(file=0, start=0, end=5), Range(file=0, start=5, end=None)]) is None


def test_an_overlap_behind_a_long_range_is_found() -> None:
    long, inside, later = Range(file=0, start=0, end=100), Range(file=0, start=5, end=6), Range(file=0, start=50, end=60)

    assert overlap([inside, long]) == (long, inside)
    assert overlap([later, long]) == (long, later)


def test_the_same_positions_of_different_files_do_not_overlap() -> None:
    assert overlap([Range(file=0, start=0, end=None), Range(file=1, start=0, end=None)]) is None


@pytest.mark.parametrize(
    "plain", [{"start": 5, "end": 4}, {"start": -1, "end": 4}, {"start": 0, "end": 1, "to": 2}, {"start": "0"}, {"start": 0.0}]
)
def test_a_range_that_is_none_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Range(file=0, **plain)


# --- how the work grows -----------------------------------------------------------------------------------------------------


def lines_run(work: Callable[[], object], *modules: ModuleType) -> int:
    """Return how many lines of these modules a piece of work runs: as many each time, however fast the machine is."""
    names, count = {module.__file__ for module in modules}, 0

    def trace(frame: FrameType, _event: str, _argument: object) -> Any:
        return count_lines if frame.f_code.co_filename in names else None

    def count_lines(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return count_lines

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def single_rows(count: int) -> list[Range]:
    return [Range(file=0, start=2 * row, end=2 * row + 1) for row in range(count)]


#: For a number of single rows: what is subtracted from what.
SUBTRACTIONS: dict[str, Callable[[int], tuple[list[Range], list[Range]]]] = {
    "all from all": lambda n: (single_rows(n), single_rows(n)),
    "every other": lambda n: (single_rows(n), single_rows(n)[::2]),
    "from one": lambda n: ([Range(file=0, start=0, end=2 * n)], single_rows(n)),
    "one from them": lambda n: (single_rows(n), [Range(file=0, start=0, end=2 * n)]),
    "the last": lambda n: (single_rows(n), single_rows(n)[-1:]),
    "of many files": lambda n: (
        [Range(file=file, start=0, end=2) for file in range(n)],
        [Range(file=file, start=1, end=2) for file in range(n)],
    ),
    "backwards": lambda n: (single_rows(n)[::-1], single_rows(n)[::-1]),
}


@pytest.mark.parametrize("name", SUBTRACTIONS)
def test_subtracting_four_times_as_many_single_rows_takes_about_four_times_the_work(name: str) -> None:
    def work(count: int) -> int:
        ranges, taken = SUBTRACTIONS[name](count)
        return lines_run(lambda: subtract(ranges, taken), positions)

    assert work(1_200) < 5 * work(300)


@given(many, ranges())
@settings(deadline=None)
def test_a_cover_holds_exactly_what_is_covered(pieces: list[Range], asked: Range) -> None:
    assert Cover(pieces).holds(asked) == (positions_in(asked) <= positions_in(*pieces))
