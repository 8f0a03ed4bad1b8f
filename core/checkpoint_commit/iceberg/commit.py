"""The Iceberg commit, of whatever operation: one compare-and-swap at a time, loading the table before each (`commit_loop`).

The requirements of a request are exactly what was loaded. A late one of a dead committer lands only on the head that it had
loaded; then ours is refused, and the next load finds its key.

A deletion puts a snapshot without files that carries the key (a tombstone).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from checkpoint_commit import commit_loop
from checkpoint_commit.changes import Change
from checkpoint_commit.outcomes import BlockOutcome, CommitOutcome, Rejected, RequestOutcome
from checkpoint_commit.results import Results
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import Base, ClaimRecord, IcebergBase, IcebergTarget


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
    def identity(self) -> str:
        return self.table_uuid

    @property
    def seen(self) -> int | None:
        return self.head

    @property
    def base(self) -> IcebergBase:
        return IcebergBase(table_uuid=self.table_uuid, snapshot_id=self.head, has_branch=self.missing_branch is None)

    def reaches(self, base: int | None) -> bool:
        """Whether all that was committed after a snapshot of the branch can be seen."""
        return self.ancestry_is_whole or (base is not None and base in self.ancestry)

    def why_unseen(self, base: Base) -> str | None:
        """See `TableState`."""
        assert isinstance(base, IcebergBase)
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

    def find_change(self, state: IcebergState, targets: Sequence[IcebergTarget]) -> Rejected | None:
        """Compare schema and specs of that state with those of staging; no request is sent."""

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


@dataclass(slots=True)
class Swap(commit_loop.CommitStrategy[IcebergState]):
    """A compare-and-swap of the table's metadata, after which the key is in the table."""

    table: IcebergTable
    targets: Sequence[IcebergTarget]

    @classmethod
    def of(cls, table: IcebergTable, ledger: Ledger, results: Results, pause: Callable[[float], None]) -> Self:
        targets = [target for target in results.targets if isinstance(target, IcebergTarget)]
        name = targets[0].table if targets else "of this write"
        return cls(ledger, results.change, name, pause, table, targets)

    def read_claim(self) -> ClaimRecord | None:
        return read_claim_of_commit(self.ledger)

    def claim_to_look_by(self) -> None:
        return None  # the whole history is loaded in any case

    def put_claim(self, base: Base) -> tuple[ClaimRecord, bool]:
        for index in (0, 1):  # the claim of an audit allows no commit
            ours = ClaimRecord(token=new_token(), index=index, base=base)
            claim = self.ledger.commits.put_claim(ours)
            if not claim.for_audit:
                break
        return claim, claim.token == ours.token

    def load(self, claim: ClaimRecord | None) -> IcebergState | None:
        return self.table.load(self.key)

    def references_any(self, state: IcebergState) -> bool:
        return self.table.references_any(state, self.change)

    def find_problem(self, state: IcebergState) -> CommitOutcome | None:
        return self.table.find_change(state, self.targets)

    def find_conflict(self, state: IcebergState) -> CommitOutcome | None:
        return self.table.find_incompatibility(state, self.targets, self.change)

    def send(self, state: IcebergState, claim: ClaimRecord, is_first: bool) -> RequestOutcome | CommitOutcome:
        return self.table.swap(state, self.key, self.change)


@dataclass(slots=True)
class Block(commit_loop.BlockStrategy[IcebergState]):
    """A snapshot without files that carries the key."""

    table: IcebergTable

    def why_unseen(self, state: IcebergState, claim: ClaimRecord | None) -> str | None:
        return commit_loop.BlockStrategy.why_unseen(self, state, read_claim_of_commit(self.ledger))

    def load(self, claim: ClaimRecord | None) -> IcebergState | None:
        return self.table.load(self.key)

    def send(self, state: IcebergState, claim: ClaimRecord, is_first: bool) -> RequestOutcome:
        return self.table.block_commit(state, self.key)

    def landed(self, state: IcebergState, commit_id: int) -> BlockOutcome:
        return self.blocked(state)


def commit(table: IcebergTable, ledger: Ledger, results: Results, pause: Callable[[float], None] = time.sleep) -> CommitOutcome:
    """Put the results into the table, once, whoever else tries."""
    return Swap.of(table, ledger, results, pause).commit()


def block_commit(table: IcebergTable, ledger: Ledger, pause: Callable[[float], None] = time.sleep) -> BlockOutcome:
    """See to it that nothing of a claimed epoch lands any more: see `BlockStrategy`."""
    return commit_loop.run(Block(ledger, table), pause)


def read_claim_of_commit(ledger: Ledger) -> ClaimRecord | None:
    """Return the claim of the commit. None: none was ever tried. That of an audit is none."""
    first = ledger.commits.read_claim(0)
    return ledger.commits.read_claim(1) if first is not None and first.for_audit else first
