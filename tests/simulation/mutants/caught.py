"""By which example each planted bug is caught, so that `make test` begins there.

    python -m tests.simulation.mutants.caught      hunts each from the first example on, and writes the file anew

`make test-all` hunts each from the first example on. A number that is out of date makes `make test` slower, and no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.simulation.chaos import play
from tests.simulation.checks import violations
from tests.simulation.choices import Seeded
from tests.simulation.mutants.registry import MUTANTS, Mutant
from tests.simulation.parts import Parts
from tests.support.effort import IS_WHOLE

#: Some bugs need four things in a row to go wrong; all are caught long before this.
MOST_EXAMPLES: Final = 2_000
_FILE: Final = Path(__file__).with_suffix(".json")


def harms(mutant: Mutant, seed: int, parts: Parts) -> list[str]:
    """Return what the checks find in one example."""
    world = play(mutant.format, Seeded(seed), parts, mutant.focus)
    found = violations(world)
    world.scheduler.close()
    return found


def seeds(mutant: Mutant) -> Iterator[int]:
    """Give the examples in the order in which they are tried."""
    if not IS_WHOLE and (known := json.loads(_FILE.read_text()).get(mutant.name)) is not None:
        yield known
    yield from range(MOST_EXAMPLES)


def hunt(mutant: Mutant, seeds: Iterable[int]) -> tuple[int, str] | None:
    """Return the first of the examples that shows the bug, and how; None if none does."""
    for seed in seeds:
        for harm in harms(mutant, seed, mutant.parts):
            if mutant.harm in harm:
                return seed, harm
    return None


def main() -> None:
    caught = {mutant.name: found[0] for mutant in MUTANTS if (found := hunt(mutant, range(MOST_EXAMPLES))) is not None}
    _FILE.write_text(json.dumps(caught, indent=1) + "\n")


if __name__ == "__main__":
    main()
