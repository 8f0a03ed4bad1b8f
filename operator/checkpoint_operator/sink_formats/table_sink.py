"""A table as the reconcile loop knows it: the adapter to its library and the commit protocol of its format, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from checkpoint_operator.commit.outcomes import BurialOutcome, CommitOutcome
from checkpoint_operator.commit.results import Files, Results
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import Sink as SinkSpec
from checkpoint_protocol.outputs import Output
from checkpoint_protocol.records import StagedFile, Target


class _Table(Protocol):
    @property
    def title(self) -> str: ...

    def describe(self) -> Target | None: ...

    def create(self, arrow_schema: str, sink: SinkSpec) -> Target: ...

    def pack(self, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Files: ...

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int: ...


_TableT = TypeVar("_TableT", bound=_Table)


@dataclass(frozen=True, slots=True)
class TableSink(Generic[_TableT]):
    """A table of one format with that format's commit protocol."""

    table: _TableT
    spec: SinkSpec
    output: Output | None
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
