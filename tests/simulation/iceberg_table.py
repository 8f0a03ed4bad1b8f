"""A simulated Iceberg table: metadata versions, swapped only if the requirements hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from checkpoint_operator.commit.iceberg import IcebergState
from checkpoint_operator.commit.outcomes import Landed, Refused, Rejected, RequestOutcome
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import IcebergFile, IcebergTarget, StagedFile, Target
from tests.simulation.scheduler import Order
from tests.simulation.tables import READ_FAULTS, SimulatedTable

_UUID = "11111111-2222-3333-4444-555555555555"


@dataclass(frozen=True, slots=True)
class _Snapshot:
    snapshot_id: int
    parent: int | None
    key: str | None
    files: tuple[str, ...]
    is_tombstone: bool = False


@dataclass(frozen=True, slots=True)
class Metadata:
    """One metadata version. `snapshots` are those that are still known."""

    snapshots: Mapping[int, _Snapshot]
    head: int | None
    properties: Mapping[str, str]
    schema_id: int
    layout: int

    def ancestry(self) -> list[_Snapshot]:
        found = []
        current = self.head
        while current is not None and current in self.snapshots:
            found.append(self.snapshots[current])
            current = self.snapshots[current].parent
        return found


@dataclass(slots=True)
class SimulatedIceberg(SimulatedTable):
    """The table itself. Runners reach it through ports of their own."""

    versions: list[Metadata] = field(default_factory=lambda: [Metadata({}, None, {}, 0, 1)])
    _all_snapshots: dict[int, _Snapshot] = field(default_factory=dict)

    @property
    def metadata(self) -> Metadata:
        return self.versions[-1]

    def current_files(self) -> tuple[str, ...]:
        head = self.metadata.head
        return () if head is None else self._all_snapshots[head].files

    def files_at(self, commit_id: int) -> tuple[str, ...] | None:
        snapshot = self._all_snapshots.get(commit_id)
        return None if snapshot is None else snapshot.files

    def describe(self) -> IcebergTarget:
        return IcebergTarget(
            table="sim.rows",
            table_uuid=_UUID,
            data_location="s3://sim/table/data",
            table_schema_json=str(self.layout),
            partition_spec_json="{}",
            codec="zstd",
        )

    def layout_of(self, target: Target) -> int:
        assert isinstance(target, IcebergTarget)
        return int(target.table_schema_json)

    # --- strangers --------------------------------------------------------------------------------------------------------

    def append_as_stranger(self) -> None:
        self._move((*self.current_files(), self._new_stranger_file()))
        self.scheduler.say("(a stranger appends)")

    def add_column(self) -> None:
        self._put(replace(self.metadata, schema_id=self.metadata.schema_id + 1))
        self.scheduler.say("(a stranger adds a column)")

    def compact(self) -> None:
        path = self.files.new_name("compacted")
        self.files.put(path, self.rows().elements(), self.layout)
        self._move((path,))
        self.scheduler.say("(a stranger compacts)")

    def remove_history(self) -> None:
        head = self.metadata.head
        if head is not None and len(self.metadata.snapshots) > 1:
            self.evidence_was_removed = True
            self._put(replace(self.metadata, snapshots={head: self.metadata.snapshots[head]}))
            self.scheduler.say("(a stranger expires snapshots)")

    def retype_column(self) -> None:
        """Change the schema so that what was staged before no longer fits."""
        self.layout += 1
        self._put(replace(self.metadata, schema_id=self.metadata.schema_id + 1, layout=self.layout))
        self.scheduler.say("(a stranger retypes a column)")

    def _move(self, files: tuple[str, ...]) -> None:
        self._add(_Snapshot(100 + len(self._all_snapshots), self.metadata.head, None, files), self.metadata.properties)

    # --- requests ---------------------------------------------------------------------------------------------------------

    def request_swap(self, base: Metadata, key: EpochKey, paths: tuple[str, ...], snapshot_id: int) -> RequestOutcome:
        """Ask that the table moves from exactly that version to one with the files and the key."""

        def apply() -> RequestOutcome:
            now = self.metadata
            if (now.head, now.schema_id) != (base.head, base.schema_id):
                return Refused("the branch or the schema has moved")
            if snapshot_id in self._all_snapshots:
                return Refused("there is a snapshot of this id")
            recorded = max(key.epoch, int(now.properties.get(key.property_name, "0")))
            self._add(
                _Snapshot(snapshot_id, now.head, str(key), (*self.current_files(), *paths)),
                {**now.properties, key.property_name: str(recorded)},
            )
            return self._landed(snapshot_id, str(key), paths)

        return self._request("swap", f"{key} on {base.head}", apply)

    def request_tombstone(self, base: Metadata, key: EpochKey) -> RequestOutcome:
        """Ask that the table moves from exactly that version to one with the same files and a tombstone."""

        def apply() -> RequestOutcome:
            now = self.metadata
            if (now.head, now.schema_id) != (base.head, base.schema_id) or key.snapshot_id in self._all_snapshots:
                return Refused("the branch or the schema has moved, or there is a snapshot of this id")
            self._add(
                _Snapshot(key.snapshot_id, now.head, str(key), self.current_files(), is_tombstone=True),
                {**now.properties, f"{key.property_name}.deleted": str(key.epoch)},
            )
            return Landed(key.snapshot_id)

        return self._request("block_commit", f"{key} on {base.head}", apply)

    def _add(self, snapshot: _Snapshot, properties: Mapping[str, str]) -> None:
        self._all_snapshots[snapshot.snapshot_id] = snapshot
        known = {**self.metadata.snapshots, snapshot.snapshot_id: snapshot}
        self._put(replace(self.metadata, snapshots=known, head=snapshot.snapshot_id, properties=properties))

    def _put(self, metadata: Metadata) -> None:
        self.versions.append(metadata)


@dataclass(slots=True)
class IcebergPort:
    """One committer's view. Implements IcebergTable. A look may be of a version that is no longer the latest."""

    table: SimulatedIceberg
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
            table_uuid=_UUID,
            head=metadata.head,
            committed=key.snapshot_id if is_tombstone else committed,
            ancestry=tuple(snapshot.snapshot_id for snapshot in ancestry),
            ancestry_is_whole=not ancestry or ancestry[-1].parent is None,
            is_tombstone=is_tombstone,
        )
        self.loaded = (state, metadata)
        return state

    def find_incompatibility(self, state: IcebergState, targets: Sequence[IcebergTarget], change: Any) -> Rejected | None:
        metadata = self._metadata_of(state)

        def effect(order: Order) -> Rejected | None:
            if order.fault == "down":
                raise Retryable(reasons.STORE_UNAVAILABLE, "no answer")
            if any(target.table_schema_json != str(metadata.layout) for target in targets):
                return Rejected(reasons.SCHEMA_CHANGED, "a column was retyped")
            for file in change.files:
                if not self.table.files.has(file.path, file.size_bytes):
                    return Rejected(reasons.STAGED_FILE_MISSING, file.path)
            return None

        return self.table.scheduler.at("incompatibility", "", effect, READ_FAULTS)

    def references_any(self, state: IcebergState, change: Any) -> bool:
        metadata = self._metadata_of(state)
        head = None if metadata.head is None else metadata.snapshots[metadata.head]
        return head is not None and any(file.path in head.files for file in change.files)

    def swap(self, state: IcebergState, key: EpochKey, change: Any) -> RequestOutcome:
        return self.table.request_swap(self._metadata_of(state), key, tuple(file.path for file in change.files), key.snapshot_id)

    def block_commit(self, state: IcebergState, key: EpochKey) -> RequestOutcome:
        return self.table.request_tombstone(self._metadata_of(state), key)

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        """Remove what it is given, if there is a target: whose files they are is the real port's affair."""
        paths = [file.path for file in files if isinstance(file, IcebergFile)] if targets else []

        def effect(_: Order) -> int:
            for path in paths:
                self.table.files.remove(path)
            return len(paths)

        return self.table.scheduler.at("discard", f"{key}: {', '.join(paths)}", effect)

    def _metadata_of(self, state: IcebergState) -> Metadata:
        if self.loaded is None or self.loaded[0] is not state:
            raise Corrupt("StaleState", "not the state that was loaded last")
        return self.loaded[1]


def _committed(metadata: Metadata, ancestry: Sequence[_Snapshot], key: EpochKey) -> int | None:
    for snapshot in ancestry:
        if snapshot.key == str(key) and not snapshot.is_tombstone:
            return snapshot.snapshot_id
    return key.snapshot_id if int(metadata.properties.get(key.property_name, "0")) >= key.epoch else None


def _is_blocked(metadata: Metadata, ancestry: Sequence[_Snapshot], key: EpochKey) -> bool:
    if any(snapshot.key == str(key) and snapshot.is_tombstone for snapshot in ancestry):
        return True
    return int(metadata.properties.get(f"{key.property_name}.deleted", "0")) >= key.epoch
