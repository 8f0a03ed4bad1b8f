"""Write, audit, publish: the rows of an epoch are put on a branch of their own, and the target gets that very snapshot later.

    load: is the key in the target's history?          yes: committed, whoever has moved the target there, or picked it
    claim-0, for the audit                             no claim = nothing was ever sent
    put on the audit branch, by one request            a snapshot with the key after the target's head, which no reader sees
    (a driver audits that snapshot)                    refused: nothing more happens, and the branch is there to be looked at
    claim-1                                            no such claim = no commit was ever tried
    publish, by one request                            target at its parent still: the target moves to exactly that snapshot;
                                                       moved: an append is committed after the new head, an overwrite is not

Each of the requests demands that target and audit branch are where they were loaded, and the last one drops the audit branch. So
a late one of a dead committer is refused once anything has followed it, as in `iceberg.py`, whose loop does the last part.

An append that is committed after another head consists of the files that were audited. What an overwrite takes out may be other
rows then than those that the audit saw missing: it has to be audited again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from checkpoint_commit.changes import Change
from checkpoint_commit.iceberg import commit as iceberg
from checkpoint_commit.iceberg.commit import IcebergState, IcebergTable, OnAuditBranch
from checkpoint_commit.outcomes import (
    CommitOutcome,
    Committed,
    Landed,
    Refused,
    Rejected,
    RequestOutcome,
    TryLater,
    Unanswered,
    Unknown,
)
from checkpoint_commit.results import Results
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import Append, ClaimRecord, IcebergTarget


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
    targets = [target for target in results.targets if isinstance(target, IcebergTarget)]
    try:
        staged = _stage(table, ledger, results.change, targets, pause)
        if not isinstance(staged, Staged) or not has_passed(staged):
            return staged
    except NeedsChange as error:
        return Rejected(error.reason, error.message)
    except Retryable as error:
        return TryLater(error.reason, error.message)
    return iceberg.commit_by(table, ledger, results, lambda state: _publish(table, state, ledger.key, results.change), pause)


def _stage(
    table: AuditedTable, ledger: Ledger, change: Change, targets: Sequence[IcebergTarget], pause: Callable[[float], None]
) -> CommitOutcome | Staged:
    key = ledger.key
    claim: ClaimRecord | None = None
    said = "the table kept moving"
    for number in range(iceberg.ROUNDS):
        state = table.load(key)
        if state is None:
            return iceberg.gone(targets)
        if state.committed is not None:
            if (left := _left_behind(table, state)) is None:
                return iceberg.found(state, key)
            said = left
            pause(iceberg.pause_s(number))
            continue
        if state.audit is not None and state.audit.is_of_epoch and state.audit.picked_as is not None:
            match table.acknowledge(state, key, state.audit):
                case Landed(commit_id):
                    return Committed(state.table_uuid, commit_id, by_us=False)
                case Refused(message) | Unanswered(message):
                    said = message
            pause(iceberg.pause_s(number))
            continue
        if state.audit is not None and state.audit.is_of_epoch:
            return Staged(state.audit.snapshot_id, state.audit.manifest_list)
        if claim is None:
            claim = ledger.commits.put_claim(ClaimRecord(token=new_token(), index=0, base=state.base, for_audit=True))
        # After the claim, before the request, and anew each round: see `Commits.is_deleted`.
        is_deleted, tried = ledger.read_both(ledger.commits.is_deleted, lambda: iceberg.read_claim_of_commit(ledger))
        if is_deleted:
            return iceberg.deleted(key)
        if (unseen := iceberg.why_unseen(state, tried)) is not None:
            if table.references_any(state, change):
                assert state.head is not None
                return Committed(state.table_uuid, state.head, by_us=False)
            return Unknown(
                f"a commit of {key} was tried {unseen}, and neither the key nor a staged file is in the table; "
                "check whether the rows are there"
            )
        if state.audit is not None and not state.audit.is_of_write:
            return Rejected(reasons.AUDIT_BRANCH_TAKEN, _taken(state.audit))
        incompatibility = iceberg.incompatibility_of(table, state, targets, change)
        if isinstance(incompatibility, CheckpointError):
            raise incompatibility
        if incompatibility is not None:
            return incompatibility
        match table.stage(state, key, change):
            case Landed():
                continue  # what is there now says which one it is
            case Refused(message) | Unanswered(message):
                said = message
        pause(iceberg.pause_s(number))
    return TryLater(
        reasons.COMMIT_CONTENDED, f"after {iceberg.ROUNDS} tries the rows of {key} are not where they are audited: {said}"
    )


def _left_behind(table: AuditedTable, state: IcebergState) -> str | None:
    """Drop the branch of a commit that is in the target, where others have moved the target to it. None: there is none left."""
    if state.audit is None or not state.audit.is_of_write:
        return None
    match table.drop_audit_branch(state, state.audit):
        case Landed():
            return None
        case Refused(message) | Unanswered(message):
            return message


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
