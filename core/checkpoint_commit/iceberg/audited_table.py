"""The table of a sink whose rows are audited: what is asked of it beside what every commit asks."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from checkpoint_commit.catalogs.source_tables import describe
from checkpoint_commit.changes import Change
from checkpoint_commit.iceberg import history as iceberg_history
from checkpoint_commit.iceberg import refs as iceberg_refs
from checkpoint_commit.iceberg.commit import IcebergState, OnAuditBranch
from checkpoint_commit.iceberg.metadata import snapshot as iceberg_snapshot
from checkpoint_commit.iceberg.metadata.snapshot import Said
from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_commit.outcomes import RequestOutcome
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.sources.source import IcebergSource
from checkpoint_protocol.records import PinnedIceberg


class PyicebergAuditedTable(PyicebergTable):
    """One table of one catalog. Implements AuditedTable."""

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
