"""The tag of a Lance commit, which is put on its version right after it.

Lance keeps tags in objects of their own, so that a commit and its tag are two requests. Whoever finds the commit sets the tag and
records the commit after that: a committer that dies in between is followed by one that does the same. Setting it again changes
nothing, as an epoch has one version.

A tag of that name on another version is somebody else's and is not moved. It is looked for before the commit, too, as the rows
are in the dataset afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from checkpoint_commit.commit_loop import outcome_of
from checkpoint_commit.lance import commit as lance
from checkpoint_commit.outcomes import CommitOutcome, Committed
from checkpoint_commit.results import Results
from checkpoint_protocol.ledger import Ledger

if TYPE_CHECKING:
    from checkpoint_commit.lance.table import PylanceTable


def commit(table: PylanceTable, ledger: Ledger, results: Results) -> CommitOutcome:
    """Put the results into the dataset, once, and see to it that the version with them has its tag."""

    def do() -> CommitOutcome:
        if table.has_tag and ledger.commits.read_claim(0) is None:
            table.refuse_tag(ledger.key)
        outcome = lance.commit(table, ledger, results)
        if isinstance(outcome, Committed):
            table.set_tag(ledger.key, outcome.commit_id)
        return outcome

    return outcome_of(do)
