"""Arithmetic of positions, against an oracle that counts on its fingers: sets of (file, position)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from checkpoint_protocol.positions import Range, merge, overlap, subtract

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
