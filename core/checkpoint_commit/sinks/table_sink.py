"""A table as the reconcile loop knows it: the adapter to its library and the commit protocol of its format, put together."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from checkpoint_commit.changes import Change
from checkpoint_commit.footers import Footers
from checkpoint_commit.outcomes import BlockOutcome, CommitOutcome
from checkpoint_commit.ports import NeedsStage
from checkpoint_commit.results import Results
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink as SinkSpec
from checkpoint_protocol.records import Operation, Output, StagedFile, Target, operation_of


class Table(Protocol):
    """What a sink asks of the adapter to a table's library, beside the commit."""

    @property
    def title(self) -> str: ...

    def describe(self) -> Target | None: ...

    def refuse_operation(self, operation: Operation, key: EpochKey | None = None) -> None: ...

    def create(self, arrow_schema: str, sink: SinkSpec) -> Target: ...

    def pack(
        self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile], footers: Footers
    ) -> Change: ...

    def count_rows(self, path: str, fields: Sequence[int]) -> int: ...

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int: ...


_TableT = TypeVar("_TableT", bound=Table)


@dataclass(frozen=True, slots=True)
class TableSink(ABC, Generic[_TableT]):
    """A table of one format. A Sink, once a format has added how it commits."""

    table: _TableT
    spec: SinkSpec
    output: Output | None

    @property
    def title(self) -> str:
        return self.table.title

    def describe(self, key: EpochKey) -> Target | None:
        target = self.table.describe()
        if target is not None:
            self.table.refuse_operation(operation_of(self.spec, target.base), key)
        return target

    def create(self, arrow_schema: str) -> Target:
        return self.table.create(arrow_schema, self.spec)

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        footers = Footers(self.spec.verify, self.table.count_rows, secrets.randbelow)
        return self.table.pack(operation, key, targets, files, footers)

    @abstractmethod
    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome | NeedsStage: ...

    @abstractmethod
    def block_commit(self, ledger: Ledger) -> BlockOutcome: ...

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        return self.table.discard(key, targets, files)
