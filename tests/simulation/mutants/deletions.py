"""Planted bugs of deletion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checkpoint_operator.commit.iceberg import IcebergLook
from checkpoint_operator.commit.lance import LanceLook
from checkpoint_operator.commit.outcomes import BurialOutcome, Buried, Committed
from checkpoint_operator.deletion import DeletionOutcome, delete_write
from checkpoint_protocol import writes
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.layout import EpochLayout
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import ClaimRecord, IcebergBase, LanceBase
from checkpoint_protocol.store import ObjectStore, StoredObject
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

    def get(self, path: str) -> bytes | None:
        return self.inner.get(path)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        return self.inner.list(folder, borders)

    def delete(self, paths: Iterable[str]) -> None:
        self.inner.delete(paths)


class _AsItWas(_StoreWrapper):
    """Answers for some paths what was there before."""

    def __init__(self, inner: ObjectStore, paths: Iterable[str]) -> None:
        super().__init__(inner)
        self.seen = {path: inner.get(path) for path in paths}

    def get(self, path: str) -> bytes | None:
        return self.seen[path] if path in self.seen else self.inner.get(path)


class _ClaimsAsListed(_StoreWrapper):
    """Takes a listing for a snapshot: a claim that it does not show is not there."""

    def get(self, path: str) -> bytes | None:
        folder, _, name = path.rpartition("/")
        if name.startswith("claim-") and path not in {stored.path for stored in self.inner.list(f"{folder}/")}:
            return None
        return self.inner.get(path)


def claims_before_the_note(store: ObjectStore, uid: str, sink: Any, **ports: Any) -> DeletionOutcome:
    """Looks whether anybody has claimed, and notes the deletion then."""
    epochs = writes.list_epochs(store, uid)
    seen = _AsItWas(store, [EpochLayout(EpochKey(uid, epoch)).claim(0) for epoch in epochs])
    return delete_write(seen, uid, sink, **ports)


def claims_as_listed(store: ObjectStore, uid: str, sink: Any, **ports: Any) -> DeletionOutcome:
    return delete_write(_ClaimsAsListed(store), uid, sink, **ports)


class AsksBeforeItsClaim(Ledger):
    """A committer that asks whether the write was deleted, and claims then."""

    _asked: bool = False

    def put_claim(self, record: ClaimRecord) -> ClaimRecord:
        self._asked = super().is_deleted()
        return super().put_claim(record)

    def is_deleted(self) -> bool:
        return self._asked


def look_without_a_tombstone(table: Any, ledger: Ledger, pause: Callable[[float], None]) -> BurialOutcome:
    """Looks whether the commit has landed; not there is taken for never there."""
    claim = ledger.read_claim(0)
    assert claim is not None
    match claim.base:
        case IcebergBase(table_uuid=identity):
            look = table.look(ledger.key)
        case LanceBase(identity=identity, at_version=version):
            look = table.look(ledger.key, since=version)
    return Buried(identity) if look.committed is None else Committed(identity, look.committed, by_us=False)


def bury_unseen(table: Any, ledger: Ledger, pause: Callable[[float], None]) -> BurialOutcome:
    """Without a mark nothing was committed, it is thought."""
    claim = ledger.read_claim(0)
    assert claim is not None
    assert isinstance(claim.base, IcebergBase)
    return Buried(claim.base.table_uuid)


class WithoutMisfit(_IcebergWrapper):
    """The second net is gone: nothing looks whether the staged files are still there."""

    def find_incompatibility(self, look: IcebergLook, targets: Any, files: Any) -> Any:
        return None


class TombstoneTakenForACommit(_IcebergWrapper):
    """Whatever carries the key is thought to be the commit."""

    def look(self, key: EpochKey) -> IcebergLook | None:
        look = self.inner.look(key)
        seen = None if look is None else replace(look, is_tombstone=False)
        if seen is not None and self.inner.looked is not None:
            self.inner.looked = (seen, self.inner.looked[1])
        return seen


class LanceTombstoneTakenForACommit(_LanceWrapper):
    """Whatever carries the key is thought to be the commit."""

    def look(self, key: EpochKey, since: int, up_to: int | None = None) -> LanceLook | None:
        look = self.inner.look(key, since, up_to)
        return None if look is None else replace(look, is_tombstone=False)
