"""Every effect of a whole run, enumerated: die before it, die after it, sleep through the end; then every row is there once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.chaos import let_zombies_end, settle
from tests.simulation.checks import assert_all_is_well
from tests.simulation.deaths import DULL, Death, How, Who, is_all_sealed, live, new_world
from tests.simulation.profile import IS_LONG
from tests.simulation.world import FORMATS, Format

_EVERY_RUN: frozenset[str] = frozenset(
    {"put launch", "start", "put input", "put plan", "stage", "put seals", "put closed", "put claim", "put done"}
)
_REQUESTS = {"iceberg": "swap", "lance": "append"}


def effects_of_a_clean_run(format: Format, sizes: list[int]) -> list[str]:
    world, job = new_world(format, sizes)
    effects = live(world, job)
    settle(world, DULL, job)
    let_zombies_end(world, DULL)
    assert_all_is_well(world)
    assert {*_EVERY_RUN, _REQUESTS[format]} <= set(effects), effects
    assert ("put part of input" in effects) == (len(sizes) > 1)
    return effects


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("how", "who"), [("before", "alone"), ("before", "all"), ("after", "alone"), ("after", "all"), ("asleep", "alone")]
)
def test_a_death_at_each_effect_keeps_every_row_once(
    format: Format, how: How, who: Who, record_property: Callable[[str, object], None]
) -> None:
    sizes = [3, 2]
    effects = effects_of_a_clean_run(format, sizes)
    for number, effect in enumerate(effects):
        world, job = new_world(format, sizes)
        lived = live(world, job, Death(number, how, who))
        assert lived[number] == effect
        sealed = is_all_sealed(world, job)

        fresh = settle(world, DULL, job)
        let_zombies_end(world, DULL)

        assert_all_is_well(world)
        assert not (sealed and fresh.drivers_started), f"all was sealed, and a driver was started after {effect}"
    record_property("points", len(effects))


@pytest.mark.parametrize("format", FORMATS)
def test_two_deaths_in_a_row_keep_every_row_once(format: Format, record_property: Callable[[str, object], None]) -> None:
    sizes = [3, 2] if IS_LONG else [2]
    pairs = 0
    for first in range(len(effects_of_a_clean_run(format, sizes))):
        second = 0
        while True:
            world, job = new_world(format, sizes)
            live(world, job, Death(first, "after", "all"))
            lived = live(world, job, Death(second, "after", "all"))
            is_there = len(lived) == second + 1
            sealed = is_all_sealed(world, job)

            fresh = settle(world, DULL, job)
            let_zombies_end(world, DULL)

            assert_all_is_well(world)
            assert not (sealed and fresh.drivers_started), "all was sealed, and a driver was started"
            if not is_there:
                break
            pairs += 1
            second += 1
    assert pairs > 0
    record_property("pairs", pairs)


@pytest.mark.parametrize("format", FORMATS)
def test_a_finished_write_is_left_alone(format: Format) -> None:
    world, job = new_world(format, [3, 2])
    live(world, job)
    before = dict(world.raw_store.objects), world.table.current_files(), len(world.table.landings)

    assert live(world, job) == []

    assert (dict(world.raw_store.objects), world.table.current_files(), len(world.table.landings)) == before
    let_zombies_end(world, DULL)
    assert_all_is_well(world)
