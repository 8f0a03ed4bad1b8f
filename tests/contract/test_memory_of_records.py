"""What a hostile driver's records cost whoever reads them, in memory: measured, each in a process of its own."""

from __future__ import annotations

from typing import Final

import pytest

from tests.contract.hostile_records import BUDGET_BYTES, SHAPES
from tests.support.peaks import Peak, peaks

#: What any work takes besides.
_BESIDES_MB: Final = 24


@pytest.fixture(scope="module")
def measured() -> dict[str, Peak]:
    return peaks("tests.contract.hostile_records", "CASES")


@pytest.mark.parametrize("name", SHAPES)
def test_a_record_of_any_shape_takes_no_more_memory_than_was_waited_for(name: str, measured: dict[str, Peak]) -> None:
    peak = measured[f"decode {name}"]

    assert peak.megabytes < int(peak.returned) + _BESIDES_MB


@pytest.mark.parametrize("name", SHAPES)
def test_a_record_is_read_within_the_budget_or_refused(name: str, measured: dict[str, Peak]) -> None:
    assert measured[f"read {name}"].megabytes < BUDGET_BYTES / 2**20 + _BESIDES_MB


def test_a_record_that_would_take_more_than_there_is_says_so_and_what_to_do(measured: dict[str, Peak]) -> None:
    told = measured["read keys objects"].returned

    assert told.startswith("Corrupt")
    assert "recordMemory" in told


def test_an_object_of_two_gigabytes_is_refused_by_its_size(measured: dict[str, Peak]) -> None:
    peak = measured["an object of 2 GiB"]

    assert "has 2,147,483,648 bytes" in peak.returned
    assert peak.megabytes < _BESIDES_MB


def test_a_plan_of_a_million_tasks_of_which_nothing_came_costs_nothing_to_close(measured: dict[str, Peak]) -> None:
    peak = measured["a plan of a million partitions"]

    complete, size_bytes = peak.returned.split()
    assert (complete, int(size_bytes) < 500) == ("False", True)
    assert peak.megabytes < _BESIDES_MB


def test_a_plan_of_more_tasks_than_any_attempt_has_is_no_plan(measured: dict[str, Peak]) -> None:
    peak = measured["a plan of more"]

    assert "it has 1,000,001 tasks, and no attempt has more than 1,000,000" in peak.returned
    assert peak.megabytes < _BESIDES_MB


def test_a_deletion_holds_a_few_large_seals_at_a_time(measured: dict[str, Peak]) -> None:
    """Sixteen that take a third of a gigabyte together."""
    peak = measured["a deletion"]

    assert "objects=16" in peak.returned
    assert peak.megabytes < 140


def test_who_goes_through_large_seals_holds_one_at_a_time(measured: dict[str, Peak]) -> None:
    peak = measured["large seals"]

    assert peak.returned == "16"
    assert peak.megabytes < 2 * BUDGET_BYTES / 2**20


def test_who_goes_through_ordinary_seals_takes_nothing_to_speak_of(measured: dict[str, Peak]) -> None:
    peak = measured["small seals"]

    assert peak.returned == "200"
    assert peak.megabytes < _BESIDES_MB
