"""The audit of an epoch's rows on the branch of their write: a stage whose drivers call `sink.audit`, and its table.

The stage's name says which snapshot is audited, what it consists of and by which function. Its attempts have the digest of the
code: where one ends as the function refuses the rows, another one follows once the code is edited, as with steps that fail.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from checkpoint_commit.catalogs.source_tables import describe
from checkpoint_commit.changes import Change
from checkpoint_commit.iceberg import audit as iceberg_audit
from checkpoint_commit.iceberg import commit as iceberg
from checkpoint_commit.iceberg import history as iceberg_history
from checkpoint_commit.iceberg import refs as iceberg_refs
from checkpoint_commit.iceberg.audit import Staged
from checkpoint_commit.iceberg.commit import IcebergState, OnAuditBranch
from checkpoint_commit.iceberg.metadata import snapshot as iceberg_snapshot
from checkpoint_commit.iceberg.metadata.snapshot import Said
from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_commit.none.sink import NothingStaged
from checkpoint_commit.outcomes import BlockOutcome, CommitOutcome, RequestOutcome
from checkpoint_commit.ports import NeedsStage, Stage
from checkpoint_commit.results import Results
from checkpoint_commit.sinks.table_sink import TableSink
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sections import Quarantine
from checkpoint_protocol.manifest.sources.source import IcebergSource, Source
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import PinnedIceberg


class PyicebergAuditedTable(PyicebergTable):
    """One table of one catalog. Implements AuditedTable."""

    _writes_ahead = False

    def stage(self, state: IcebergState, key: EpochKey, change: Change) -> RequestOutcome:
        metadata = self._table_of(state).metadata
        packed = self._whole_change_for(state, change)
        if packed.snapshot_id != self._snapshot_id(metadata, key):
            raise Retryable(
                reasons.COMMIT_CONTENDED,
                f"the rows of {key} were put elsewhere for their audit just now; the table is loaded again",
            )
        return self._request(state, packed, Said({}, self._summary(key)), iceberg_refs.audit_branch_of(key))

    def publish(self, state: IcebergState, key: EpochKey, staged: OnAuditBranch) -> RequestOutcome:
        table = self._table_of(state)
        snapshot = table.metadata.snapshot_by_id(staged.snapshot_id)
        assert snapshot is not None
        said = Said(iceberg_history.commit_properties(table.metadata, key), {}, self._refs.tag_of(key))
        return self._ask(
            lambda catalog: iceberg_snapshot.request_snapshot(
                catalog,
                table,
                self._refs.branch,
                snapshot,
                said,
                unmoved=self._target_refs(state),
                dropped=staged.name,
                is_known=True,
            ),
            staged.snapshot_id,
        )

    def acknowledge(self, state: IcebergState, key: EpochKey, staged: OnAuditBranch) -> RequestOutcome:
        assert staged.picked_as is not None
        table = self._table_of(state)
        properties = iceberg_history.commit_properties(table.metadata, key)
        return self._ask(
            lambda catalog: iceberg_snapshot.request_drop(catalog, table, staged.name, self._target_refs(state), properties),
            staged.picked_as,
        )

    def drop_audit_branch(self, state: IcebergState, staged: OnAuditBranch) -> RequestOutcome:
        table = self._table_of(state)
        return self._ask(lambda catalog: iceberg_snapshot.request_drop(catalog, table, staged.name), staged.snapshot_id)

    def pin_staged(self, snapshot_id: int, source: IcebergSource) -> PinnedIceberg:
        """Return what drivers need to know of the table to read that snapshot; they have no catalog."""
        table = self._load_table()
        if table is None or table.metadata.snapshot_by_id(snapshot_id) is None:
            raise Retryable(
                reasons.COMMIT_CONTENDED,
                f"the rows that are to be audited are not in the table {self.title} any more (snapshot {snapshot_id}): their "
                "branch was dropped, and the snapshot has expired; they are put there again",
            )
        return describe(source, table)

    def _snapshot_id(self, metadata: TableMetadata, key: EpochKey) -> int:
        """Of an epoch that waits for its audit already, what may follow is its commit."""
        found = iceberg_history.on_audit_branch(metadata, key)
        if found is not None and found.is_of_epoch:
            return key.snapshot_id
        return iceberg_refs.staged_snapshot_id(metadata, key, self._refs.head(metadata))


@dataclass(frozen=True, slots=True)
class AuditedSink(TableSink[PyicebergAuditedTable]):
    """A Sink of one table, for writes whose rows are audited."""

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome | NeedsStage:
        """Put the results where they are audited; commit them once a stage of the epoch says that they have passed."""

        def has_passed(staged: Staged) -> bool:
            key = ledger.key.of_stage(self._name(staged))
            return dataclasses.replace(ledger, key=key).commits.read_commit() is not None

        outcome = iceberg_audit.commit(self.table, ledger, results, has_passed)
        return NeedsStage(self._stage(outcome)) if isinstance(outcome, Staged) else outcome

    def block_commit(self, ledger: Ledger) -> BlockOutcome:
        return iceberg.block_commit(self.table, ledger)

    def _name(self, staged: Staged) -> str:
        digest = hashlib.sha256(f"{staged.manifest_list}\0{self.spec.audit}".encode()).hexdigest()
        return f"audit-{staged.snapshot_id}-{digest[:8]}"

    def _stage(self, staged: Staged) -> Stage:
        named = self.spec.iceberg
        assert named is not None
        source = IcebergSource(catalog=named.catalog, table=named.table, snapshot_id=staged.snapshot_id)

        def derive(spec: Spec) -> Spec:
            return spec.model_copy(
                update={
                    "source": Source(iceberg=source),
                    "steps": (),
                    "on_row_error": "Fail",
                    "quarantine": Quarantine(),
                    "on_replaced": "Fail",
                }
            )

        return Stage(
            self._name(staged),
            derive,
            NothingStaged(),
            pin_source=lambda: (self.table.pin_staged(staged.snapshot_id, source),),
            runs_code=True,
            audit=self.spec.audit,
        )
