"""Planted bugs of deletion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checkpoint_commit.iceberg.commit import IcebergState
from checkpoint_commit.lance.port import LanceState
from checkpoint_commit.outcomes import BlockOutcome, CommitBlocked, Committed
from checkpoint_control.writes.deletion import DeletionOutcome, delete_write
from checkpoint_protocol import writes
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.attempts import Commits
from checkpoint_protocol.ledger.epoch_records import EpochRecords
from checkpoint_protocol.records import MAX_RECORD_BYTES, ClaimRecord, IcebergBase, LanceBase
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.object_store import ObjectStore, StoredObject
from tests.simulation.mutants.commits import _IcebergWrapper, _LanceWrapper


@dataclass(slots=True)
class _StoreWrapper:
    """A store, passed through."""

    inner: ObjectStore

    @property
    def uri(self) -> str:
        return self.inner.uri

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self.inner.put_if_absent(path, data)

    def get(self, path: str, most_bytes: int) -> bytes | None:
        return self.inner.get(path, most_bytes)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        return self.inner.list(folder, borders)

    def delete(self, paths: Iterable[str]) -> None:
        self.inner.delete(paths)


class _AsItWas(_StoreWrapper):
    """Answers for some paths what was there before."""

    def __init__(self, inner: ObjectStore, paths: Iterable[str]) -> None:
        super().__init__(inner)
        self.seen = {path: inner.get(path, MAX_RECORD_BYTES) for path in paths}

    def get(self, path: str, most_bytes: int) -> bytes | None:
        return self.seen[path] if path in self.seen else self.inner.get(path, most_bytes)


class _ClaimsAsListed(_StoreWrapper):
    """Takes a listing for a snapshot: a claim that it does not show is not there."""

    def get(self, path: str, most_bytes: int) -> bytes | None:
        folder, _, name = path.rpartition("/")
        if name.startswith("claim-") and path not in {stored.path for stored in self.inner.list(f"{folder}/")}:
            return None
        return self.inner.get(path, most_bytes)


def claims_before_the_note(store: ObjectStore, uid: str, sink: Any, **ports: Any) -> DeletionOutcome:
    """Looks whether anybody has claimed, and notes the deletion then."""
    epochs = range(1, writes.last_epoch(store, uid) + 1)
    seen = _AsItWas(store, [EpochLayout(EpochKey(uid, epoch)).claim(0) for epoch in epochs])
    return delete_write(seen, uid, sink, **ports)


def claims_as_listed(store: ObjectStore, uid: str, sink: Any, **ports: Any) -> DeletionOutcome:
    return delete_write(_ClaimsAsListed(store), uid, sink, **ports)


class _AsksBeforeItsClaim(Commits):
    def __init__(self, records: EpochRecords) -> None:
        super().__init__(records)
        object.__setattr__(self, "asked", [False])

    asked: list[bool]

    def put_claim(self, record: ClaimRecord) -> ClaimRecord:
        self.asked[0] = super().is_deleted()
        return super().put_claim(record)

    def is_deleted(self) -> bool:
        return self.asked[0]


class AsksBeforeItsClaim(Ledger):
    """A committer that asks whether the write was deleted, and claims then."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.commits = _AsksBeforeItsClaim(self.records)


def load_without_a_tombstone(table: Any, ledger: Ledger, pause: Callable[[float], None]) -> BlockOutcome:
    """Looks whether the commit has landed; not there is taken for never there."""
    claim = ledger.commits.read_claim(0)
    assert claim is not None
    match claim.base:
        case IcebergBase(table_uuid=identity):
            state = table.load(ledger.key)
        case LanceBase(identity=identity, at_version=version):
            state = table.load(ledger.key, since=version)
    return CommitBlocked(identity) if state.committed is None else Committed(identity, state.committed, by_us=False)


def block_unseen(table: Any, ledger: Ledger, pause: Callable[[float], None]) -> BlockOutcome:
    """Without a commit record nothing was committed, it is thought."""
    claim = ledger.commits.read_claim(0)
    assert claim is not None
    assert isinstance(claim.base, IcebergBase)
    return CommitBlocked(claim.base.table_uuid)


class WithoutIncompatibilityCheck(_IcebergWrapper):
    """The second net is gone: nothing looks whether the staged files are still there."""

    def find_incompatibility(self, state: IcebergState, targets: Any, files: Any) -> Any:
        return None


class TombstoneTakenForACommit(_IcebergWrapper):
    """Whatever carries the key is thought to be the commit."""

    def load(self, key: EpochKey) -> IcebergState | None:
        state = self.inner.load(key)
        seen = None if state is None else replace(state, is_tombstone=False)
        if seen is not None and self.inner.loaded is not None:
            self.inner.loaded = (seen, self.inner.loaded[1])
        return seen


class LanceTombstoneTakenForACommit(_LanceWrapper):
    """Whatever carries the key is thought to be the commit."""

    def load(self, key: EpochKey, since: int, up_to: int | None = None) -> LanceState | None:
        state = self.inner.load(key, since, up_to)
        return None if state is None else replace(state, is_tombstone=False)
