"""Upserts, and overwrites of a part of a Lance dataset: each key is there once, and strangers lose nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.chaos import let_zombies_end, play, settle
from tests.simulation.checks import assert_all_is_well
from tests.simulation.choices import Drawn
from tests.simulation.deaths import DULL, Death, How, Who, live, new_world
from tests.simulation.faults import DELETED_UPSERTS, OVERWRITES_WHERE, UPSERTS, Focus
from tests.simulation.profile import searching
from tests.simulation.world import FORMATS, Format, World

_OF_A_MERGE = {"put launch", "start", "put input", "put plan", "stage", "put seals", "put closed", "put done"}


@st.composite
def worlds(draw: st.DrawFn, format: Format, focus: Focus) -> World:
    """Play an example; what is drawn is what befalls whom."""
    return play(format, Drawn(draw), focus=focus)


@searching(40)
@given(world=worlds("iceberg", UPSERTS))
def test_iceberg_each_key_is_there_once_and_of_strangers_what_came_later(world: World) -> None:
    assert_all_is_well(world)


@searching(40)
@given(world=worlds("lance", UPSERTS))
def test_lance_each_key_is_there_once_and_of_strangers_what_came_later(world: World) -> None:
    assert_all_is_well(world)


@searching(20)
@given(world=worlds("iceberg", DELETED_UPSERTS))
def test_iceberg_nothing_of_an_upsert_lands_after_the_deletion_of_its_write(world: World) -> None:
    assert_all_is_well(world)


@searching(20)
@given(world=worlds("lance", DELETED_UPSERTS))
def test_lance_nothing_of_an_upsert_lands_after_the_deletion_of_its_write(world: World) -> None:
    assert_all_is_well(world)


@searching(40)
@given(world=worlds("lance", OVERWRITES_WHERE))
def test_lance_an_overwrite_of_a_part_leaves_the_rest_and_what_strangers_append_after_it(world: World) -> None:
    assert_all_is_well(world)


def effects_of_a_clean_run(format: Format) -> list[str]:
    world, job = new_world(format, [2], upserts=True)
    effects = live(world, job)
    settle(world, DULL, job)
    let_zombies_end(world, DULL)
    assert_all_is_well(world)
    assert set(effects[effects.index("put done") - 12 :]) >= _OF_A_MERGE, effects
    assert effects.count("put launch") == 2, "of the epoch and of its merge"
    return effects


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("how", "who", "moves"),
    [
        ("before", "alone", False),
        ("after", "all", False),
        ("before", "all", True),
        ("after", "alone", True),
        ("asleep", "alone", True),
    ],
)
def test_a_death_at_each_effect_of_an_upsert_leaves_each_key_once(format: Format, how: How, who: Who, moves: bool) -> None:
    """`moves`: a stranger appends rows with the same keys before the next runner comes."""
    for number, effect in enumerate(effects_of_a_clean_run(format)):
        world, job = new_world(format, [2], upserts=True)
        lived = live(world, job, Death(number, how, who))
        assert lived[number] == effect
        if moves:
            world.table.append_as_stranger()

        settle(world, DULL, job)
        let_zombies_end(world, DULL)

        assert_all_is_well(world)
