"""The list of planted bugs. `harm` is what the checks must find: words of a violation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.simulation.faults import (
    ANYTHING,
    BRANCHES,
    COMMITS,
    DELETIONS,
    INPUTS,
    MOVED_UPSERTS,
    NEW_KEYS,
    OVERWRITES,
    OVERWRITES_WHERE,
    ROW_ERRORS,
    TASKS,
    TRIGGERS,
    UPSERTS,
    Focus,
)
from tests.simulation.mutants import bundles, commits, deletions, epochs, failures, merges, seals
from tests.simulation.parts import Parts
from tests.simulation.world import Format

_DOUBLED_OR_LOST: Final = "is in the table"
_TWICE: Final = "was committed 2 times"
_NEVER_ENDS: Final = "did not finish"
_LANDS_AFTERWARDS: Final = "landed after"
_NEVER_COMMITTED: Final = "never committed"
_CLAIMS_FIRST: Final = "deletion looks at the claims before it puts its note"
_CLAIMS_LISTED: Final = "deletion believes a listing of the claims"
_ASKED_FIRST: Final = "a committer asks for the note before its claim"


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    format: Format
    parts: Parts
    focus: Focus = ANYTHING
    harm: str = _DOUBLED_OR_LOST


MUTANTS: Final = (
    Mutant("load, then append, without a fence", "lance", Parts(table_port=commits.WithoutFence), COMMITS),
    Mutant("one fence for several appends", "lance", Parts(table_port=commits.FencedOnce), COMMITS),
    Mutant("look after the claim", "lance", Parts(commit_to_lance=commits.load_after_the_claim), COMMITS),
    Mutant("commit record before the commit, Iceberg", "iceberg", Parts(reconciler=commits.RecordBeforeCommit), COMMITS),
    Mutant("commit record before the commit, Lance", "lance", Parts(reconciler=commits.RecordBeforeCommit), COMMITS),
    Mutant("the library rebases and commits again", "iceberg", Parts(table_port=commits.RebasesByItself), COMMITS),
    Mutant(
        "the library commits an overwrite again, over what others have put since",
        "iceberg",
        Parts(table_port=commits.RebasesByItself),
        OVERWRITES,
        _TWICE,
    ),
    Mutant(
        "the library commits to a branch again, as it is by now",
        "iceberg",
        Parts(table_port=commits.RebasesByItself),
        BRANCHES,
        _TWICE,
    ),
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
    Mutant("a driver goes by its own input", "iceberg", Parts(driver_ledger=seals.GoesByItsOwnInput), INPUTS, _NEVER_ENDS),
    Mutant(
        "a driver goes by its own input, and nothing checks the coverage",
        "lance",
        Parts(driver_ledger=seals.GoesByItsOwnInput, reconciler=seals.WithoutCoverageCheck),
        INPUTS,
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
    Mutant(
        "rows that failed are put apart from their seal",
        "iceberg",
        Parts(runner_ledger=failures.QuarantinesApart, driver_ledger=failures.QuarantinesApart),
        ROW_ERRORS,
    ),
    Mutant("live seals say what failed", "lance", Parts(runner_ledger=failures.RetriesWhatLiveSealsSay), ROW_ERRORS),
    Mutant("what was made good is tried again", "iceberg", Parts(runner_ledger=failures.RetriesWhatWasMadeGood), ROW_ERRORS),
    Mutant("an epoch goes by the index of an earlier one", "iceberg", Parts(store_port=epochs.GoesByAnEarlierIndex), TRIGGERS),
    Mutant("a watermark says what is new", "iceberg", Parts(budget=epochs.TakesTheNewestByName), TRIGGERS),
    Mutant(
        "an epoch begins beside the one at work",
        "iceberg",
        Parts(reconciler=epochs.BeginsBesideTheOneAtWork),
        TRIGGERS,
        "out of order",
    ),
    Mutant(
        "commit record before the commit, in epochs by a trigger",
        "lance",
        Parts(reconciler=commits.RecordBeforeCommit),
        TRIGGERS,
    ),
    Mutant("one key for all epochs by a trigger", "iceberg", Parts(table_port=commits.KeyedByWrite), TRIGGERS),
    Mutant(
        "bundles are believed, of a driver that bundles what losers tell",
        "iceberg",
        Parts(bundler=bundles.BundlesOfLosers, runner_ledger=bundles.BelievesBundles, driver_ledger=bundles.BelievesBundles),
        TASKS,
        _NEVER_ENDS,
    ),
    Mutant(
        "bundles are believed, of a driver that bundles what losers tell, and nothing checks the coverage or the names",
        "iceberg",
        Parts(
            bundler=bundles.BundlesOfLosers,
            runner_ledger=bundles.BelievesBundles,
            driver_ledger=bundles.BelievesBundles,
            reconciler=seals.WithoutCoverageCheck,
        ),
        TASKS,
    ),
    Mutant(
        "each copy of a seal counts",
        "lance",
        Parts(bundler=bundles.BundlesAgain, runner_ledger=bundles.CountsEachCopy, driver_ledger=bundles.CountsEachCopy),
        TASKS,
        _NEVER_ENDS,
    ),
    Mutant(
        "each copy of a seal counts, and nothing checks the coverage",
        "lance",
        Parts(
            bundler=bundles.BundlesAgain,
            runner_ledger=bundles.CountsEachCopy,
            driver_ledger=bundles.CountsEachCopy,
            reconciler=seals.WithoutCoverageCheck,
        ),
        TASKS,
    ),
    Mutant(
        "what a zombie has bundled since the closing counts",
        "iceberg",
        Parts(runner_ledger=bundles.CountsWhatIsBundled, driver_ledger=bundles.CountsWhatIsBundled),
        TASKS,
        _NEVER_ENDS,
    ),
    Mutant(
        "what a zombie has bundled since the closing counts, and nothing checks the coverage",
        "iceberg",
        Parts(
            runner_ledger=bundles.CountsWhatIsBundled,
            driver_ledger=bundles.CountsWhatIsBundled,
            reconciler=seals.WithoutCoverageCheck,
        ),
        TASKS,
    ),
    Mutant("the library rebases an upsert", "iceberg", Parts(table_port=merges.RebasesWithItsMerges), MOVED_UPSERTS),
    Mutant(
        "a table that has moved since its merge is upserted into, Iceberg",
        "iceberg",
        Parts(upsert_iceberg=merges.MergesOnce, table_port=merges.WithoutConflicts),
        UPSERTS,
    ),
    Mutant("what a merge goes on from is forgotten", "iceberg", Parts(table_port=merges.LatestMergeOnly), UPSERTS),
    Mutant("an upsert without a fence", "lance", Parts(table_port=merges.WithoutFenceFirst), NEW_KEYS, _TWICE),
    Mutant("a fragment that no merge has read is taken for one", "lance", Parts(upsert_lance=merges.MergedByPath), UPSERTS),
    Mutant(
        "an overwrite of a part without a fence", "lance", Parts(table_port=merges.WithoutFenceFirst), OVERWRITES_WHERE, _TWICE
    ),
    Mutant("data files are overwritten", "iceberg", Parts(stager=seals.NamesWithoutToken), TASKS),
    *(
        Mutant(f"{name}, Iceberg, and nothing looks for the files", "iceberg", parts, DELETIONS, _LANDS_AFTERWARDS)
        for name, parts in (
            (_CLAIMS_FIRST, Parts(delete=deletions.claims_before_the_note, table_port=deletions.WithoutIncompatibilityCheck)),
            (_CLAIMS_LISTED, Parts(delete=deletions.claims_as_listed, table_port=deletions.WithoutIncompatibilityCheck)),
            (_ASKED_FIRST, Parts(runner_ledger=deletions.AsksBeforeItsClaim, table_port=deletions.WithoutIncompatibilityCheck)),
        )
    ),
    Mutant(f"{_CLAIMS_FIRST}, Lance", "lance", Parts(delete=deletions.claims_before_the_note), DELETIONS, _LANDS_AFTERWARDS),
    Mutant(f"{_CLAIMS_LISTED}, Lance", "lance", Parts(delete=deletions.claims_as_listed), DELETIONS, _LANDS_AFTERWARDS),
    Mutant(f"{_ASKED_FIRST}, Lance", "lance", Parts(runner_ledger=deletions.AsksBeforeItsClaim), DELETIONS, _LANDS_AFTERWARDS),
    Mutant(
        "deletion looks and puts no tombstone, Iceberg",
        "iceberg",
        Parts(block_in_iceberg=deletions.load_without_a_tombstone),
        DELETIONS,
        _LANDS_AFTERWARDS,
    ),
    Mutant(
        "deletion looks and puts no tombstone, Lance",
        "lance",
        Parts(block_in_lance=deletions.load_without_a_tombstone),
        DELETIONS,
        _LANDS_AFTERWARDS,
    ),
    Mutant(
        "deletion does not look at the table",
        "iceberg",
        Parts(block_in_iceberg=deletions.block_unseen),
        DELETIONS,
        "was removed, and the table names it",
    ),
    Mutant(
        "a tombstone is taken for the commit, Iceberg",
        "iceberg",
        Parts(table_port=deletions.TombstoneTakenForACommit),
        DELETIONS,
        _NEVER_COMMITTED,
    ),
    Mutant(
        "a tombstone is taken for the commit, Lance",
        "lance",
        Parts(table_port=deletions.LanceTombstoneTakenForACommit),
        DELETIONS,
        _NEVER_COMMITTED,
    ),
)
