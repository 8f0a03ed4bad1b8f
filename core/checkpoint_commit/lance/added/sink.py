"""Columns for rows of a Lance dataset as the reconcile loop knows them: the dataset, and the stage that makes data files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from checkpoint_commit import commit_loop
from checkpoint_commit.changes import Change, as_staged
from checkpoint_commit.lance import commit as lance
from checkpoint_commit.lance.added import commit as lance_added_commit
from checkpoint_commit.lance.added.commit import NeedsPack
from checkpoint_commit.lance.added.table import PylanceColumns
from checkpoint_commit.outcomes import BlockOutcome, CommitOutcome, Committed, Final
from checkpoint_commit.ports import NeedsStage, Stage
from checkpoint_commit.results import Results
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink as SinkSpec
from checkpoint_protocol.manifest.sources.source import LanceSource, Source
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import LancePackTarget, LanceTarget, Operation, Output, StagedFile, Target
from checkpoint_protocol.records.formats.operations import AddColumns


@dataclass(frozen=True, slots=True)
class ColumnsSink:
    """A Lance dataset whose rows get columns. A Sink."""

    table: PylanceColumns
    spec: SinkSpec
    output: Output | None

    @property
    def title(self) -> str:
        return self.table.title

    def describe(self, key: EpochKey) -> Target | None:
        """Return the dataset; None if it does not have the columns yet, so that `create` has something to do."""
        self.table.refuse_tag(key)
        return self.table.describe_with(self.spec.columns)

    def create(self, arrow_schema: str) -> Target:
        """Add the columns to the dataset, NULL in each row."""
        return self.table.add_columns(arrow_schema, self.spec)

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        return self.table.pack(operation, key, targets, files)

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome | NeedsStage:
        return commit_loop.outcome_of(lambda: self._commit(ledger, results))

    def _commit(self, ledger: Ledger, results: Results) -> CommitOutcome | NeedsStage:
        if self.table.has_tag and ledger.commits.read_claim(0) is None:
            self.table.refuse_tag(ledger.key)
        outcome = lance_added_commit.commit(self.table, ledger, results)
        if isinstance(outcome, NeedsPack):
            return NeedsStage(self._stage(outcome, results))
        if isinstance(outcome, Committed):
            self.table.set_tag(ledger.key, outcome.commit_id)
        return outcome

    def _stage(self, needed: NeedsPack, results: Results) -> Stage:
        operation, target = results.change.operation, results.targets[-1]
        assert isinstance(operation, AddColumns)
        assert isinstance(target, LanceTarget)
        packed = self.table.target_of_pack(target, operation, needed.at_version, results.attempts)

        def derive(spec: Spec) -> Spec:
            assert spec.source.lance is not None
            lance_source = LanceSource(
                uri=spec.source.lance.location, version=needed.at_version, split_size=spec.source.lance.split_size
            )
            checkpoint = spec.checkpoint.model_copy(update={"maximum_rows": None})  # a fragment is one file
            changes = {"source": Source(lance=lance_source), "steps": (), "on_row_error": "Fail", "checkpoint": checkpoint}
            return spec.model_copy(update=changes)

        return Stage(needed.name, derive, PackSink(packed))

    def block_commit(self, ledger: Ledger) -> BlockOutcome:
        return lance.block_commit(self.table, ledger)

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        return self.table.discard(key, targets, files)


@dataclass(frozen=True, slots=True)
class PackSink:
    """What the drivers of such a stage stage for: the fragments of one version. Commits nothing."""

    target: LancePackTarget
    output: Output | None = None

    @property
    def title(self) -> str:
        return f"{self.target.title} at version {self.target.at_version}"

    def describe(self, key: EpochKey) -> Target:
        return self.target

    def create(self, arrow_schema: str) -> Target:
        return self.target

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        return as_staged(operation, key, targets, files)

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        return Final()
