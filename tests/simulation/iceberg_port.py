"""One committer's view of the simulated Iceberg table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from checkpoint_commit.iceberg.changes.change import TableVersion
from checkpoint_commit.iceberg.changes.merges import SeenMerges, see_merges
from checkpoint_commit.iceberg.changes.upsert import IcebergUpsert
from checkpoint_commit.iceberg.commit import IcebergState, OnAuditBranch
from checkpoint_commit.outcomes import Rejected, RequestOutcome
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import (
    IcebergDeletes,
    IcebergFile,
    IcebergTarget,
    OverwriteAll,
    PinnedIceberg,
    StagedFile,
    Target,
    Upsert,
)
from tests.simulation.iceberg_table import TABLE_UUID, Metadata, SimulatedIceberg, Snapshot, layout_of_json
from tests.simulation.scheduler import Order
from tests.simulation.tables import READ_FAULTS, StagedRows


@dataclass(slots=True)
class IcebergPort:
    """One committer's view. Implements IcebergTable. A look may be of a version that is no longer the latest."""

    table: SimulatedIceberg
    overwrites: bool = False
    loaded: tuple[IcebergState, Metadata] | None = None

    def load(self, key: EpochKey) -> IcebergState | None:
        def effect(order: Order) -> Metadata:
            if order.fault == "down":
                raise Retryable(reasons.CATALOG_UNAVAILABLE, "no answer")
            return self.table.versions[max(0, len(self.table.versions) - 2) if order.fault == "stale" else -1]

        metadata = self.table.scheduler.at("look", str(key), effect, ("stale", *READ_FAULTS))
        ancestry = metadata.ancestry()
        committed = _committed(metadata, ancestry, key)
        is_tombstone = committed is None and _is_blocked(metadata, ancestry, key)
        state = IcebergState(
            table_uuid=TABLE_UUID,
            head=metadata.head,
            committed=key.snapshot_id if is_tombstone else committed,
            ancestry=tuple(snapshot.snapshot_id for snapshot in ancestry),
            ancestry_is_whole=not ancestry or ancestry[-1].parent is None,
            is_tombstone=is_tombstone,
            missing_branch="staging" if metadata.branch == "missing" else None,
            audit=_on_audit_branch(metadata, key),
        )
        self.loaded = (state, metadata)
        return state

    def find_change(self, state: IcebergState, targets: Sequence[IcebergTarget]) -> Rejected | None:
        metadata = self._metadata_of(state)
        if any(layout_of_json(target.table_schema_json) != metadata.layout for target in targets):
            return Rejected(reasons.SCHEMA_CHANGED, "a column was retyped")
        return None

    def find_incompatibility(self, state: IcebergState, targets: Sequence[IcebergTarget], change: Any) -> Rejected | None:
        metadata = self._metadata_of(state)

        def effect(order: Order) -> Rejected | None:
            if order.fault == "down":
                raise Retryable(reasons.STORE_UNAVAILABLE, "no answer")
            found = change.merged.files if isinstance(change, IcebergUpsert) and change.merged is not None else ()
            for file in (*staged_files(change), *found):
                if not self.table.files.has(file.path, file.size_bytes):
                    return Rejected(reasons.STAGED_FILE_MISSING, file.path)
            if isinstance(change, IcebergUpsert):
                change.find_conflict(_version_of(metadata))
            return None

        return self.table.scheduler.at("incompatibility", "", effect, READ_FAULTS)

    def references_any(self, state: IcebergState, change: Any) -> bool:
        metadata = self._metadata_of(state)
        head = None if metadata.head is None else metadata.snapshots[metadata.head]
        return head is not None and any(file.path in head.files for file in staged_files(change))

    def describe(self) -> IcebergTarget:
        def effect(order: Order) -> IcebergTarget:
            if order.fault == "down":
                raise Retryable(reasons.CATALOG_UNAVAILABLE, "no answer")
            return self.table.describe()

        return self.table.scheduler.at("describe", "", effect, READ_FAULTS)

    def pin(self, snapshot_id: int | None) -> PinnedIceberg | None:
        def effect(order: Order) -> PinnedIceberg | None:
            if order.fault == "down":
                raise Retryable(reasons.CATALOG_UNAVAILABLE, "no answer")
            if snapshot_id is not None and snapshot_id not in self.table.metadata.snapshots:
                return None
            return PinnedIceberg(
                table="sim.rows",
                table_uuid=TABLE_UUID,
                location="s3://sim/table",
                metadata_location="s3://sim/table/metadata",
                snapshot_id=snapshot_id,
                format_version=2,
                table_schema_json="",
                partition_specs_json=(),
                name_mapping_json=None,
            )

        return self.table.scheduler.at("pin", str(snapshot_id), effect, READ_FAULTS)

    def see_merges(self, state: IcebergState, ledger: Ledger) -> SeenMerges:
        return see_merges(_version_of(self._metadata_of(state)), ledger)

    def rewrites(self, state: IcebergState, operation: Upsert) -> bool:
        return False

    def swap(self, state: IcebergState, key: EpochKey, change: Any) -> RequestOutcome:
        if isinstance(change, IcebergUpsert):
            assert change.merged is not None
            staged = tuple(file.path for file in staged_files(change))
            deletes = tuple(deletes.path for deletes in change.merged.files)
            return self.table.request_upsert(self._metadata_of(state), key, staged, deletes)
        paths, overwrites = tuple(file.path for file in change.files), isinstance(change.operation, OverwriteAll)
        return self.table.request_swap(self._metadata_of(state), key, paths, key.snapshot_id, overwrites=overwrites)

    def stage(self, state: IcebergState, key: EpochKey, change: Any) -> RequestOutcome:
        paths, overwrites = tuple(file.path for file in change.files), isinstance(change.operation, OverwriteAll)
        return self.table.request_stage(self._metadata_of(state), key, paths, overwrites=overwrites)

    def publish(self, state: IcebergState, key: EpochKey, staged: OnAuditBranch) -> RequestOutcome:
        return self.table.request_published(self._metadata_of(state), key, overwrites=self.overwrites)

    def acknowledge(self, state: IcebergState, key: EpochKey, staged: OnAuditBranch) -> RequestOutcome:
        raise AssertionError("nobody picks snapshots here")

    def drop_audit_branch(self, state: IcebergState, staged: OnAuditBranch) -> RequestOutcome:
        raise AssertionError("nobody moves the table to an audit branch here")

    def block_commit(self, state: IcebergState, key: EpochKey) -> RequestOutcome:
        return self.table.request_tombstone(self._metadata_of(state), key)

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        """Remove what it is given, if there is a target: whose files they are is the real port's affair."""
        paths = [file.path for file in files if isinstance(file, IcebergFile | IcebergDeletes)] if targets else []

        def effect(_: Order) -> int:
            for path in paths:
                self.table.files.remove(path)
            return len(paths)

        return self.table.scheduler.at("discard", f"{key}: {', '.join(paths)}", effect)

    def _metadata_of(self, state: IcebergState) -> Metadata:
        if self.loaded is None or self.loaded[0] is not state:
            raise Corrupt("StaleState", "not the state that was loaded last")
        return self.loaded[1]


