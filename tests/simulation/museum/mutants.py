"""The list of planted bugs. `harm` is what the checks must find: words of a violation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.simulation.museum import commits, seals
from tests.simulation.parts import Parts
from tests.simulation.tempers import ANYTHING, COMMITS, TASKS, Focus
from tests.simulation.world import Format

_DOUBLED_OR_LOST: Final = "is in the table"
_NEVER_ENDS: Final = "did not finish"


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    format: Format
    parts: Parts
    focus: Focus = ANYTHING
    harm: str = _DOUBLED_OR_LOST


MUTANTS: Final = (
    Mutant("look, then append, without a fence", "lance", Parts(table_port=commits.WithoutFence), COMMITS),
    Mutant("one fence for several appends", "lance", Parts(table_port=commits.FencedOnce), COMMITS),
    Mutant("look after the claim", "lance", Parts(commit_to_lance=commits.look_after_the_claim), COMMITS),
    Mutant("mark before the commit, Iceberg", "iceberg", Parts(reconciler=commits.MarkBeforeCommit), COMMITS),
    Mutant("mark before the commit, Lance", "lance", Parts(reconciler=commits.MarkBeforeCommit), COMMITS),
    Mutant("the library rebases and commits again", "iceberg", Parts(table_port=commits.RebasesByItself), COMMITS),
    Mutant("key made of the write's name", "iceberg", Parts(table_port=commits.KeyedByName)),
    Mutant("key made of the process", "iceberg", Parts(table_port=commits.KeyedByProcess), COMMITS),
    Mutant("one key for all epochs", "iceberg", Parts(table_port=commits.KeyedByWrite)),
    Mutant(
        "live seals are believed by driver and commit",
        "iceberg",
        Parts(runner_ledger=seals.BelievesLiveSeals, driver_ledger=seals.BelievesLiveSeals),
        TASKS,
        _NEVER_ENDS,
    ),
    Mutant(
        "live seals are believed by driver and commit, and nothing checks the coverage",
        "iceberg",
        Parts(
            runner_ledger=seals.BelievesLiveSeals,
            driver_ledger=seals.BelievesLiveSeals,
            reconciler=seals.WithoutCoverageCheck,
        ),
        TASKS,
    ),
    Mutant(
        "skip by live seals, commit the closed ones", "lance", Parts(driver_ledger=seals.BelievesLiveSeals), TASKS, _NEVER_ENDS
    ),
    Mutant(
        "skip by live seals, commit the closed ones, and nothing checks the coverage",
        "lance",
        Parts(driver_ledger=seals.BelievesLiveSeals, reconciler=seals.WithoutCoverageCheck),
        TASKS,
    ),
    Mutant("a listing is closed", "iceberg", Parts(runner_ledger=seals.ClosesWhatIsListed), TASKS, _NEVER_ENDS),
    Mutant(
        "a listing is closed, and nothing checks the coverage",
        "iceberg",
        Parts(runner_ledger=seals.ClosesWhatIsListed, reconciler=seals.WithoutCoverageCheck),
        TASKS,
    ),
    Mutant("two plans in one attempt", "lance", Parts(driver_ledger=seals.SecondDriverGoesOn), TASKS, _NEVER_ENDS),
    Mutant(
        "two plans in one attempt, and nothing checks the coverage",
        "lance",
        Parts(driver_ledger=seals.SecondDriverGoesOn, reconciler=seals.WithoutCoverageCheck),
        TASKS,
    ),
    Mutant(
        "the loser of a link takes the next", "iceberg", Parts(driver_ledger=seals.SealsAtTheNextFreeLink), TASKS, _NEVER_ENDS
    ),
    Mutant(
        "the loser of a link takes the next, and nothing checks the coverage",
        "iceberg",
        Parts(driver_ledger=seals.SealsAtTheNextFreeLink, reconciler=seals.WithoutCoverageCheck),
        TASKS,
    ),
    Mutant("seals are overwritten", "lance", Parts(store_port=seals.OverwritesSeals), TASKS, _NEVER_ENDS),
    Mutant(
        "seals are overwritten, and nothing checks the coverage",
        "lance",
        Parts(store_port=seals.OverwritesSeals, reconciler=seals.WithoutCoverageCheck),
        TASKS,
    ),
    Mutant("data files are overwritten", "iceberg", Parts(stager=seals.NamesWithoutToken), TASKS),
)
