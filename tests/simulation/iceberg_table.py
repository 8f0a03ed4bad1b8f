"""A simulated Iceberg table: metadata versions, swapped only if the requirements hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from pyiceberg.manifest import ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from checkpoint_commit.outcomes import Landed, Refused, RequestOutcome
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import IcebergTarget, LaunchRecord, Merge, PinnedIceberg, Target
from checkpoint_protocol.records.inputs import SourceFile
from tests.simulation.scheduler import Order
from tests.simulation.tables import FIRST_OF_STRANGERS, SimulatedTable

TABLE_UUID = "11111111-2222-3333-4444-555555555555"


@dataclass(frozen=True, slots=True)
class Snapshot:
    snapshot_id: int
    parent: int | None
    key: str | None
    files: tuple[str, ...]
    is_tombstone: bool = False
    added: tuple[str, ...] = ()
    manifest_list: str = ""
    deletes: tuple[str, ...] = ()

    # As pyiceberg's Snapshot, for what looks at a version to find which files no merge has read.

    @property
    def parent_snapshot_id(self) -> int | None:
        return self.parent

    @property
    def summary(self) -> None:
        return None

    @property
    def manifests(self) -> list[_Manifest]:
        return [_Manifest(path) for path in self.files]


@dataclass(frozen=True, slots=True)
class _Manifest:
    """A manifest with one data file, as pyiceberg has it; its entry, and the file of that."""

    manifest_path: str
    content: ManifestContent = ManifestContent.DATA

    def fetch_manifest_entry(self, _io: object, discard_deleted: bool = True) -> list[_Manifest]:
        return [self]

    @property
    def data_file(self) -> _Manifest:
        return self

    @property
    def file_path(self) -> str:
        return self.manifest_path


@dataclass(frozen=True, slots=True)
class Metadata:
    """One metadata version. `snapshots` are those that are still known. `audits` are branches by the uid of their write."""

    snapshots: Mapping[int, Snapshot]
    head: int | None
    properties: Mapping[str, str]
    schema_id: int
    layout: int
    audits: Mapping[str, int] = field(default_factory=dict)
    #: Whether the head is main's, of which writes that go to a branch make it; or the branch's, and this is main's.
    branch: Literal["none", "missing", "made"] = "none"
    main: int | None = None
    format_version: int = 2

    def snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        return self.snapshots.get(snapshot_id)

    def ancestry(self) -> list[Snapshot]:
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
    _all_snapshots: dict[int, Snapshot] = field(default_factory=dict)

    @property
    def metadata(self) -> Metadata:
        return self.versions[-1]

    def current_files(self) -> tuple[str, ...]:
        head = self.metadata.head
        return () if head is None else self._all_snapshots[head].files

    def current_deletes(self) -> tuple[str, ...]:
        head = self.metadata.head
        return () if head is None else self._all_snapshots[head].deletes

    def files_to_merge(self, launch: LaunchRecord, merge: Merge) -> tuple[SourceFile, ...]:
        (pinned,) = launch.source_tables
        assert isinstance(pinned, PinnedIceberg)
        before = self.files_at(merge.since) if merge.since is not None else ()
        found = self.files_at(pinned.snapshot_id) if pinned.snapshot_id is not None else ()
        assert before is not None
        assert found is not None

        def effect(_: Order) -> tuple[SourceFile, ...]:
            return tuple(
                SourceFile(path=path, etag="", size_bytes=16 << 10, unit="rows", end=len(self.files.rows[path]))
                for path in found
                if path not in before
            )

        return self.scheduler.at("find-files", f"of the table at {pinned.snapshot_id}", effect)

    def main_files(self) -> tuple[str, ...]:
        """The data files of main, where writes go to a branch."""
        main = self.metadata.main if self.metadata.branch == "made" else self.metadata.head
        return () if main is None else self._all_snapshots[main].files

    def files_at(self, commit_id: int) -> tuple[str, ...] | None:
        snapshot = self._all_snapshots.get(commit_id)
        return None if snapshot is None else snapshot.files

    def describe(self) -> IcebergTarget:
        return IcebergTarget(
            table="sim.rows",
            table_uuid=TABLE_UUID,
            data_location="s3://sim/table/data",
            table_schema_json=_schema_json(self.layout),
            partition_spec_json="{}",
            codec="zstd",
            snapshot_id=self.metadata.head,
        )

    def layout_of(self, target: Target) -> int:
        assert isinstance(target, IcebergTarget)
        return layout_of_json(target.table_schema_json)

    # --- strangers --------------------------------------------------------------------------------------------------------

    def append_as_stranger(self) -> None:
        self._move((*self.current_files(), self._new_stranger_file()), self.current_deletes())
        self.scheduler.say("(a stranger appends)")

    def delete_as_stranger(self) -> None:
        if (path := self._new_strangers_delete()) is not None:
            self._move(self.current_files(), (*self.current_deletes(), path))
            self.scheduler.say("(a stranger deletes a row)")

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
            named = {head, self.metadata.main, *self.metadata.audits.values()}
            kept = {number: snapshot for number, snapshot in self.metadata.snapshots.items() if number in named}
            self._put(replace(self.metadata, snapshots=kept))
            self.scheduler.say("(a stranger expires snapshots)")

    def append_to_main(self) -> None:
        """Beside the branch that writes go to, if it is there by now."""
        if self.metadata.branch == "made":
            number, path = 100 + len(self._all_snapshots), self.files.new_name("main")
            self.files.put(path, [(FIRST_OF_STRANGERS + number, number)], self.layout)
            made = Snapshot(number, self.metadata.main, None, (*self.main_files(), path))
            self._all_snapshots[number] = made
            self._put(replace(self.metadata, snapshots={**self.metadata.snapshots, number: made}, main=number))
            self.scheduler.say("(a stranger appends to main)")

    def strangers(self) -> tuple[Callable[[], None], ...]:
        *others, removes_history = SimulatedTable.strangers(self)
        beside = (self.append_to_main,) if self.metadata.branch != "none" else ()
        return (*others, *beside, removes_history)

    def retype_column(self) -> None:
        """Change the schema so that what was staged before no longer fits."""
        self.layout += 1
        self._put(replace(self.metadata, schema_id=self.metadata.schema_id + 1, layout=self.layout))
        self.scheduler.say("(a stranger retypes a column)")

    def _move(self, files: tuple[str, ...], deletes: tuple[str, ...] = ()) -> None:
        number = 100 + len(self._all_snapshots)
        branch = self.metadata.branch
        self._add(Snapshot(number, self.metadata.head, None, files, deletes=deletes), self.metadata.properties)
        if branch == "missing":  # that was main
            self.versions[-1] = replace(self.metadata, branch=branch, main=None)

    # --- requests ---------------------------------------------------------------------------------------------------------

    def request_swap(
        self, base: Metadata, key: EpochKey, paths: tuple[str, ...], snapshot_id: int, *, overwrites: bool = False
    ) -> RequestOutcome:
        """Ask that the table moves from exactly that version to one with the files and the key; `overwrites`: and no others."""

        def apply() -> RequestOutcome:
            now = self.metadata
            if not _is_unmoved(now, base, key):
                return Refused("the branch or the schema has moved")
            if snapshot_id in self._all_snapshots:
                return Refused("there is a snapshot of this id")
            recorded = max(key.epoch, int(now.properties.get(key.property_name, "0")))
            kept = () if overwrites else self.current_files()
            if overwrites:
                self.forget_strangers(self.current_files())
            self._add(
                Snapshot(snapshot_id, now.head, str(key), (*kept, *paths)),
                {**now.properties, key.property_name: str(recorded)},
                _without(now.audits, key),
            )
            return self._landed(snapshot_id, str(key), paths)

        return self._request("swap", f"{key} on {base.head}", apply)

    def request_upsert(self, base: Metadata, key: EpochKey, paths: tuple[str, ...], deletes: tuple[str, ...]) -> RequestOutcome:
        """Ask that the table moves from exactly that version to one with the files, and without the rows that these delete."""

        def apply() -> RequestOutcome:
            now = self.metadata
            if not _is_unmoved(now, base, key) or key.snapshot_id in self._all_snapshots:
                return Refused("the branch or the schema has moved, or there is a snapshot of this id")
            recorded = max(key.epoch, int(now.properties.get(key.property_name, "0")))
            self.replace_strangers(paths, self.rows())
            files = (*self.current_files(), *paths)
            made = Snapshot(key.snapshot_id, now.head, str(key), files, deletes=(*self.current_deletes(), *deletes))
            self._add(made, {**now.properties, key.property_name: str(recorded)})
            return self._landed(key.snapshot_id, str(key), paths)

        return self._request("swap", f"{key} on {base.head}", apply)

    def request_tombstone(self, base: Metadata, key: EpochKey) -> RequestOutcome:
        """Ask that the table moves from exactly that version to one with the same files and a tombstone."""

        def apply() -> RequestOutcome:
            now = self.metadata
            if not _is_unmoved(now, base, key) or key.snapshot_id in self._all_snapshots:
                return Refused("the branch or the schema has moved, or there is a snapshot of this id")
            self._add(
                Snapshot(
                    key.snapshot_id,
                    now.head,
                    str(key),
                    self.current_files(),
                    is_tombstone=True,
                    deletes=self.current_deletes(),
                ),
                {**now.properties, f"{key.property_name}.deleted": str(key.epoch)},
                _without(now.audits, key),
            )
            return Landed(key.snapshot_id)

        return self._request("block_commit", f"{key} on {base.head}", apply)

    def request_stage(self, base: Metadata, key: EpochKey, paths: tuple[str, ...], *, overwrites: bool) -> RequestOutcome:
        """Ask that the write's audit branch has the files and the key after exactly that head; the head stays."""

        def apply() -> RequestOutcome:
            now = self.metadata
            if not _is_unmoved(now, base, key):
                return Refused("the branch or the schema has moved")
            number = 1
            while (known := now.snapshots.get(key.snapshot_id - number)) is not None and known.parent != now.head:
                number += 1
            kept = () if overwrites else self.current_files()
            name = f"list-{len(self.versions)}"
            made = known or Snapshot(
                key.snapshot_id - number, now.head, str(key), (*kept, *paths), added=paths, manifest_list=name
            )
            self._all_snapshots[made.snapshot_id] = made
            known_now, audits = {**now.snapshots, made.snapshot_id: made}, {**now.audits, key.uid: made.snapshot_id}
            self._put(replace(now, snapshots=known_now, audits=audits))
            return Landed(made.snapshot_id)

        return self._request("stage", f"{key} on {base.head}", apply)

    def request_published(self, base: Metadata, key: EpochKey, *, overwrites: bool) -> RequestOutcome:
        """Ask that the table moves from exactly that version to what the audit branch has, which is dropped."""

        def apply() -> RequestOutcome:
            now = self.metadata
            if not _is_unmoved(now, base, key):
                return Refused("the branch or the schema has moved")
            staged = now.snapshots[now.audits[key.uid]]
            if overwrites:
                self.forget_strangers(self.current_files())
            recorded = max(key.epoch, int(now.properties.get(key.property_name, "0")))
            self._add(staged, {**now.properties, key.property_name: str(recorded)}, _without(now.audits, key))
            return self._landed(staged.snapshot_id, str(key), staged.added)

        return self._request("publish", f"{key} on {base.head}", apply)

    def _add(self, snapshot: Snapshot, properties: Mapping[str, str], audits: Mapping[str, int] | None = None) -> None:
        self._all_snapshots[snapshot.snapshot_id] = snapshot
        known = {**self.metadata.snapshots, snapshot.snapshot_id: snapshot}
        audits = self.metadata.audits if audits is None else audits
        now = self.metadata
        if now.branch == "missing":  # this makes it
            now = replace(now, branch="made", main=now.head)
        self._put(replace(now, snapshots=known, head=snapshot.snapshot_id, properties=properties, audits=audits))

    def _put(self, metadata: Metadata) -> None:
        self.versions.append(metadata)


@cache
def _schema_json(layout: int) -> str:
    names = {"id": LongType(), "copy": LongType()}
    fields = [NestedField(number, name, kind, required=False) for number, (name, kind) in enumerate(names.items(), 1)]
    return Schema(*fields, schema_id=layout).model_dump_json()


@cache
def layout_of_json(schema_json: str) -> int:
    return Schema.model_validate_json(schema_json).schema_id


def _is_unmoved(now: Metadata, base: Metadata, key: EpochKey) -> bool:
    is_branch_unmoved = now.audits.get(key.uid) == base.audits.get(key.uid)
    return (now.head, now.branch, now.schema_id) == (base.head, base.branch, base.schema_id) and is_branch_unmoved


def _without(audits: Mapping[str, int], key: EpochKey) -> Mapping[str, int]:
    return {uid: number for uid, number in audits.items() if uid != key.uid}