def upsert_of(operation: Upsert, files: tuple[StagedFile, ...]) -> IcebergUpsert:
    staged: Any = StagedRows(files)
    return IcebergUpsert(operation, staged, {}, ())


def staged_files(change: Any) -> tuple[Any, ...]:
    """Return the staged files of a change, of an upsert as well."""
    staged: Any = change.staged if isinstance(change, IcebergUpsert) else change
    files: tuple[Any, ...] = staged.files
    return files


def _version_of(metadata: Metadata) -> TableVersion:
    """Return a version as those know it who look which files no merge has read."""
    like: Any = metadata
    head: Any = metadata.snapshots[metadata.head] if metadata.head is not None else None
    nothing: Any = None
    return _SimulatedVersion("sim.rows", like, head, nothing, nothing)


class _SimulatedVersion(TableVersion):
    @property
    def manifests(self) -> Sequence[Any]:
        head: Any = self.head
        return head.manifests if head is not None else ()


def _on_audit_branch(metadata: Metadata, key: EpochKey) -> OnAuditBranch | None:
    number = metadata.audits.get(key.uid)
    if number is None:
        return None
    staged = metadata.snapshots[number]
    return OnAuditBranch(
        f"cw-audit-{key.uid}", number, staged.parent, staged.manifest_list, is_of_write=True, is_of_epoch=staged.key == str(key)
    )


def _committed(metadata: Metadata, ancestry: Sequence[Snapshot], key: EpochKey) -> int | None:
    for snapshot in ancestry:
        if snapshot.key == str(key) and not snapshot.is_tombstone:
            return snapshot.snapshot_id
    return key.snapshot_id if int(metadata.properties.get(key.property_name, "0")) >= key.epoch else None


def _is_blocked(metadata: Metadata, ancestry: Sequence[Snapshot], key: EpochKey) -> bool:
    if any(snapshot.key == str(key) and snapshot.is_tombstone for snapshot in ancestry):
        return True
    return int(metadata.properties.get(f"{key.property_name}.deleted", "0")) >= key.epoch
