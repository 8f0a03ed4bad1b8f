"""Each planted bug is caught by the checks that the product passes, on the very same example."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

import pytest

from checkpoint_work.driver.bundling import Bundler
from tests.simulation.chaos import let_zombies_end, play, settle
from tests.simulation.checks import violations
from tests.simulation.choices import Seeded
from tests.simulation.deaths import DULL, Death, live, new_world
from tests.simulation.faults import TASKS
from tests.simulation.mutants.bundles import BundlesAgain, BundlesOfLosers
from tests.simulation.mutants.caught import MOST_EXAMPLES, harms, hunt, seeds
from tests.simulation.mutants.commits import RecordBeforeCommit
from tests.simulation.mutants.registry import MUTANTS, Mutant
from tests.simulation.parts import PRODUCTION, Parts
from tests.simulation.world import FORMATS, Format
from tests.support.effort import examples

_WRONG_BUNDLES: Final = examples(50)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant, record_property: Callable[[str, object], None]) -> None:
    found = hunt(mutant, seeds(mutant))
    if found is None:
        pytest.fail(f"the checks do not catch it in {MOST_EXAMPLES} examples")
    seed, harm = found
    sys.stdout.write(f"caught by example {seed + 1}: {harm}\n")
    record_property("examples_until_caught", seed + 1)
    assert harms(mutant, seed, PRODUCTION) == [], f"the product fails the example, too: seed {seed}"


@pytest.mark.parametrize("bundler", [BundlesOfLosers, BundlesAgain])
@pytest.mark.parametrize("format", FORMATS)
def test_a_driver_whose_bundles_are_wrong_harms_nothing(format: Format, bundler: type[Bundler]) -> None:
    for seed in range(_WRONG_BUNDLES):
        world = play(format, Seeded(seed), Parts(bundler=bundler), TASKS)
        found = violations(world)
        world.scheduler.close()
        assert found == [], f"seed {seed}"


def test_a_death_at_each_effect_shows_a_mark_before_the_commit() -> None:
    parts = Parts(reconciler=RecordBeforeCommit)
    clean, job = new_world("iceberg", [2], parts)
    effects = live(clean, job)
    clean.scheduler.close()
    caught = []
    for number, effect in enumerate(effects):
        world, job = new_world("iceberg", [2], parts)
        live(world, job, Death(number, "after", "all"))
        settle(world, DULL, job)
        let_zombies_end(world, DULL)
        if any("is in the table 0 times" in found for found in violations(world)):
            caught.append(effect)
        world.scheduler.close()
    assert caught == ["put done", "put claim"]
