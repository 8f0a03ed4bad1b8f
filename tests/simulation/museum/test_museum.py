"""Each planted bug is caught by the checks that the product passes, on the very same example."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

import pytest

from tests.simulation.chaos import play
from tests.simulation.checks import violations
from tests.simulation.choices import Seeded
from tests.simulation.museum.mutants import MUTANTS, Mutant
from tests.simulation.parts import PRODUCTION, Parts

#: Some bugs need four things in a row to go wrong; all are caught long before this.
_MOST_EXAMPLES: Final = 2_000


def harms(mutant: Mutant, seed: int, parts: Parts) -> list[str]:
    world = play(mutant.format, Seeded(seed), parts, mutant.focus)
    found = violations(world)
    world.scheduler.close()
    return found


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant, record_property: Callable[[str, object], None]) -> None:
    for seed in range(_MOST_EXAMPLES):
        found = [harm for harm in harms(mutant, seed, mutant.parts) if mutant.harm in harm]
        if found:
            sys.stdout.write(f"caught by example {seed + 1}: {found[0]}\n")
            record_property("examples_until_caught", seed + 1)
            assert harms(mutant, seed, PRODUCTION) == [], f"the product fails the example, too: seed {seed}"
            return
    pytest.fail(f"the checks do not catch it in {_MOST_EXAMPLES} examples")
