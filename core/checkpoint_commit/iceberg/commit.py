"""The Iceberg commit, of whatever operation: claim, then one compare-and-swap at a time, loading the table before each.

    load: is the key in the table?                     yes: already committed
    claim-0, naming the head that was loaded           no claim = never tried, which needs no catalog to know;
                                                       another's claim: load again, as it may have landed since
    loop, bounded:
        was the write deleted? does it still fit?      deleted, or no fit: rejected
        ONE request: requirements are exactly what was loaded
        refused, or no believable answer               load, as above, and loop

A late request of a dead committer lands only on the head that it had loaded; then ours is refused, and the next load finds its
key. Clocks, locks and leases have no part in it.

Deletion of a write whose commit may be on its way makes the same move, with nothing in it: `block_commit` puts a snapshot without
files that carries the key (a tombstone). A committer that has loaded the table before it is refused, and finds the tombstone when
it loads again; one that has not yet sent anything finds the note of the deletion (`Commits.is_deleted`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from checkpoint_commit.changes import Change
from checkpoint_commit.outcomes import (
    BlockOutcome,
    CommitBlocked,
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
from checkpoint_protocol.records import ClaimRecord, IcebergBase, IcebergTarget

#: So often the table is loaded and asked before the rest is left to a later call.
ROUNDS: Final = 12
_FIRST_PAUSE_S: Final = 0.1
_MOST_PAUSE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class OnAuditBranch:
    """What is on the branch on which a write's rows wait for their audit.

    `snapshot_id` is its head, `parent_id` the one before that, `manifest_list` says what it consists of. `is_of_write`: the write
    has put it there; `is_of_epoch`: for this very epoch. Where neither is so, somebody else has moved the branch, or made it.
    `picked_as`: the snapshot of the target into which somebody has picked its files (Iceberg's cherrypick_snapshot).
    """

    name: str
    snapshot_id: int
    parent_id: int | None
    manifest_list: str
    is_of_write: bool
    is_of_epoch: bool
    picked_as: int | None = None


@dataclass(frozen=True, slots=True)
class IcebergState:
    """One metadata version of the table, as far as a commit depends on it.

    `committed` is the snapshot id that carries the key, if the key is in the table; `is_tombstone` if a deletion has put it
    there, with no rows. A real commit goes before a tombstone, should both be there. `ancestry` are the ids of the snapshots of
    the branch that are still known, head first; `ancestry_is_whole` if it reaches the first snapshot. `is_current`: as in
    Committed. `missing_branch`: the branch, where a commit is yet to make it; head and ancestry are main's then. `audit`: what
    waits for an audit.
    """

    table_uuid: str
    head: int | None
    committed: int | None
    ancestry: tuple[int, ...]
    ancestry_is_whole: bool
    is_tombstone: bool = False
    is_current: bool = True
    missing_branch: str | None = None
    audit: OnAuditBranch | None = None

    @property
    def base(self) -> IcebergBase:
        return IcebergBase(table_uuid=self.table_uuid, snapshot_id=self.head, has_branch=self.missing_branch is None)

    def reaches(self, base: int | None) -> bool:
        """Whether all that was committed after a snapshot of the branch can be seen."""
        return self.ancestry_is_whole or (base is not None and base in self.ancestry)

    def why_unseen(self, base: IcebergBase) -> str | None:
        """Say why not all that was committed since the base can be seen: where a commit was tried, and what became of that."""
        if self.table_uuid != base.table_uuid:
            return None
        if self.missing_branch is not None and base.has_branch:
            return (
                f"on snapshot {base.snapshot_id} of the branch {self.missing_branch!r}, which was dropped since (make it again "
                "from that snapshot, and the commit can be tried again)"
            )
        if self.reaches(base.snapshot_id):
            return None
        return (
            f"on snapshot {base.snapshot_id}, which the table's history no longer reaches (it was expired or rolled back, or the "
            "branch was moved elsewhere)"
        )


class IcebergTable(Protocol):
    """The table of one sink."""

    def load(self, key: EpochKey) -> IcebergState | None:
        """Load the table anew. None: it does not exist. Raises Retryable where the catalog does not answer."""

    def find_incompatibility(self, state: IcebergState, targets: Sequence[IcebergTarget], change: Change) -> Rejected | None:
        """Compare schema and specs of that state with those of staging, and the staged files with the store.

        Asked before each request: it is here that an operation refuses what others did to the table since it was prepared.
        """

    def references_any(self, state: IcebergState, change: Change) -> bool:
        """Whether the current snapshot of that state names one of the staged files."""

    def swap(self, state: IcebergState, key: EpochKey, change: Change) -> RequestOutcome:
        """Ask once that the table moves from exactly that state to one with the change and the key. Never retries.

        The same request drops the branch on which the write's rows have waited for an audit, if there is one.
        """

    def block_commit(self, state: IcebergState, key: EpochKey) -> RequestOutcome:
        """Ask once that the table moves from exactly that state to one with the same files and a tombstone. Never retries.

        The head moves and the key's snapshot id is taken, so that no swap that was prepared before can land. The same request
        drops the branch on which the write's rows have waited for an audit. NeedsChange if the table has become one that we do
        not write, or if branches or tags of others hold rows of the epoch.
        """


#: Asks the table once for what follows that state; or says how the commit ends where nothing is to be asked for.
Send = Callable[[IcebergState], RequestOutcome | CommitOutcome]


def commit(table: IcebergTable, ledger: Ledger, results: Results, pause: Callable[[float], None] = time.sleep) -> CommitOutcome:
    """Put the results into the table, once, whoever else tries. See the module for the protocol."""
    key, change = ledger.key, results.change
    return commit_by(table, ledger, results, lambda state: table.swap(state, key, change), pause)


def commit_by(table: IcebergTable, ledger: Ledger, results: Results, send: Send, pause: Callable[[float], None]) -> CommitOutcome:
    """Commit by requests that `send` sends: each is one after which the key is in the table."""
    targets = [target for target in results.targets if isinstance(target, IcebergTarget)]
    try:
        return _commit(table, ledger, ledger.key, results.change, targets, send, pause)
    except NeedsChange as error:
        return Rejected(error.reason, error.message)
    except Retryable as error:
        return TryLater(error.reason, error.message)


def _commit(
    table: IcebergTable,
    ledger: Ledger,
    key: EpochKey,
    change: Change,
    targets: Sequence[IcebergTarget],
    send: Send,
    pause: Callable[[float], None],
) -> CommitOutcome:
    claim: ClaimRecord | None = None
    said = "the table kept moving"
    for number in range(ROUNDS):
        state = table.load(key)
        if state is None:
            return gone(targets)
        if state.committed is not None:
            return found(state, key)
        if claim is None:
            # The state from before the claim is good for the first request: a table that has moved meanwhile refuses it.
            claim, is_ours = _claim(ledger, state)
            if not is_ours:
                continue  # another committer's, on a head that this state may not show yet; it may have landed
        # After the claim, before the request, and anew each round: the other half is in `Commits.is_deleted`.
        is_deleted, incompatibility = ledger.read_both(
            ledger.commits.is_deleted, partial(incompatibility_of, table, state, targets, change)
        )
        if is_deleted:
            return deleted(key)
        # Before the incompatibility: "a staged file is gone" would be said of a commit that landed, and was compacted and
        # forgotten since.
        if (unseen := why_unseen(state, claim)) is not None:
            if table.references_any(state, change):
                assert state.head is not None
                return Committed(state.table_uuid, state.head, by_us=False)
            return Unknown(
                f"a commit of {key} was tried {unseen}, and neither the key nor a staged file is in the table; "
                "check whether the rows are there"
            )
        if isinstance(incompatibility, CheckpointError):
            raise incompatibility
        if incompatibility is not None:
            return incompatibility
        match send(state):
            case Landed(commit_id):
                return Committed(state.table_uuid, commit_id, by_us=True)
            case Refused(message) | Unanswered(message):
                said = message
            case ended:
                return ended
        pause(pause_s(number))
    return TryLater(reasons.COMMIT_CONTENDED, f"after {ROUNDS} tries the commit of {key} is not in the table: {said}")


def _claim(ledger: Ledger, state: IcebergState) -> tuple[ClaimRecord, bool]:
    """Take the claim of a commit; return the one that stands, and whether it is ours. That of an audit allows no commit."""
    for index in (0, 1):
        ours = ClaimRecord(token=new_token(), index=index, base=state.base)
        claim = ledger.commits.put_claim(ours)
        if not claim.for_audit:
            break
    return claim, claim.token == ours.token


def read_claim_of_commit(ledger: Ledger) -> ClaimRecord | None:
    """Return the claim of the commit. None: none was ever tried."""
    first = ledger.commits.read_claim(0)
    return ledger.commits.read_claim(1) if first is not None and first.for_audit else first


def pause_s(round_number: int) -> float:
    """Return how long is waited before the table is loaded again."""
    return min(_MOST_PAUSE_S, _FIRST_PAUSE_S * 2.0**round_number)


def incompatibility_of(
    table: IcebergTable, state: IcebergState, targets: Sequence[IcebergTarget], change: Change
) -> Rejected | CheckpointError | None:
    """Return what `find_incompatibility` says or raises: that the write was deleted, or its key forgotten, goes before either."""
    try:
        return table.find_incompatibility(state, targets, change)
    except CheckpointError as error:
        return error


def block_commit(table: IcebergTable, ledger: Ledger, pause: Callable[[float], None] = time.sleep) -> BlockOutcome:
    """See to it that nothing of a claimed epoch lands any more, unless it has landed: then say so.

    To be called after the note of the deletion was put (`put_deleted`) and for an epoch with a claim only: without one, nothing
    was ever sent to the table, and nothing needs to be. Looks before each request, as the commit does; what was not answered is
    looked for. Calling it again finds the tombstone. Unknown: whether the commit landed cannot be seen any more; nothing is sent.
    """
    try:
        return _block_commit(table, ledger, ledger.key, pause)
    except NeedsChange as error:
        return Rejected(error.reason, error.message)
    except Retryable as error:
        return TryLater(error.reason, error.message)


def _block_commit(table: IcebergTable, ledger: Ledger, key: EpochKey, pause: Callable[[float], None]) -> BlockOutcome:
    first, tried = ledger.commits.read_claim(0), read_claim_of_commit(ledger)
    assert first is not None
    said = "the table kept moving"
    for number in range(ROUNDS):
        state = table.load(key)
        if state is None:
            return CommitBlocked(table_identity=None)
        assert isinstance(first.base, IcebergBase)
        is_claimed = state.table_uuid == first.base.table_uuid
        blocked = CommitBlocked(state.table_uuid if is_claimed else None)
        if state.committed is not None:
            return blocked if state.is_tombstone else Committed(state.table_uuid, state.committed, by_us=False)
        if (unseen := why_unseen(state, tried)) is not None:
            return Unknown(
                f"a commit of {key} was tried {unseen}, and the key is not in the table; check whether the rows are there"
            )
        match table.block_commit(state, key):
            case Landed():
                return blocked
            case Refused(message) | Unanswered(message):
                said = message
        pause(pause_s(number))
    return TryLater(reasons.COMMIT_CONTENDED, f"after {ROUNDS} tries the tombstone of {key} is not in the table: {said}")


def why_unseen(state: IcebergState, tried: ClaimRecord | None) -> str | None:
    """Say why it cannot be seen whether the commit landed that was tried under this claim. None was tried without one."""
    if tried is None:
        return None
    assert isinstance(tried.base, IcebergBase)
    return state.why_unseen(tried.base)


def found(state: IcebergState, key: EpochKey) -> Committed | Rejected:
    """The key is in the table: our commit, or the tombstone of a deletion."""
    assert state.committed is not None
    return deleted(key) if state.is_tombstone else Committed(state.table_uuid, state.committed, False, state.is_current)


def deleted(key: EpochKey) -> Rejected:
    return Rejected(reasons.WRITE_DELETED, f"the write of {key} was deleted before its commit; nothing of it is in the table")


def gone(targets: Sequence[IcebergTarget]) -> Rejected:
    name = targets[0].table if targets else "of this write"
    return Rejected(reasons.TABLE_MISSING, f"the table {name} does not exist any more; staged results cannot go anywhere else")
