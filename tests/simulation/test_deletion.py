"""A write that is deleted at any moment: what had landed stays as a whole, nothing lands afterwards, and nobody else notices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from checkpoint_control.writes.deletion import Deleted
from tests.simulation.chaos import let_zombies_end, play, settle, settle_deletion
from tests.simulation.checks import assert_all_is_well
from tests.simulation.choices import Seeded
from tests.simulation.deaths import DULL, Death, How, delete, live, new_world
from tests.simulation.faults import DELETIONS, RETENTIONS
from tests.simulation.mutants import deletions
from tests.simulation.parts import PRODUCTION, Parts
from tests.simulation.profile import searching
from tests.simulation.runners import start_runner
from tests.simulation.test_exactly_once import worlds
from tests.simulation.world import FORMATS, Format, Job, World

_REQUESTS = {"iceberg": "swap", "lance": "append"}


@searching(150)
@given(world=worlds("iceberg", DELETIONS))
def test_iceberg_after_a_deletion_nothing_lands_and_what_had_landed_stays(world: World) -> None:
    assert_all_is_well(world)


@searching(150)
@given(world=worlds("lance", DELETIONS))
def test_lance_after_a_deletion_nothing_lands_and_what_had_landed_stays(world: World) -> None:
    assert_all_is_well(world)


@searching(100)
@given(world=worlds("iceberg", RETENTIONS))
def test_iceberg_a_write_that_is_deleted_in_its_second_epoch_and_applied_again_has_every_row_once(world: World) -> None:
    assert_all_is_well(world)


@searching(100)
@given(world=worlds("lance", RETENTIONS))
def test_lance_a_write_that_is_deleted_in_its_second_epoch_and_applied_again_has_every_row_once(world: World) -> None:
    assert_all_is_well(world)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("how", ["before", "after", "asleep"])
def test_a_write_that_is_applied_again_after_a_deletion_at_each_effect_has_every_row_once(
    format: Format, how: How, record_property: Callable[[str, object], None]
) -> None:
    def in_second_epoch(death: Death | None) -> tuple[World, Job, list[str]]:
        world, job = new_world(format, [3, 2])
        world.retains = True
        settle(world, DULL, job)
        job.begin_next_epoch(2)
        return world, job, live(world, job, death)

    clean, _, effects = in_second_epoch(None)
    clean.scheduler.close()
    ends: dict[str, bool] = {}
    for number, effect in enumerate(effects):
        world, job, _ = in_second_epoch(Death(number, how, "alone"))

        ended = settle_deletion(world, DULL, job)
        world.objects_gone += 1
        settle(world, DULL, job)
        let_zombies_end(world, DULL)

        assert_all_is_well(world)
        assert isinstance(ended.outcome, Deleted)
        ends[effect] = world.last_epoch(job) == 3
    assert ends[_REQUESTS[format]] == (how != "after"), "the rows came with another epoch where they had not landed"
    assert ends["put claim"]
    record_property("points", len(effects))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("place", ["put claim", "its request"])
@pytest.mark.parametrize("how", ["before", "after", "asleep"])
def test_a_deleter_of_a_write_that_is_applied_again_may_die_or_sleep_at_each_of_its_effects(
    format: Format, place: str, how: How
) -> None:
    def dying(at: int | None) -> tuple[World, list[str]]:
        world, job = new_world(format, [3, 2])
        world.retains = True
        settle(world, DULL, job)
        job.begin_next_epoch(2)
        live(world, job, Death(place.replace("its request", _REQUESTS[format]), "asleep", "alone"))
        return world, delete(world, job, None if at is None else Death(at, how, "alone"))

    clean, effects = dying(None)
    clean.scheduler.close()
    assert (effects[0], effects[-1]) == ("put deleted", "put done")
    for number in range(len(effects)):
        world, lived = dying(number)
        assert lived[number] == effects[number]

        settle_deletion(world, DULL, world.jobs[0])
        world.objects_gone += 1
        settle(world, DULL, world.jobs[0])
        let_zombies_end(world, DULL)

        assert_all_is_well(world)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("how", ["before", "after", "asleep"])
def test_a_deletion_at_each_effect_of_a_run_ends_it_for_good(
    format: Format, how: How, record_property: Callable[[str, object], None]
) -> None:
    clean, job = new_world(format, [3, 2])
    effects = live(clean, job)
    clean.scheduler.close()
    outcomes: dict[str, tuple[int, ...]] = {}
    for number, effect in enumerate(effects):
        world, job = new_world(format, [3, 2])
        live(world, job, Death(number, how, "alone"))

        ended = settle_deletion(world, DULL, job)
        start_runner(world, job)
        let_zombies_end(world, DULL)

        assert_all_is_well(world)
        assert isinstance(ended.outcome, Deleted)
        outcomes[effect] = ended.outcome.committed_epochs
    assert () in outcomes.values()
    # Whoever sleeps through the deletion before its request finds the table closed; whoever died before it never comes back.
    assert outcomes[_REQUESTS[format]] == ((1,) if how == "after" else ())
    assert outcomes["put claim"] == ()
    assert outcomes["put done"] == (1,)
    record_property("points", len(effects))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("place", ["put claim", "its request"])
@pytest.mark.parametrize("how", ["before", "after", "asleep"])
def test_a_deleter_that_dies_or_sleeps_at_each_of_its_effects_is_followed_by_one_that_ends_it(
    format: Format, place: str, how: How
) -> None:
    def dying(at: int | None) -> tuple[World, list[str]]:
        world, job = new_world(format, [3, 2])
        live(world, job, Death(place.replace("its request", _REQUESTS[format]), "asleep", "alone"))
        lived = delete(world, job, None if at is None else Death(at, how, "alone"))
        return world, lived

    clean, effects = dying(None)
    clean.scheduler.close()
    assert effects[0] == "put deleted"
    for number in range(len(effects)):
        world, lived = dying(number)
        assert lived[number] == effects[number]

        settle_deletion(world, DULL, world.jobs[0])
        let_zombies_end(world, DULL)

        assert_all_is_well(world)


@pytest.mark.parametrize("format", FORMATS)
def test_a_second_epoch_is_deleted_and_the_rows_of_the_first_stay(format: Format) -> None:
    world, job = new_world(format, [3, 2])
    settle(world, DULL, job)
    job.begin_next_epoch(2)
    live(world, job, Death(_REQUESTS[format], "asleep", "alone"))

    ended = settle_deletion(world, DULL, job)
    let_zombies_end(world, DULL)

    assert isinstance(ended.outcome, Deleted)
    assert ended.outcome.committed_epochs == (1,)
    assert_all_is_well(world)


@pytest.mark.parametrize("format", FORMATS)
def test_the_examples_meet_every_way_in_which_a_deletion_can_end(format: Format) -> None:
    """So that the search above is known to be about something."""
    met = set()
    for seed in range(60):
        world = play(format, Seeded(seed), PRODUCTION, DELETIONS)
        job = world.jobs[0]
        landed = any(landing.key and landing.key.startswith(job.uid) for landing in world.table.landings)
        blocked = any("block_commit" in line for line in world.scheduler.trace)
        met.add((landed, blocked))
        world.scheduler.close()
    assert met >= {(True, False), (False, True), (False, False)}


@pytest.mark.parametrize("format", FORMATS)
def test_a_death_at_each_effect_shows_a_deletion_without_a_tombstone(format: Format) -> None:
    unburied = deletions.load_without_a_tombstone
    world, job = new_world(format, [2], Parts(block_in_iceberg=unburied, block_in_lance=unburied))
    live(world, job, Death(_REQUESTS[format], "asleep", "alone"))
    settle_deletion(world, DULL, job)
    let_zombies_end(world, DULL)

    with pytest.raises(AssertionError, match="landed after deleter"):
        assert_all_is_well(world)
