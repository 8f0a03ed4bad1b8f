"""Which rows were made of which positions, from a few numbers in a seal: never wrong, and exact where nothing was joined."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from checkpoint_protocol.rows.lineage import (
    MOST_RUNS,
    Lineage,
    Run,
    counted_in,
    merged,
    positions_of_rows,
    ranges_of,
    rows_made_of,
)
from checkpoint_protocol.rows.positions import Range

COUNTS = st.lists(st.integers(0, 3), max_size=400)


def lineage_of(counts: list[int]) -> tuple[Run, ...]:
    lineage = Lineage()
    for made in counts:
        lineage.add([(1, 1, made)])
    return lineage.runs


def numbers_in(spans: list[tuple[int, int]]) -> set[int]:
    return {number for start, end in spans for number in range(start, end)}


def test_a_row_for_each_is_one_run() -> None:
    assert lineage_of([1] * 100_000) == ((100_000, 1, 1),)


@given(COUNTS)
def test_rows_and_positions_lead_to_each_other_and_are_exact_where_it_is_said(counts: list[int]) -> None:
    runs = lineage_of(counts)
    ends = list(accumulate(counts, initial=0))

    assert len(runs) <= MOST_RUNS
    assert sum(pieces * positions for pieces, positions, _ in runs) == len(counts)
    assert sum(pieces * rows for pieces, _, rows in runs) == sum(counts)
    for position, made in enumerate(counts):
        rows = set(range(ends[position], ends[position] + made))
        spans, is_exact = rows_made_of(runs, [(position, position + 1)])
        assert rows <= numbers_in(spans)
        assert rows == numbers_in(spans) or not is_exact
        for row in rows:
            back, is_exact = positions_of_rows(runs, [(row, row + 1)])
            assert position in numbers_in(back)
            assert numbers_in(back) == {position} or not is_exact


@given(st.lists(st.integers(0, 3), max_size=MOST_RUNS))
def test_few_rows_are_always_traced_exactly(counts: list[int]) -> None:
    runs = lineage_of(counts)

    assert all(rows_made_of(runs, [(position, position + 1)])[1] for position in range(len(counts)))


def test_of_many_rows_that_give_now_none_and_now_several_the_smallest_pieces_are_joined_first() -> None:
    runs = lineage_of([1] * 10_000 + [0, 2] * 1_000)

    assert runs[0] == (10_000, 1, 1)
    assert rows_made_of(runs, [(17, 18)]) == ([(17, 18)], True)
    ((first, last),), is_exact = rows_made_of(runs, [(10_500, 10_501)])
    assert not is_exact
    assert last - first <= 64


def test_a_piece_from_which_no_row_came_is_exact_whatever_its_size() -> None:
    assert rows_made_of([(1, 1_000, 0), (5, 1, 1)], [(3, 4)]) == ([], True)


def test_positions_are_counted_through_all_ranges_and_back() -> None:
    ranges = (Range(file=0, start=10, end=14), Range(file=2, start=0, end=3))

    assert counted_in(ranges, lambda piece: [(12, 100)] if piece.file == 0 else [(0, 1)]) == [(2, 5)]
    assert list(ranges_of(ranges, [(2, 5)])) == [Range(file=0, start=12, end=14), Range(file=2, start=0, end=1)]


def test_spans_are_told_as_the_fewest() -> None:
    assert merged([(5, 7), (0, 2), (2, 3), (6, 9), (4, 4)]) == [(0, 3), (5, 9)]
