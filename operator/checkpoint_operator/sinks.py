"""The sink port of the reconcile loop for each format: the adapter to its library and the commit protocol, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from checkpoint_operator.commit.outcomes import CommitOutcome
from checkpoint_operator.commit.results import Results
from checkpoint_operator.reconcile import Sink
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import Sink as SinkSpec
from checkpoint_protocol.records import NoTarget, Target
from checkpoint_protocol.settings import Settings


class _Table(Protocol):
    @property
    def title(self) -> str: ...

    def describe(self) -> Target | None: ...

    def create(self, arrow_schema: str, sink: SinkSpec) -> Target: ...


_TableT = TypeVar("_TableT", bound=_Table)


@dataclass(frozen=True, slots=True)
class _TableSink(Generic[_TableT]):
    """A table of one format with that format's commit protocol."""

    table: _TableT
    spec: SinkSpec
    protocol: Callable[[_TableT, Ledger, Results], CommitOutcome]

    @property
    def title(self) -> str:
        return self.table.title

    def describe(self) -> Target | None:
        return self.table.describe()

    def create(self, arrow_schema: str) -> Target:
        return self.table.create(arrow_schema, self.spec)

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        return self.protocol(self.table, ledger, results)


def open_sink(spec: SinkSpec, settings: Settings) -> Sink:
    """Return the sink that a manifest names. The table libraries are imported only where they are needed."""
    if spec.iceberg is not None:
        from checkpoint_operator.commit import iceberg
        from checkpoint_operator.commit.iceberg_table import PyicebergTable

        return _TableSink(PyicebergTable(spec.iceberg.catalog, spec.iceberg.table, settings), spec, iceberg.commit)
    if spec.lance is not None:
        from checkpoint_operator.commit import lance
        from checkpoint_operator.commit.lance_probe import refuse_lance_without_fences
        from checkpoint_operator.commit.lance_table import PylanceTable

        refuse_lance_without_fences()
        return _TableSink(PylanceTable(spec.lance.uri, settings), spec, lance.commit)
    return _NoSink()


@dataclass(frozen=True, slots=True)
class _NoSink:
    """No table: there is never anything to commit."""

    title: str = "(no table)"

    def describe(self) -> Target:
        return NoTarget()

    def create(self, arrow_schema: str) -> Target:
        return NoTarget()

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        raise AssertionError("a write without a table has no files to commit")
