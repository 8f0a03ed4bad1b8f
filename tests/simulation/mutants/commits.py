"""Planted bugs of the commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from checkpoint_commit.iceberg.commit import IcebergState
from checkpoint_commit.lance import commit as lance
from checkpoint_commit.lance.port import LanceState
from checkpoint_commit.outcomes import CommitOutcome, Landed, Refused, RequestOutcome
from checkpoint_commit.results import Results, gather
from checkpoint_control.decision.actions import BeginStage, Stall
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_protocol.identity import EpochKey, new_uid
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import ClaimRecord, LanceBase, OverwriteAll
from tests.simulation.iceberg_port import IcebergPort
from tests.simulation.lance_table import SimulatedLance


@dataclass(slots=True)
class _LanceWrapper:
    """The Lance port, passed through."""

    inner: SimulatedLance

    def latest_version(self) -> int | None:
        return self.inner.latest_version()

    def load(self, key: EpochKey, since: int, up_to: int | None = None) -> LanceState | None:
        return self.inner.load(key, since, up_to)

    def find_incompatibility(self, state: LanceState, targets: Any, change: Any) -> Any:
        return self.inner.find_incompatibility(state, targets, change)

    def find_schema_change(self, at_version: int, targets: Any) -> str | None:
        return self.inner.find_schema_change(at_version, targets)

    def references_any(self, state: LanceState, change: Any) -> bool:
        return self.inner.references_any(state, change)

    def append(self, read_version: int, key: EpochKey, change: Any) -> RequestOutcome:
        return self.inner.append(read_version, key, change)

    def fence(self, read_version: int) -> RequestOutcome:
        return self.inner.fence(read_version)

    def block_commit(self, read_version: int, key: EpochKey) -> RequestOutcome:
        return self.inner.block_commit(read_version, key)


class WithoutFence(_LanceWrapper):
    """Look, then append: an append of another committer may be on its way."""

    def fence(self, read_version: int) -> RequestOutcome:
        return Landed(self.inner.latest)


class FencedOnce(_LanceWrapper):
    """After an append without an answer, the first fence is thought to be enough."""

    def __init__(self, inner: SimulatedLance) -> None:
        super().__init__(inner)
        self.made: int | None = None

    def fence(self, read_version: int) -> RequestOutcome:
        if self.made is not None:
            return Landed(self.inner.latest)
        outcome = self.inner.fence(read_version)
        if isinstance(outcome, Landed):
            self.made = outcome.commit_id
        return outcome


class _LoadAfterTheClaim(lance.Fence):
    """Claims first and looks then: what it looks at may lie behind another committer's fence."""

    def read_claim(self) -> ClaimRecord | None:
        if self.ledger.commits.read_claim(0) is None:
            latest = self.table.latest_version()
            assert latest is not None
            _, self.is_ours = self.put_claim(LanceBase(identity="1" * 32, at_version=latest))
        return self.ledger.commits.read_claim(0)

    def send(self, state: LanceState, claim: ClaimRecord, is_first: bool) -> RequestOutcome | CommitOutcome:
        is_first, self.is_ours = self.is_ours, False
        return lance.Fence.send(self, state, claim, is_first)

    is_ours = False


def load_after_the_claim(
    table: Any, ledger: Ledger, results: Results, pause: Callable[[float], None] = time.sleep
) -> CommitOutcome:
    return _LoadAfterTheClaim.of(table, ledger, results, pause, table.append).commit()


class RecordBeforeCommit(Reconciler):
    """Notes that the commit was made, and then makes it."""

    def _commit(self, ledger: Ledger, attempt: int) -> Stall | BeginStage | None:
        results = gather(ledger, attempt)
        self._put_commit(ledger, results, None, ledger.key.snapshot_id)
        return super()._commit(ledger, attempt)


@dataclass(slots=True)
class _IcebergWrapper:
    """The Iceberg port, passed through under another key."""

    inner: IcebergPort

    def key_for(self, key: EpochKey) -> EpochKey:
        return key

    def load(self, key: EpochKey) -> IcebergState | None:
        return self.inner.load(self.key_for(key))

    def find_change(self, state: IcebergState, targets: Any) -> Any:
        return self.inner.find_change(state, targets)

    def find_incompatibility(self, state: IcebergState, targets: Any, change: Any) -> Any:
        return self.inner.find_incompatibility(state, targets, change)

    def references_any(self, state: IcebergState, change: Any) -> bool:
        return self.inner.references_any(state, change)

    def swap(self, state: IcebergState, key: EpochKey, change: Any) -> RequestOutcome:
        return self.inner.swap(state, self.key_for(key), change)

    def block_commit(self, state: IcebergState, key: EpochKey) -> RequestOutcome:
        return self.inner.block_commit(state, self.key_for(key))


class RebasesByItself(_IcebergWrapper):
    """As a library's own retry: refused, it loads the table again and commits the same files, without looking for the key."""

    def swap(self, state: IcebergState, key: EpochKey, change: Any) -> RequestOutcome:
        outcome = self.inner.swap(state, key, change)
        table = self.inner.table
        paths = tuple(file.path for file in change.files)
        for _ in range(4):
            if not isinstance(outcome, Refused):
                break
            overwrites, snapshot_id = isinstance(change.operation, OverwriteAll), 10_000 + len(table.versions)
            outcome = table.request_swap(table.metadata, key, paths, snapshot_id, overwrites=overwrites)
        return outcome


class KeyedByName(_IcebergWrapper):
    """The key is made of the write's name; names are used again."""

    def key_for(self, key: EpochKey) -> EpochKey:
        return EpochKey("write", key.epoch)


class KeyedByProcess(_IcebergWrapper):
    """The key is made of an id that is drawn anew at each try."""

    def __init__(self, inner: IcebergPort) -> None:
        super().__init__(inner)
        self.uid = new_uid()

    def key_for(self, key: EpochKey) -> EpochKey:
        return EpochKey(self.uid, key.epoch)


class KeyedByWrite(_IcebergWrapper):
    """One key for all epochs of a write: the second is thought to be there."""

    def key_for(self, key: EpochKey) -> EpochKey:
        return EpochKey(key.uid, 1)
