"""The commits of Lance datasets: which of the two strategies of `commit_loop` an operation takes, and what each of them sends.

*Fence*, of appends and updates. Appends do not conflict with each other in Lance, so "is it there? no: append" doubles rows when
two committers overlap. But an append that was based on a version older than a no-op Project transaction (the fence) is refused:

    first committer     append once, based on the version v that was loaded before the claim (the other order is wrong)
    all others, and the first once its append was refused or has no believable answer (it may be on its way):
                        put the next claim, commit a fence f on what was loaded, load up to f, append based on f

After f is in the table, no append of an earlier committer can land; one that landed before f is found when f is loaded. An append
without a fence thus happens at most once per write and epoch. An overwrite of a part is an append that also takes rows out
(Lance's Update). Lance refuses it where another change of the same fragments came in between, also itself; one that takes nothing
out lands twice, as an append does. An upsert is an Update as well: two of them with one new key have no fragment in common, so
that Lance lets both land, and the key is there twice. So each fences before it asks, also the first committer.

A request that Lance would take from nobody, at no version (NeedsChange of the port), ends the commit: each further try would
leave a fence. Lance has no compare-and-swap for appends, so a column that is dropped or retyped between the load and the append
does not stop it. That is looked for afterwards, at the version that carries the key, and told to a person instead of recorded.

*Swap*, of an overwrite of all. Lance's Overwrite with retries, or after a fence, lands on whatever is there and drops it unseen.
Without retries it is an atomic put of the one version that follows the one it is based on. Columns that are added are swapped,
too (`added.commit`). One thing that put does not see: where the version that follows was cleaned up, ours takes its place, below
the latest one, and no reader sees it (a version is kept that a tag names, while the next is cleaned up). `load` does not take
such a version for a commit, so the dataset is loaded also after a request that landed.

Deletion puts a fence that carries the key (a tombstone): older appends are refused, and whoever loads the dataset finds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self, assert_never

from checkpoint_commit import commit_loop
from checkpoint_commit.changes import Change
from checkpoint_commit.lance.port import LanceState, LanceTable
from checkpoint_commit.outcomes import (
    BlockOutcome,
    CommitOutcome,
    Committed,
    Landed,
    Refused,
    Rejected,
    RequestOutcome,
    Unanswered,
)
from checkpoint_commit.results import Results
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import (
    Append,
    ClaimRecord,
    LanceTarget,
    Merge,
    OverwriteAll,
    OverwritePartitions,
    OverwriteWhere,
    Upsert,
)
from checkpoint_protocol.records.formats.operations import AddColumns

#: So many tries of an epoch, over all calls, are the last that come one after the other: each leaves a claim and a version.
_MOST_TRIES: Final = 60

#: One request of the port: based on a version, with the key, for the change.
Send = Callable[[int, EpochKey, Change], RequestOutcome]


def commit(table: LanceTable, ledger: Ledger, results: Results, pause: Callable[[float], None] = time.sleep) -> CommitOutcome:
    """Put the results into the dataset, once, whoever else tries.

    What Lance takes as a conflict differs from operation to operation, and so does what keeps it from being carried out twice.
    """
    match results.change.operation:
        case Append():
            return Fence.of(table, ledger, results, pause, table.append).commit()
        case OverwriteWhere():
            return Fence.of(table, ledger, results, pause, table.update).commit()
        case Upsert():
            return FenceFirst.of(table, ledger, results, pause, table.update).commit()
        case OverwriteAll():
            return Swap.of(table, ledger, results, pause, table.swap).commit()
        case (OverwritePartitions() | Merge() | AddColumns()) as operation:  # columns: `lance.added.commit`
            return Rejected(reasons.TABLE_UNSUPPORTED, f"{operation.kind} is not done to Lance datasets")
        case other:
            assert_never(other)


def block_commit(table: LanceTable, ledger: Ledger, pause: Callable[[float], None] = time.sleep) -> BlockOutcome:
    """See to it that nothing of a claimed epoch lands any more: see `BlockStrategy`."""
    return commit_loop.run(Block(ledger, table), pause)


@dataclass(slots=True)
class _LanceCommit(commit_loop.CommitStrategy[LanceState]):
    noun: ClassVar[str] = "dataset"

    table: LanceTable
    targets: Sequence[LanceTarget]
    request: Send

    @classmethod
    def of(cls, table: LanceTable, ledger: Ledger, results: Results, pause: Callable[[float], None], request: Send) -> Self:
        targets = [target for target in results.targets if isinstance(target, LanceTarget)]
        name = targets[0].uri if targets else "of this write"
        return cls(ledger, results.change, name, pause, table, targets, request)

    def load(self, claim: ClaimRecord | None) -> LanceState | None:
        return load(self.table, self.key, claim)

    def references_any(self, state: LanceState) -> bool:
        return self.table.references_any(state, self.change)

    def find_problem(self, state: LanceState) -> CommitOutcome | None:
        return self.table.find_incompatibility(state, self.targets, self.change)


def load(table: LanceTable, key: EpochKey, claim: ClaimRecord | None) -> LanceState | None:
    """Load the dataset, and look for the key in all that came after the claim."""
    if claim is not None:
        assert claim.base.at is not None
        return table.load(key, since=claim.base.at)
    # Nobody has claimed, so nobody has committed: there is no history to search.
    latest = table.latest_version()
    return None if latest is None else table.load(key, since=latest)


@dataclass(slots=True)
class Swap(_LanceCommit):
    """The atomic put of the version that follows the one that was loaded; or a request that Lance refuses twice, too."""

    _landed: int | None = None

    def committed(self, state: LanceState, commit_id: int, by_us: bool, is_current: bool = True) -> CommitOutcome:
        return Committed(self.identity_of(state), commit_id, commit_id == self._landed, is_current)

    def send(self, state: LanceState, claim: ClaimRecord, is_first: bool) -> RequestOutcome | CommitOutcome:
        return self.request(state.at_version, self.key, self.change)

    def landed(self, state: LanceState, commit_id: int) -> CommitOutcome | Refused | Unanswered:
        self._landed = commit_id
        claim = self.read_claim()
        found = self.load(claim)
        known = None if found is None else self.find_end(found, claim)
        return known or Refused("it took the place of a version that was cleaned up, below the latest one")


@dataclass(slots=True)
class Fence(_LanceCommit):
    """An append or an update, which nothing but a fence keeps from landing twice."""

    #: The first committer fences, too.
    fences_first: ClassVar[bool] = False

    def send(self, state: LanceState, claim: ClaimRecord, is_first: bool) -> RequestOutcome | CommitOutcome:
        if is_first and not self.fences_first:
            return self.request(state.at_version, self.key, self.change)
        tries = self._put_next_claim(state)
        told = self._send_on_fence(state, claim)
        if tries < _MOST_TRIES or not isinstance(told, Refused | Unanswered):
            return told
        return Rejected(
            reasons.COMMIT_CONTENDED,
            f"after {tries} tries {self.goal}: {told.message}; it is tried once more now and then: let other writers commit less "
            "often, or mend what the message says",
        )

    def _put_next_claim(self, state: LanceState) -> int:
        """Put the next free claim, for people: it says that one more committer has tried. Return its number."""
        index = max(self.ledger.commits.list_claims(), default=0) + 1
        while True:
            ours = ClaimRecord(token=new_token(), index=index, base=state.base)
            if self.ledger.commits.put_claim(ours).token == ours.token:
                return index
            index += 1

    def _send_on_fence(self, state: LanceState, claim: ClaimRecord) -> RequestOutcome | CommitOutcome:
        fence = self.table.fence(state.at_version)
        if not isinstance(fence, Landed):
            return fence
        assert claim.base.at is not None
        fenced = self.table.load(self.key, since=claim.base.at, up_to=fence.commit_id)
        if fenced is None:
            return self.gone()
        known = self.find_end(fenced, claim) or self.find_problem(fenced)
        return known or self.request(fence.commit_id, self.key, self.change)

    def committed(self, state: LanceState, commit_id: int, by_us: bool, is_current: bool = True) -> CommitOutcome:
        """The key is in the dataset; what it brought can still be wrong, which nobody but us would notice."""
        change = self.table.find_schema_change(commit_id, self.targets)
        if change is None:
            return Committed(self.identity_of(state), commit_id, by_us, is_current)
        return Rejected(
            reasons.SCHEMA_CHANGED,
            f"the rows of {self.key} are in version {commit_id} of the dataset, but in the moment of their commit {change}, so "
            "that values read NULL there; restore the version before, then start a new write under another name",
        )


@dataclass(slots=True)
class FenceFirst(Fence):
    """An upsert: also the first committer looks at the dataset as of its own fence."""

    fences_first: ClassVar[bool] = True


@dataclass(slots=True)
class Block(commit_loop.BlockStrategy[LanceState]):
    """A fence that carries the key."""

    noun: ClassVar[str] = "dataset"

    table: LanceTable

    def load(self, claim: ClaimRecord | None) -> LanceState | None:
        state = load(self.table, self.key, claim)
        if state is None or claim is None or state.identity == claim.base.table_identity:
            return state
        return self.table.load(self.key, since=0)  # another dataset: its versions have nothing to do with those of the claim

    def send(self, state: LanceState, claim: ClaimRecord, is_first: bool) -> RequestOutcome:
        return self.table.block_commit(state.at_version, self.key)

    def landed(self, state: LanceState, commit_id: int) -> None:
        return None  # an append that came before the tombstone may be there
