"""When a segment ends, and that a deadline always leaves it time: neither by default nor by a manifest is it too short."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_protocol.deadlines import derived_progress_deadline_s, is_due, least_progress_deadline_s, longest_segment_s
from checkpoint_protocol.manifest.spec import ManifestInvalid, Spec, parse_manifest
from tests.support.manifests import manifest


def spec(**fields: Any) -> Spec:
    return parse_manifest(manifest(**{f"spec__{path}": value for path, value in fields.items()})).spec


@given(st.floats(0.001, 1e6), st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.floats(0, 1e9))
def test_twice_the_time_after_which_a_segment_ends_is_within_every_deadline(
    interval_s: float, minimum_bytes: int, size_bytes: int, at_work_s: float
) -> None:
    for deadline_s in (
        least_progress_deadline_s(interval_s, minimum_bytes),
        derived_progress_deadline_s(interval_s, minimum_bytes),
    ):
        assert is_due(deadline_s / 2, at_work_s, size_bytes, interval_s, minimum_bytes)


@pytest.mark.parametrize(
    ("at_work_s", "longest_s"), [(60.0, 60.0), (1_200.0, 60.0), (2_400.0, 120.0), (12_000.0, 600.0), (360_000.0, 600.0)]
)
def test_small_output_is_sealed_after_a_twentieth_of_the_time_at_work(at_work_s: float, longest_s: float) -> None:
    interval_s, minimum_bytes = spec().checkpoint.interval, spec().checkpoint.minimum_bytes

    assert not is_due(longest_s - 1, at_work_s, 1, interval_s, minimum_bytes)
    assert is_due(longest_s, at_work_s, 1, interval_s, minimum_bytes)
    assert longest_segment_s(at_work_s, interval_s) == longest_s


def test_large_output_is_sealed_after_an_interval() -> None:
    assert is_due(60.0, 36_000.0, 8 << 20, 60.0, 8 << 20)


def test_a_segment_ends_before_rows_that_would_take_too_long() -> None:
    assert is_due(40.0, 40.0, 1, 60.0, 8 << 20, following_s=21.0)
    assert not is_due(40.0, 40.0, 1, 60.0, 8 << 20, following_s=20.0)


def test_by_default_an_attempt_is_given_up_after_twice_the_longest_segment() -> None:
    assert spec().progress_deadline_s == 1200.0


@pytest.mark.parametrize(
    ("interval", "deadline_s"), [("15m", 18_000.0), ("1h", 72_000.0), ("31s", 620.0), ("1s", 600.0), ("0.01s", 600.0)]
)
def test_the_default_deadline_follows_from_the_interval_and_leaves_time_to_start(interval: str, deadline_s: float) -> None:
    assert spec(checkpoint__interval=interval).progress_deadline_s == deadline_s


def test_a_deadline_that_is_given_stands() -> None:
    assert spec(checkpoint__interval="1s", progressDeadlineSeconds=20).progress_deadline_s == 20.0


def test_where_any_size_is_enough_two_intervals_are() -> None:
    assert spec(checkpoint__interval="5m", checkpoint__minimumBytes="0", progressDeadlineSeconds=600).progress_deadline_s == 600.0


@pytest.mark.parametrize(("interval", "least_s"), [("60s", 1200), ("15m", 18_000), ("0.777s", 16), ("0.000000001s", 10)])
def test_a_deadline_that_no_attempt_could_keep_is_refused(interval: str, least_s: int) -> None:
    assert spec(checkpoint__interval=interval, progressDeadlineSeconds=least_s)
    with pytest.raises(ManifestInvalid, match=r"spec\.progressDeadlineSeconds: "):
        spec(checkpoint__interval=interval, progressDeadlineSeconds=least_s - 1)


def test_a_segment_ends_before_it_has_more_rows_than_a_crash_may_cost() -> None:
    assert not is_due(0.0, 0.0, 0, 3600.0, 1, rows=500, maximum_rows=500)
    assert is_due(0.0, 0.0, 0, 3600.0, 1, rows=501, maximum_rows=500)
    assert not is_due(0.0, 0.0, 0, 3600.0, 1, rows=1_000_000)
