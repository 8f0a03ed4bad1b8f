"""Two drivers of one attempt look at the source at once and find different files: both go by what the first has put."""

from __future__ import annotations

import pytest

from checkpoint_control.decision.actions import Finish
from checkpoint_protocol.identity import EpochKey
from tests.simulation.chaos import let_zombies_end, settle
from tests.simulation.checks import assert_all_is_well
from tests.simulation.deaths import DULL, new_world
from tests.simulation.runners import start_runner
from tests.simulation.scheduler import Actor, Order
from tests.simulation.world import FORMATS, Format, World


def run_to(world: World, actor: Actor, kind: str, what: str = "") -> None:
    """Let an actor go on until it is about to make such a call."""
    for _ in range(1_000):
        if actor.point.kind == kind and what in actor.point.what:
            return
        assert actor.is_ready
        world.scheduler.run(actor)
    raise AssertionError(f"{actor.name} never comes to {kind} {what}")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("found_more", ["the first", "the second"])
def test_the_driver_whose_look_did_not_count_plans_by_the_one_that_did(format: Format, found_more: str) -> None:
    world, job = new_world(format, [3, 2])
    runner = start_runner(world, job).actor
    run_to(world, runner, "start")
    world.scheduler.run(runner, Order("twice"))
    first, second = world.drivers[EpochKey(job.uid, 1), 1]
    for driver in (first, second):
        run_to(world, driver, "describe-input")
        world.scheduler.run(driver, Order("longer" if (driver is first) is (found_more == "the first") else None))
    run_to(world, first, "put", "input.json")
    run_to(world, second, "put", "input.json")
    world.scheduler.run(first)
    run_to(world, second, "put", "plan.json")
    world.scheduler.run(second)

    fresh = settle(world, DULL, job)

    assert isinstance(fresh.outcome, Finish)
    let_zombies_end(world, DULL)
    assert_all_is_well(world)
