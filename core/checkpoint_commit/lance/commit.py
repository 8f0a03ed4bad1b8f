"""The Lance commit of an append, and of an overwrite of a part: load, claim, append once; everybody after that fences first.

Appends do not conflict with each other in Lance, so "is it there? no: append" doubles rows when two committers overlap. But an
append that was based on a version older than a no-op Project transaction (the fence) is refused.

    1. load the latest version v: is the key in its history? does it fit?
    2. put claim-0, naming v. Won: append once, based on v. (Loaded before the claim; the other order is wrong.)
    3. a claim exists, or the append was refused, or has no believable answer (it may be on its way):
       put the next claim, commit a fence f, load as in 1 up to f, append based on f. Refused or unanswered: step 3 again.

After f is in the table, no append of an earlier committer can land; one that landed before f is found when f is loaded. An
append without a fence thus happens at most once per write and epoch.

An overwrite of a part is an append that also takes rows out (Lance's Update). Lance refuses it where another change of the same
fragments came in between, also itself; one that takes nothing out lands twice, as an append does. A fence stops either.

An upsert is an Update as well. Two of them with one new key have no fragment in common, so that Lance lets both land, and the key
is there twice. So each fences before it asks, also the first committer: the dataset is looked at as of its own fence, and what
another upsert has sent before is in that version, or is refused.

Deletion of a write whose append may be on its way puts a fence that carries the key (a tombstone, `block_commit`): older appends
are refused, and whoever loads the dataset finds it. A committer that has not yet sent anything finds the note of the deletion
(`Commits.is_deleted`): it asks after its claim is stored, and before its append or its fence.

A request that Lance would take from nobody, at no version (NeedsChange of the port), ends the commit: each further try would
leave a fence.

Lance has no compare-and-swap for appends, so a column that is dropped or retyped between the load and the append does not stop
it. That is looked for afterwards, at the version that carries the key, and told to a person instead of recorded as done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from checkpoint_commit.changes import Change
from checkpoint_commit.lance import swap as lance_swap
from checkpoint_commit.lance.port import LanceState, LanceTable, deleted, gone, without_evidence
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
    Unknown,
)
from checkpoint_commit.results import Results
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import (
    Append,
    ClaimRecord,
    LanceBase,
    LanceTarget,
    Merge,
    OverwriteAll,
    OverwritePartitions,
    OverwriteWhere,
    Upsert,
)
from checkpoint_protocol.records.formats.operations import AddColumns

_ROUNDS: Final = 12
#: So many tries of an epoch, over all calls, are the last that come one after the other: each leaves a claim and a version.
_MOST_TRIES: Final = 60
_FIRST_PAUSE_S: Final = 0.1
_MOST_PAUSE_S: Final = 5.0


def commit(table: LanceTable, ledger: Ledger, results: Results, pause: Callable[[float], None] = time.sleep) -> CommitOutcome:
    """Put the results into the dataset, once, whoever else tries. See the module for the protocol.

    What Lance takes as a conflict differs from operation to operation, and so does what keeps it from being carried out twice.
    """
    targets = [target for target in results.targets if isinstance(target, LanceTarget)]
    try:
        match results.change.operation:
            case Append():
                return _Committer(table, ledger, results.change, targets, table.append, pause).commit()
            case OverwriteWhere():
                return _Committer(table, ledger, results.change, targets, table.update, pause).commit()
            case Upsert():
                return _Committer(table, ledger, results.change, targets, table.update, pause, fences_first=True).commit()
            case OverwriteAll():
                return lance_swap.commit(table, ledger, results.change, targets, pause)
            case (OverwritePartitions() | Merge() | AddColumns()) as operation:  # columns: `lance_added_commit`
                return Rejected(reasons.TABLE_UNSUPPORTED, f"{operation.kind} is not done to Lance datasets")
            case other:
                assert_never(other)
    except NeedsChange as error:
        return Rejected(error.reason, error.message)
    except Retryable as error:
        return TryLater(error.reason, error.message)


@dataclass(frozen=True, slots=True)
class _Committer:
    table: LanceTable
    ledger: Ledger
    change: Change
    targets: Sequence[LanceTarget]
    send: Callable[[int, EpochKey, Change], RequestOutcome]
    pause: Callable[[float], None]
    #: The first committer fences, too.
    fences_first: bool = False

    @property
    def key(self) -> EpochKey:
        return self.ledger.key

    def commit(self) -> CommitOutcome:
        first_claim = self.ledger.commits.read_claim(0)
        if first_claim is None:
            loaded = self._load_before_the_claim()
            if not isinstance(loaded, LanceState):
                return loaded
            if loaded.identity is None:
                return TryLater(reasons.COMMIT_CONTENDED, "somebody has claimed just now, and the dataset was made again since")
            base = LanceBase(identity=loaded.identity, at_version=loaded.at_version)
            ours = ClaimRecord(token=new_token(), index=0, base=base)
            first_claim = self.ledger.commits.put_claim(ours)
            if first_claim.token == ours.token and not self.fences_first:
                if self.ledger.commits.is_deleted():
                    return deleted(self.key)
                match self.send(loaded.at_version, self.key, self.change):
                    case Landed(version):
                        return self._committed(base, version, by_us=True)
                    case _:
                        pass
        assert isinstance(first_claim.base, LanceBase)
        return self._take_over(first_claim.base)

    def _load_before_the_claim(self) -> LanceState | CommitOutcome:
        latest = self.table.latest_version()
        # Nobody has claimed, so nobody has committed: there is no history to search.
        state = None if latest is None else self.table.load(self.key, since=latest)
        if state is None:
            return gone(self.targets)
        incompatibility = self.table.find_incompatibility(state, self.targets, self.change)
        # Somebody may have claimed and committed since: then "the files are there already" is no incompatibility, and the
        # claim says so.
        return incompatibility if incompatibility is not None and self.ledger.commits.read_claim(0) is None else state

    def _take_over(self, base: LanceBase) -> CommitOutcome:
        said = "the dataset kept moving"
        index = max(self.ledger.commits.list_claims(), default=0) + 1
        is_hopeless = index >= _MOST_TRIES
        for number in range(1 if is_hopeless else _ROUNDS):
            state = self.table.load(self.key, since=base.at_version)
            if (known := self._judge(state, base)) is not None:
                return known
            assert state is not None
            index = self._claim_after(index, state, base)
            if self.ledger.commits.is_deleted():
                return deleted(self.key)
            match self.table.fence(state.at_version):
                case Landed(fence):
                    fenced = self.table.load(self.key, since=base.at_version, up_to=fence)
                    if (known := self._judge(fenced, base)) is not None:
                        return known
                    match self.send(fence, self.key, self.change):
                        case Landed(version):
                            return self._committed(base, version, by_us=True)
                        case Refused(message):
                            said = message
                        case unanswered:
                            said = unanswered.message
                case Refused(message):
                    said = message
                case unanswered:
                    said = unanswered.message
            self.pause(min(_MOST_PAUSE_S, _FIRST_PAUSE_S * 2**number))
        if is_hopeless:
            return Rejected(
                reasons.COMMIT_CONTENDED,
                f"after {index} tries the commit of {self.key} is not in the dataset: {said}; it is tried once more now and "
                "then: let other writers commit less often, or mend what the message says",
            )
        return TryLater(reasons.COMMIT_CONTENDED, f"after {_ROUNDS} tries the commit of {self.key} is not in the dataset: {said}")

    def _claim_after(self, index: int, state: LanceState, base: LanceBase) -> int:
        """Put the next free claim, for people and for deletion: it says that one more committer has tried."""
        while True:
            ours = ClaimRecord(
                token=new_token(), index=index, base=LanceBase(identity=base.identity, at_version=state.at_version)
            )
            index += 1
            if self.ledger.commits.put_claim(ours).token == ours.token:
                return index

    def _judge(self, state: LanceState | None, base: LanceBase) -> CommitOutcome | None:
        """Return the outcome if it can be told from a state, or None if the commit is still to be made."""
        if state is None:
            return gone(self.targets)
        if state.committed is not None and state.is_tombstone:
            return deleted(self.key)
        if state.committed is not None:
            return self._committed(base, state.committed, by_us=False, is_current=state.is_current)
        is_replaced = state.identity != base.identity
        if not is_replaced and not state.history_reaches_back:
            if self.table.references_any(state, self.change):
                return Committed(base.identity, state.at_version, by_us=False)
            return Unknown(without_evidence(self.key, base.at_version))
        return self.table.find_incompatibility(state, self.targets, self.change)

    def _committed(self, base: LanceBase, version: int, by_us: bool, is_current: bool = True) -> Committed | Rejected:
        """The key is in the dataset; what it brought can still be wrong, which nobody but us would notice."""
        change = self.table.find_schema_change(version, self.targets)
        if change is None:
            return Committed(base.identity, version, by_us, is_current)
        return Rejected(
            reasons.SCHEMA_CHANGED,
            f"the rows of {self.key} are in version {version} of the dataset, but in the moment of their commit {change}, so "
            "that values read NULL there; restore the version before, then start a new write under another name",
        )


def block_commit(table: LanceTable, ledger: Ledger, pause: Callable[[float], None] = time.sleep) -> BlockOutcome:
    """See to it that nothing of a claimed epoch lands any more, unless it has landed: then say so.

    To be called after the note of the deletion was put (`put_deleted`) and for an epoch with a claim only: without one, nothing
    was ever sent to the dataset, and nothing needs to be. Looks before each request and after it, also where it landed: an append
    that came before the tombstone is found. Calling it again finds the tombstone, as long as its version was not cleaned up.
    Unknown: whether the append landed cannot be seen any more; nothing is sent.
    """
    try:
        return _block_commit(table, ledger, pause)
    except NeedsChange as error:
        return Rejected(error.reason, error.message)
    except Retryable as error:
        return TryLater(error.reason, error.message)


def _block_commit(table: LanceTable, ledger: Ledger, pause: Callable[[float], None]) -> BlockOutcome:
    key, claim = ledger.key, ledger.commits.read_claim(0)
    assert claim is not None
    assert isinstance(claim.base, LanceBase)
    base, said = claim.base, "the dataset kept moving"
    for number in range(_ROUNDS):
        state = table.load(key, since=base.at_version)
        if state is not None and state.identity != base.identity:
            state = table.load(key, since=0)  # another dataset: its versions have nothing to do with those of the claim
        if state is None:
            return CommitBlocked(table_identity=None)
        is_claimed = state.identity == base.identity
        if state.committed is not None and state.is_tombstone:
            return CommitBlocked(base.identity if is_claimed else None)
        if state.committed is not None:
            return Committed(base.identity, state.committed, by_us=False)
        if is_claimed and not state.history_reaches_back:
            return Unknown(
                f"a commit of {key} was tried on version {base.at_version}, and versions after it were cleaned up; the key is "
                "not in the dataset; check whether the rows are there"
            )
        match table.block_commit(state.at_version, key):
            case Landed():
                continue
            case Refused(message):
                said = message
            case unanswered:
                said = unanswered.message
        pause(min(_MOST_PAUSE_S, _FIRST_PAUSE_S * 2**number))
    return TryLater(reasons.COMMIT_CONTENDED, f"after {_ROUNDS} tries the tombstone of {key} is not in the dataset: {said}")
