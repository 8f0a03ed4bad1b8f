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

from checkpoint_operator.commit.changes import Change
from checkpoint_operator.commit.outcomes import (
    BlockOutcome,
    CommitBlocked,
    CommitOutcome,
    Committed,
    Landed,
    Refused,
    Rejected,
    RequestOutcome,
    TryLater,
    Unknown,
)
from checkpoint_operator.commit.results import Results
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import ClaimRecord, IcebergBase, IcebergTarget

_ROUNDS: Final = 12
_FIRST_PAUSE_S: Final = 0.1
_MOST_PAUSE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class IcebergState:
    """One metadata version of the table, as far as a commit depends on it.

    `committed` is the snapshot id that carries the key, if the key is in the table; `is_tombstone` if a deletion has put it
    there, with no rows. A real commit goes before a tombstone, should both be there. `ancestry` are the ids of the snapshots of
    the branch that are still known, head first; `ancestry_is_whole` if it reaches the first snapshot. `is_current`: as in
    Committed.
    """

    table_uuid: str
    head: int | None
    committed: int | None
    ancestry: tuple[int, ...]
    ancestry_is_whole: bool
    is_tombstone: bool = False
    is_current: bool = True

    def reaches(self, base: int | None) -> bool:
        """Whether all that was committed after the base can be seen."""
        return self.ancestry_is_whole or (base is not None and base in self.ancestry)


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
        """Ask once that the table moves from exactly that state to one with the change and the key. Never retries."""

    def block_commit(self, state: IcebergState, key: EpochKey) -> RequestOutcome:
        """Ask once that the table moves from exactly that state to one with the same files and a tombstone. Never retries.

        The head moves and the key's snapshot id is taken, so that no swap that was prepared before can land. NeedsChange if the
        table has become one that we do not write.
        """


def commit(table: IcebergTable, ledger: Ledger, results: Results, pause: Callable[[float], None] = time.sleep) -> CommitOutcome:
    """Put the results into the table, once, whoever else tries. See the module for the protocol."""
    key = ledger.key
    targets = [target for target in results.targets if isinstance(target, IcebergTarget)]
    try:
        return _commit(table, ledger, key, results.change, targets, pause)
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
    pause: Callable[[float], None],
) -> CommitOutcome:
    claim: ClaimRecord | None = None
    said = "the table kept moving"
    for number in range(_ROUNDS):
        state = table.load(key)
        if state is None:
            return _gone(targets)
        if state.committed is not None:
            return _found(state, key)
        if claim is None:
            # The state from before the claim is good for the first request: a table that has moved meanwhile refuses it.
            base = IcebergBase(table_uuid=state.table_uuid, snapshot_id=state.head)
            ours = ClaimRecord(token=new_token(), index=0, base=base)
            claim = ledger.commits.put_claim(ours)
            if claim.token != ours.token:
                continue  # another committer's, on a head that this state may not show yet; it may have landed
        assert isinstance(claim.base, IcebergBase)
        # After the claim, before the request, and anew each round: the other half is in `Commits.is_deleted`.
        is_deleted, incompatibility = ledger.read_both(
            ledger.commits.is_deleted, partial(_incompatibility, table, state, targets, change)
        )
        if is_deleted:
            return _deleted(key)
        # Before the incompatibility: "a staged file is gone" would be said of a commit that landed, and was compacted and
        # forgotten since.
        if state.table_uuid == claim.base.table_uuid and not state.reaches(claim.base.snapshot_id):
            if table.references_any(state, change):
                assert state.head is not None
                return Committed(state.table_uuid, state.head, by_us=False)
            return Unknown(
                f"a commit of {key} was tried on snapshot {claim.base.snapshot_id}, which the table's history no longer reaches "
                "(it was expired or rolled back), and neither the key nor a staged file is in the table; "
                "look whether the rows are there"
            )
        if isinstance(incompatibility, CheckpointError):
            raise incompatibility
        if incompatibility is not None:
            return incompatibility
        match table.swap(state, key, change):
            case Landed(commit_id):
                return Committed(state.table_uuid, commit_id, by_us=True)
            case Refused(message):
                said = message
            case unanswered:
                said = unanswered.message
        pause(min(_MOST_PAUSE_S, _FIRST_PAUSE_S * 2**number))
    return TryLater(reasons.COMMIT_CONTENDED, f"after {_ROUNDS} tries the commit of {key} is not in the table: {said}")


def _incompatibility(
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
    claim = ledger.commits.read_claim(0)
    assert claim is not None
    assert isinstance(claim.base, IcebergBase)
    said = "the table kept moving"
    for number in range(_ROUNDS):
        state = table.load(key)
        if state is None:
            return CommitBlocked(table_identity=None)
        is_claimed = state.table_uuid == claim.base.table_uuid
        blocked = CommitBlocked(state.table_uuid if is_claimed else None)
        if state.committed is not None:
            return blocked if state.is_tombstone else Committed(state.table_uuid, state.committed, by_us=False)
        if is_claimed and not state.reaches(claim.base.snapshot_id):
            return Unknown(
                f"a commit of {key} was tried on snapshot {claim.base.snapshot_id}, which the table's history no longer reaches "
                "(it was expired or rolled back), and the key is not in the table; look whether the rows are there"
            )
        match table.block_commit(state, key):
            case Landed():
                return blocked
            case Refused(message):
                said = message
            case unanswered:
                said = unanswered.message
        pause(min(_MOST_PAUSE_S, _FIRST_PAUSE_S * 2**number))
    return TryLater(reasons.COMMIT_CONTENDED, f"after {_ROUNDS} tries the tombstone of {key} is not in the table: {said}")


def _found(state: IcebergState, key: EpochKey) -> Committed | Rejected:
    """The key is in the table: our commit, or the tombstone of a deletion."""
    assert state.committed is not None
    return _deleted(key) if state.is_tombstone else Committed(state.table_uuid, state.committed, False, state.is_current)


def _deleted(key: EpochKey) -> Rejected:
    return Rejected(reasons.WRITE_DELETED, f"the write of {key} was deleted before its commit; nothing of it is in the table")


def _gone(targets: Sequence[IcebergTarget]) -> Rejected:
    name = targets[0].table if targets else "of this write"
    return Rejected(reasons.TABLE_MISSING, f"the table {name} does not exist any more; staged results cannot go anywhere else")
