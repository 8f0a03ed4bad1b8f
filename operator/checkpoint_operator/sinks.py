"""The sink port of the reconcile loop for each format: the adapter to its library and the commit protocol, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from checkpoint_operator.commit.outcomes import BurialOutcome, CommitOutcome
from checkpoint_operator.commit.presence import Former, Presence
from checkpoint_operator.commit.results import Files, Results, as_they_are
from checkpoint_operator.reconcile import Sink
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import Sink as SinkSpec
from checkpoint_protocol.records import NoTarget, StagedFile, Target
from checkpoint_protocol.settings import Settings

if TYPE_CHECKING:
    from checkpoint_operator.catalogs import CatalogBook


class _Table(Protocol):
    @property
    def title(self) -> str: ...

    def describe(self) -> Target | None: ...

    def create(self, arrow_schema: str, sink: SinkSpec) -> Target: ...

    def pack(self, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Files: ...

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int: ...


_TableT = TypeVar("_TableT", bound=_Table)


@dataclass(frozen=True, slots=True)
class _TableSink(Generic[_TableT]):
    """A table of one format with that format's commit protocol."""

    table: _TableT
    spec: SinkSpec
    protocol: Callable[[_TableT, Ledger, Results], CommitOutcome]
    burial: Callable[[_TableT, Ledger], BurialOutcome]

    @property
    def title(self) -> str:
        return self.table.title

    def describe(self) -> Target | None:
        return self.table.describe()

    def create(self, arrow_schema: str) -> Target:
        return self.table.create(arrow_schema, self.spec)

    def pack(self, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Files:
        return self.table.pack(key, targets, files)

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        return self.protocol(self.table, ledger, results)

    def bury(self, ledger: Ledger) -> BurialOutcome:
        return self.burial(self.table, ledger)

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        return self.table.discard(key, targets, files)


def open_sink(spec: SinkSpec, settings: Settings, catalogs: CatalogBook | None = None, written_by: str = "") -> Sink:
    """Return the sink that a manifest names. The table libraries are imported only where they are needed.

    `catalogs`: shared by all sinks of a process that has many. `written_by`: namespace and name, said beside the key of a commit.
    """
    if spec.iceberg is not None:
        from checkpoint_operator.commit import iceberg
        from checkpoint_operator.commit.iceberg_table import PyicebergTable

        iceberg_table = PyicebergTable(spec.iceberg.catalog, spec.iceberg.table, settings, catalogs, written_by=written_by)
        return _TableSink(iceberg_table, spec, iceberg.commit, iceberg.bury)
    if spec.lance is not None:
        from checkpoint_operator.commit import lance
        from checkpoint_operator.commit.lance_probe import refuse_lance_without_fences
        from checkpoint_operator.commit.lance_table import PylanceTable

        refuse_lance_without_fences()
        return _TableSink(PylanceTable(spec.lance.uri, settings, written_by), spec, lance.commit, lance.bury)
    return _NoSink()


def find_committed(spec: SinkSpec, settings: Settings, key: EpochKey, identity: str | None, commit_id: int | None) -> Presence:
    """Return what the table shows of a commit that was marked. Changes nothing, and makes no catalog.

    HERE where there was nothing to commit. Raises Retryable where catalog or store do not answer, NeedsChange where they refuse.
    """
    if identity is None or commit_id is None:
        return Presence.HERE
    if spec.iceberg is not None:
        from checkpoint_operator.catalogs import is_unmade
        from checkpoint_operator.commit.iceberg_table import PyicebergTable

        if is_unmade(spec.iceberg.catalog, settings):
            return Presence.GONE
        return PyicebergTable(spec.iceberg.catalog, spec.iceberg.table, settings).find_committed(key, identity, commit_id)
    if spec.lance is not None:
        from checkpoint_operator.commit.lance_table import PylanceTable

        return PylanceTable(spec.lance.uri, settings).find_committed(key, identity, commit_id)
    return Presence.HERE


def find_former(spec: SinkSpec, settings: Settings, name: str, uid: str | None) -> Former | None:
    """Return a commit of another write of that name (namespace/name) in the table, if the table still tells. Changes nothing.

    Raises as `find_committed` does.
    """
    if spec.iceberg is not None:
        from checkpoint_operator.catalogs import is_unmade
        from checkpoint_operator.commit.iceberg_table import PyicebergTable

        if is_unmade(spec.iceberg.catalog, settings):
            return None
        return PyicebergTable(spec.iceberg.catalog, spec.iceberg.table, settings).find_former(name, uid)
    if spec.lance is not None:
        from checkpoint_operator.commit.lance_table import PylanceTable

        return PylanceTable(spec.lance.uri, settings).find_former(name, uid)
    return None


@dataclass(frozen=True, slots=True)
class _NoSink:
    """No table: there is never anything to commit."""

    title: str = "(no table)"

    def describe(self) -> Target:
        return NoTarget()

    def create(self, arrow_schema: str) -> Target:
        return NoTarget()

    def pack(self, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Files:
        return as_they_are(key, targets, files)

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        raise AssertionError("a write without a table has no files to commit")

    def bury(self, ledger: Ledger) -> BurialOutcome:
        raise AssertionError("a write without a table claims nothing")

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        return 0
