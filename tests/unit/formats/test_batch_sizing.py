"""How much is read at a time: little where the steps are slow, much where they are fast, and never nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_formats.rows.batch_sizing import BatchSizing

LONG = 3_600.0


def settle(interval_s: float, seconds_a_row: float, overhead_s: float = 0.0, chunks: int = 60) -> BatchSizing:
    """Return the sizing after some chunks of steps that take so long."""
    sizing = BatchSizing(interval_s)
    for _ in range(chunks):
        sizing.took(sizing.rows * seconds_a_row + overhead_s)
    return sizing


def test_the_first_chunk_is_small_whatever_the_interval() -> None:
    assert BatchSizing(0.01).rows == BatchSizing(LONG).rows == 4


def test_fast_steps_are_fed_the_largest_chunks() -> None:
    assert settle(LONG, 1e-9).rows == 65_536
    assert settle(LONG, 1e-9).size_bytes == 8 << 20


def test_steps_of_a_second_a_row_are_fed_row_by_row() -> None:
    assert settle(LONG, 1.0).rows == 1
    assert settle(LONG, 60.0).rows == 1


@pytest.mark.parametrize("seconds_a_row", [1e-5, 1e-4, 1e-3, 1e-2])
def test_a_chunk_takes_about_a_second_at_the_most(seconds_a_row: float) -> None:
    sizing = settle(LONG, seconds_a_row)

    assert 0.2 < sizing.rows * seconds_a_row <= 1.0


@pytest.mark.parametrize("interval_s", [0.4, 1.0, 2.0])
def test_a_chunk_takes_a_quarter_of_a_short_interval_at_the_most(interval_s: float) -> None:
    assert settle(interval_s, 1e-4).rows * 1e-4 <= interval_s / 4


def test_a_slow_chunk_shrinks_the_next_by_as_much_as_it_was_too_slow() -> None:
    sizing = settle(LONG, 1e-9)
    sizing.took(100.0)

    assert sizing.rows == 655


def test_steps_that_become_fast_again_get_large_chunks_again() -> None:
    sizing = settle(LONG, 60.0)
    for _ in range(20):
        sizing.took(0.001)

    assert sizing.rows == 65_536


def sizes(interval_s: float, seconds_of: Callable[[int], float], chunks: int = 60, least_rows: int = 1) -> list[int]:
    """Return the rows of each chunk, where one is read ahead, as tasks do: a change shows in the chunk after the next one."""
    sizing = BatchSizing(interval_s, least_rows=least_rows)
    given, ahead = [], sizing.rows
    for _ in range(chunks):
        now, ahead = ahead, sizing.rows
        given.append(now)
        sizing.took(seconds_of(now), now)
    return given


@pytest.mark.parametrize("seconds", [1.5, 5.0, 20.0])
def test_a_step_that_waits_for_all_rows_of_a_chunk_at_once_gets_larger_ones(seconds: float) -> None:
    """As one that calls a service with asyncio.gather: it was fed 28 28 14 7 3 1 1 1 rows before, 1.5 s each."""
    given = sizes(60.0, lambda _: seconds)

    assert min(given) >= 1
    assert sum(given[:16]) >= 900
    assert given[-1] == 65_536


def test_chunks_stop_to_grow_where_more_rows_gain_no_time() -> None:
    given = sizes(60.0, lambda rows: 1.5 + 0.05 * rows)

    settled = given[-20:]
    assert len(set(settled)) == 1
    assert 16 <= settled[0] <= 256
    assert 1.5 + 0.05 * settled[0] <= 15.0


def test_where_smaller_chunks_are_faster_they_stay_small() -> None:
    given = sizes(60.0, lambda rows: 1.0 * rows)

    assert given[:2] == [4, 4]
    assert set(given[2:]) == {1}


def test_a_step_that_does_n_rows_at_once_is_never_fed_fewer() -> None:
    given = sizes(60.0, lambda rows: 10.0 * -(-rows // 64), least_rows=64)

    assert min(given) == 64
    assert given[-1] in (64, 128)


def test_a_step_that_becomes_slow_after_it_was_settled_gets_smaller_chunks() -> None:
    sizing = BatchSizing(60.0)
    for _ in range(30):
        sizing.took(1.5, sizing.rows)
    for _ in range(10):
        sizing.took(0.5 * sizing.rows, sizing.rows)

    assert sizing.rows * 0.5 <= 2.0


@given(st.floats(1e-3, 1e5), st.lists(st.floats(0, 1e6), max_size=50))
def test_there_is_always_something_to_read_and_never_more_than_the_bound(interval_s: float, times: list[float]) -> None:
    sizing = BatchSizing(interval_s)
    for seconds in times:
        sizing.took(seconds)
        assert 1 <= sizing.rows <= 65_536
        assert 1 <= sizing.size_bytes <= 8 << 20
