"""Write, audit, publish: the rows of an epoch are put on a branch of their own, and the target gets that very snapshot later.

    load: is the key in the target's history?          yes: committed, whoever has moved the target there, or picked it
    claim-0, for the audit                             no claim = nothing was ever sent
    put on the audit branch, by one request            a snapshot with the key after the target's head, which no reader sees
    (a driver audits that snapshot)                    refused: nothing more happens, and the branch is there to be looked at
    claim-1                                            no such claim = no commit was ever tried
    publish, by one request                            target at its parent still: the target moves to exactly that snapshot;
                                                       moved: an append is committed after the new head, an overwrite is not

Each of the requests demands that target and audit branch are where they were loaded, and the last one drops the audit branch. So
a late one of a dead committer is refused once anything has followed it. Both parts are strategies of `commit_loop`.

An append that is committed after another head consists of the files that were audited. What an overwrite takes out may be other
rows then than those that the audit saw missing: it has to be audited again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from checkpoint_commit import commit_loop
from checkpoint_commit.changes import Change
from checkpoint_commit.iceberg.commit import IcebergState, IcebergTable, OnAuditBranch, Swap, read_claim_of_commit
from checkpoint_commit.outcomes import (
    CommitOutcome,
    Committed,
    Landed,
    Refused,
    Rejected,
    RequestOutcome,
    TryLater,
    Unanswered,
)
from checkpoint_commit.results import Results
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import Append, Base, ClaimRecord


class AuditedTable(IcebergTable, Protocol):
    """The table of a sink whose rows are audited."""

    def stage(self, state: IcebergState, key: EpochKey, change: Change) -> RequestOutcome:
        """Ask once that the audit branch has the change, with the key, after the target's head. Never retries.

        A branch that the write has left there takes no part any more. The target stays as it is.
        """

    def publish(self, state: IcebergState, key: EpochKey, staged: OnAuditBranch) -> RequestOutcome:
        """Ask once that the target moves to what the audit branch has, from its parent, and the branch goes. Never retries."""

    def acknowledge(self, state: IcebergState, key: EpochKey, staged: OnAuditBranch) -> RequestOutcome:
        """Ask once that the key says what somebody has picked into the target, and the branch goes. Never retries."""

    def drop_audit_branch(self, state: IcebergState, staged: OnAuditBranch) -> RequestOutcome:
        """Ask once that the branch is dropped, if it is as it was loaded. Never retries."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The rows wait for their audit in this snapshot, which the audit branch has. `manifest_list`: it is no other of that id."""

    snapshot_id: int
    manifest_list: str


#: Says whether the audit of what is staged has passed.
HasPassed = Callable[[Staged], bool]


def commit(
    table: AuditedTable, ledger: Ledger, results: Results, has_passed: HasPassed, pause: Callable[[float], None] = time.sleep
) -> CommitOutcome | Staged:
    """Put the results where they can be audited, or commit them, once, if they have passed. See the module for the protocol."""
    publish = _Publish.of(table, ledger, results, pause)
    staged = commit_loop.run(_StageForAudit(ledger, table, publish), pause)
    if not isinstance(staged, Staged):
        return staged
    return commit_loop.outcome_of(lambda: publish.commit() if has_passed(staged) else staged)


@dataclass(slots=True)
class _StageForAudit(commit_loop.Strategy[IcebergState, CommitOutcome | Staged]):
    """One request that the audit branch has the change. `commit` says what holds of the commit that follows."""

    table: AuditedTable
    commit: _Publish

    @property
    def goal(self) -> str:
        return f"the rows of {self.key} are not where they are audited"

    def put_claim(self, base: Base) -> tuple[ClaimRecord, bool]:
        ours = ClaimRecord(token=new_token(), index=0, base=base, for_audit=True)
        claim = self.ledger.commits.put_claim(ours)
        return claim, claim.token == ours.token

    def load(self, claim: ClaimRecord | None) -> IcebergState | None:
        return self.table.load(self.key)

    def gone(self) -> CommitOutcome:
        return self.commit.gone()

    def find_end(self, state: IcebergState, claim: ClaimRecord | None) -> CommitOutcome | Staged | Refused | Unanswered | None:
        audit = state.audit
        if state.committed is not None and audit is not None and audit.is_of_write:
            # A commit that others have moved the target to: its branch is left behind.
            dropped = self.table.drop_audit_branch(state, audit)
            return self.commit.find_end(state, claim) if isinstance(dropped, Landed) else dropped
        if state.committed is None and audit is not None and audit.is_of_epoch:
            if audit.picked_as is None:
                return Staged(audit.snapshot_id, audit.manifest_list)
            told = self.table.acknowledge(state, self.key, audit)
            return Committed(state.table_uuid, told.commit_id, by_us=False) if isinstance(told, Landed) else told
        return self.commit.find_end(state, None if claim is None else read_claim_of_commit(self.ledger))

    def find_problem(self, state: IcebergState) -> CommitOutcome | None:
        if state.audit is not None and not state.audit.is_of_write:
            return Rejected(reasons.AUDIT_BRANCH_TAKEN, _taken(state.audit))
        return self.commit.find_problem(state)

    def find_conflict(self, state: IcebergState) -> CommitOutcome | None:
        return self.commit.find_conflict(state)

    def send(self, state: IcebergState, claim: ClaimRecord, is_first: bool) -> RequestOutcome:
        return self.table.stage(state, self.key, self.commit.change)

    def landed(self, state: IcebergState, commit_id: int) -> None:
        return None  # what is there now says which snapshot it is


@dataclass(slots=True)
class _Publish(Swap):
    """One request that the target has what was audited."""

    table: AuditedTable

    def send(self, state: IcebergState, claim: ClaimRecord, is_first: bool) -> RequestOutcome | CommitOutcome:
        return _publish(self.table, state, self.key, self.change)


def _publish(table: AuditedTable, state: IcebergState, key: EpochKey, change: Change) -> RequestOutcome | CommitOutcome:
    staged = state.audit
    if staged is None:
        return TryLater(
            reasons.COMMIT_CONTENDED,
            f"the branch on which the rows of {key} were audited was dropped just now; they are put there again",
        )
    if not staged.is_of_epoch:
        return Rejected(reasons.AUDIT_BRANCH_TAKEN, _taken(staged))
    if staged.picked_as is not None:
        return table.acknowledge(state, key, staged)
    if staged.parent_id == state.head:
        return table.publish(state, key, staged)
    if isinstance(change.operation, Append):
        return table.swap(state, key, change)
    return Rejected(
        reasons.TABLE_WRITTEN_MEANWHILE,
        f"what was audited (snapshot {staged.snapshot_id}, on the branch {staged.name}) comes after snapshot {staged.parent_id}, "
        f"and the head is {state.head} by now, so that it may replace other rows than those which the audit saw: look what has "
        f"changed; then drop the branch {staged.name}, and the rows are put after the new head and audited again",
    )


def _taken(found: OnAuditBranch) -> str:
    return (
        f"the branch {found.name} has the head {found.snapshot_id}, which this write did not put there; the write needs this "
        "branch for its audit: look at its rows, keep them under another branch name if you need them, and drop this branch"
    )
