"""The Lance commit of columns for rows that are there: a stage makes data files, one transaction shows them.

    is the key in the history since the base of the claim?       yes: already committed
    is there a stage `pack-<version>` that is done, and are the
    fragments still those that its files were made for?          yes: claim, and one DataReplacement at a time, as a swap
    is there one that may still be used, and is not done?        it is gone on with
    else                                                         the stage `pack-<latest version>`

A stage reads what the epoch has staged, and no step runs for it. Appends and deletes that come in between keep all rows in their
places. After a compaction, and after updates, rows are in other fragments: the next stage finds them there. It is bounded how
often: a table that is rewritten all the time is for a person to look at.

Lance refuses a DataReplacement where another transaction has moved rows of its fragments, or has given values to its columns:
also the same one, sent twice. So a late request of a committer that died lands at most once, and no fence is needed. Lance says
that it may change this: `refuse_lance_that_replaces_twice` tries it first.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from checkpoint_commit.changes import Change
from checkpoint_commit.lance.added.staged import LanceReplacement
from checkpoint_commit.lance.added.table import PylanceColumns
from checkpoint_commit.lance.commit import Swap
from checkpoint_commit.lance.port import LanceState
from checkpoint_commit.outcomes import CommitOutcome, Committed, Rejected, TryLater
from checkpoint_commit.outcomes import Final as NothingToCommit
from checkpoint_commit.results import Results, gather
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import LanceTarget, Operation, StagedFile, Target
from checkpoint_protocol.records.formats.operations import AddColumns

_PREFIX: Final = "pack-"
#: So many stages of an epoch are begun.
_MOST_PACKS: Final = 8
#: Of what was done to the dataset, so much is said.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class NeedsPack:
    """First data files have to be made for this version of the dataset."""

    name: str
    at_version: int


def commit(
    table: PylanceColumns, ledger: Ledger, results: Results, pause: Callable[[float], None] = time.sleep
) -> CommitOutcome | NeedsPack:
    """Show what was staged as columns of the rows, once, whoever tries; or say for which version files must be made before.

    Raises what the table raises.
    """
    targets = [target for target in results.targets if isinstance(target, LanceTarget)]
    outcome = _Commit(table, ledger, results, targets, pause).outcome()
    if isinstance(outcome, Committed | NothingToCommit):
        # Before it is recorded: whoever dies here is followed by one that comes here again.
        table.clear_staged(ledger.key)
    return outcome


@dataclass(frozen=True, slots=True)
class _Commit:
    table: PylanceColumns
    ledger: Ledger
    results: Results
    targets: Sequence[LanceTarget]
    pause: Callable[[float], None]

    @property
    def operation(self) -> AddColumns:
        operation = self.results.change.operation
        assert isinstance(operation, AddColumns)
        return operation

    def outcome(self) -> CommitOutcome | NeedsPack:
        packs = self._packs()
        looked = self._swap_of(self.results.change)
        state = looked.load(looked.read_claim())
        if state is None:
            return looked.gone()
        if self._is_to_be_looked_up(state):
            # What is sent is known by the stage that was done last: it tells a commit whose version was cleaned up.
            done = [change for version in packs if (change := self._packed(version)) is not None]
            return self._swap(done[0] if done else self.results.change)
        problem = self.table.find_incompatibility(state, self.targets, self.results.change)
        if problem is not None:
            return problem if self.ledger.commits.read_claim(0) is None else self._swap(self.results.change)
        for version in packs:
            packed = self._packed(version)
            if packed is None and self.table.may_go_on(version, state.at_version):
                return NeedsPack(f"{_PREFIX}{version}", version)
            if packed is not None and self._moved(packed, state) is None:
                return self._swap(packed) if len(packed) or packed.incompatibility is not None else NothingToCommit()
        if len(packs) >= _MOST_PACKS:
            since = self.table.operations_since(packs[0], state.at_version)[:_NAMED]
            return Rejected(
                reasons.COMMIT_CONTENDED,
                f"data files for {', '.join(self.operation.columns)} were made {len(packs)} times, and each time rows of "
                f"{self.table.title} were moved before they were committed ({'; '.join(since) or 'unknown'}): let compactions "
                "and updates wait; nothing that the steps have done is lost",
            )
        return NeedsPack(f"{_PREFIX}{state.at_version}", state.at_version)

    def _is_to_be_looked_up(self, state: LanceState) -> bool:
        """Whether the epoch is committed, or nobody knows: the swap says which, and sends nothing."""
        claim = self.ledger.commits.read_claim(0)
        if state.committed is not None:
            return True
        return claim is not None and state.identity == claim.base.table_identity and not state.history_reaches_back

    def _packs(self) -> list[int]:
        """Return for which versions files were begun to be made, the latest first."""
        keys = writes.list_stages(self.ledger.store, self.ledger.key)
        names = [key.stage.removeprefix(_PREFIX) for key in keys if key.stage.startswith(_PREFIX)]
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)

    def _packed(self, version: int) -> LanceReplacement | None:
        """Return what a stage has made; None if it is not done."""
        key = self.ledger.key.of_stage(f"{_PREFIX}{version}")
        stage = Ledger(self.ledger.store, key, self.ledger.pause, self.ledger.map_all)
        done = stage.commits.read_commit()
        if done is None:
            return None

        def pack(_operation: Operation, _key: EpochKey, _targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
            return self.table.pack_files(self.operation, self.targets, files)

        return cast(LanceReplacement, gather(stage, done.attempts, pack).change)

    def _moved(self, packed: LanceReplacement, state: LanceState) -> int | None:
        return self.table.find_moved(packed, state.at_version, self.targets)

    def _swap(self, change: Change) -> CommitOutcome | NeedsPack:
        swap = self._swap_of(change)
        ended = swap.commit()
        # The files are made for a version that is no more: another stage is asked for.
        return self.outcome() if swap.has_moved and isinstance(ended, TryLater) else ended

    def _swap_of(self, change: Change) -> _Replace:
        results = dataclasses.replace(self.results, change=change)
        return _Replace.of(self.table, self.ledger, results, self.pause, self.table.replace)


@dataclass(slots=True)
class _Replace(Swap):
    """One DataReplacement: the files of a stage, where the fragments are still those that they were made for."""

    has_moved: bool = False

    def find_problem(self, state: LanceState) -> CommitOutcome | None:
        if (problem := Swap.find_problem(self, state)) is not None:
            return problem
        if not isinstance(self.change, LanceReplacement):
            return TryLater(reasons.COMMIT_CONTENDED, "another has committed in this moment, or is about to")
        table = cast(PylanceColumns, self.table)
        fragment = table.find_moved(self.change, state.at_version, self.targets)
        if fragment is None:
            return None
        self.has_moved = True
        return TryLater(
            reasons.COMMIT_CONTENDED,
            f"fragment {fragment} of {table.title} was rewritten before its columns were committed; it is packed again",
        )
