"""One epoch after another: a death at each effect of the second one, and who opens an epoch and dies before it has a record."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checkpoint_control.decision.actions import Finish
from checkpoint_protocol.identity import EpochKey
from tests.simulation.chaos import let_zombies_end, settle
from tests.simulation.checks import assert_all_is_well
from tests.simulation.deaths import DULL, Death, How, Who, live, new_world
from tests.simulation.world import FORMATS, Format, Job, World


def after_one_epoch(format: Format) -> tuple[World, Job]:
    """A write whose first epoch is committed, and of which another one is asked for."""
    world, job = new_world(format, [2])
    live(world, job)
    job.begin_next_epoch(2)
    return world, job


def has_begun(world: World, job: Job, epoch: int) -> bool:
    return world.plain_ledger(EpochKey(job.uid, epoch)).attempts.read_launch(1) is not None


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("how", "who"), [("before", "all"), ("after", "all"), ("asleep", "alone")])
def test_a_death_at_each_effect_of_the_next_epoch_keeps_every_row_once(
    format: Format, how: How, who: Who, record_property: Callable[[str, object], None]
) -> None:
    clean, job = after_one_epoch(format)
    effects = live(clean, job)
    clean.scheduler.close()
    assert effects[:2] == ["put 0-index", "put launch"], "to open an epoch is no effect: its first record is"
    for number in range(len(effects)):
        world, job = after_one_epoch(format)
        live(world, job, Death(number, how, who))

        fresh = settle(world, DULL, job)
        let_zombies_end(world, DULL)

        assert_all_is_well(world)
        assert isinstance(fresh.outcome, Finish)
        assert fresh.epoch == 2
    record_property("points", len(effects))


@pytest.mark.parametrize("format", FORMATS)
def test_crash_between_opening_an_epoch_and_its_launch_record_leaves_the_epoch_before_as_the_last(format: Format) -> None:
    world, job = after_one_epoch(format)

    live(world, job, Death("put launch", "before", "all"))

    assert not has_begun(world, job, 2)
    settle(world, DULL, job)
    let_zombies_end(world, DULL)
    assert_all_is_well(world)
    assert has_begun(world, job, 2)
    assert not has_begun(world, job, 3)


@pytest.mark.parametrize("format", FORMATS)
def test_crash_between_the_launch_record_of_an_epoch_and_its_driver_goes_on_in_that_epoch(format: Format) -> None:
    world, job = after_one_epoch(format)

    live(world, job, Death("put launch", "after", "all"))

    assert has_begun(world, job, 2)
    fresh = settle(world, DULL, job)
    let_zombies_end(world, DULL)
    assert_all_is_well(world)
    assert fresh.epoch == 2
    assert not has_begun(world, job, 3)


@pytest.mark.parametrize("format", FORMATS)
def test_crash_between_the_commit_of_an_epoch_and_its_record_opens_no_epoch_before_that_is_found(format: Format) -> None:
    world, job = new_world(format, [2])
    live(world, job, Death("put done", "before", "all"))
    job.begin_next_epoch(2)

    fresh = settle(world, DULL, job)
    let_zombies_end(world, DULL)

    assert_all_is_well(world)
    assert fresh.epoch == 2
    assert world.plain_ledger(EpochKey(job.uid, 1)).commits.read_commit() is not None


@pytest.mark.parametrize("format", FORMATS)
def test_a_runner_that_slept_after_opening_an_epoch_takes_up_what_another_has_recorded_in_it(format: Format) -> None:
    world, job = after_one_epoch(format)
    live(world, job, Death("put launch", "asleep", "alone"))

    settle(world, DULL, job)
    let_zombies_end(world, DULL)

    assert_all_is_well(world)
    assert {runner.epoch for runner in world.runners[1:]} == {2}
    assert not has_begun(world, job, 3)


@pytest.mark.parametrize("format", FORMATS)
def test_epochs_follow_one_another_each_once_its_own_run_nonce_is_set(format: Format) -> None:
    world, job = new_world(format, [1])
    live(world, job)
    for _ in range(4):
        job.begin_next_epoch(1)
        live(world, job)
    let_zombies_end(world, DULL)

    assert_all_is_well(world)
    assert [runner.epoch for runner in world.runners] == [1, 2, 3, 4, 5]
