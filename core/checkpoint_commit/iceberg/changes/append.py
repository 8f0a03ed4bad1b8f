"""Append to an Iceberg table: one snapshot with manifests of the staged files beside those of its parent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation as SnapshotOperation
from pyiceberg.table.snapshots import Summary
from pyiceberg.table.sorting import SortOrder

from checkpoint_commit.footers import Footers
from checkpoint_commit.iceberg.changes.change import TableVersion
from checkpoint_commit.iceberg.metadata.checks import FileChecks
from checkpoint_commit.iceberg.metadata.entries import SpecEntries, entries_under
from checkpoint_commit.iceberg.metadata.metadata_files import MetadataFile
from checkpoint_commit.outcomes import Rejected
from checkpoint_formats.iceberg.writing.metrics import modes_of, most_bound_bytes
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import STAGED_FOLDER_PREFIX, EpochKey, new_token
from checkpoint_protocol.records import Append, IcebergFile, IcebergTarget

_FILE_NAME: Final = re.compile(r"[0-9A-Za-z_.-]+")


@dataclass(slots=True)
class IcebergAppend:
    """Append of an epoch's staged files as one snapshot of one table; without files, a snapshot of what is there.

    An IcebergChange. `snapshot_id`: of that snapshot, which manifests name.
    """

    key: EpochKey
    snapshot_id: int
    operation: Append = field(default_factory=Append)
    by_spec: dict[int, SpecEntries] = field(default_factory=dict)
    sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    incompatibility: Rejected | None = None
    _manifests: tuple[int, list[ManifestFile], MetadataFile | None] | None = None

    def __len__(self) -> int:
        return sum(len(names) for names in self.sizes.values()) + (self.incompatibility is not None)

    def is_made_for(self, metadata: TableMetadata) -> bool:
        """Whether the entries are what they would be if they were made for this version of the table."""
        return all(entries.is_made_for(metadata) for entries in self.by_spec.values())

    def names(self, path: str) -> bool:
        """Whether a file is one of these."""
        folder, _, name = path.rpartition("/")
        return name in self.sizes.get(folder, ())

    def summary(self) -> Summary:
        """Return what the snapshot's summary says of its operation, and of the files that it adds."""
        return Summary(operation=SnapshotOperation.APPEND, **self.counts())

    def find_conflict(self, version: TableVersion) -> None:
        """Nothing that others do to the rows of a table is in the way of more rows."""

    def counts(self) -> dict[str, str]:
        """Return what a summary says of the staged files."""
        if not self.by_spec:
            return {}
        partitions = {path for entries in self.by_spec.values() for path in entries.partition_paths()}
        return {
            "added-files-size": str(sum(entries.size_bytes for entries in self.by_spec.values())),
            "added-data-files": str(sum(entries.files for entries in self.by_spec.values())),
            "added-records": str(sum(entries.rows for entries in self.by_spec.values())),
            **({"changed-partition-count": str(len(partitions))} if partitions else {}),
        }

    def manifests(self, version: TableVersion) -> tuple[list[ManifestFile], list[MetadataFile]]:
        """Return the manifests of the staged files, and all of the head's."""
        made, waiting = self.own_manifests(version)
        return [*made, *version.manifests], waiting

    def own_manifests(self, version: TableVersion) -> tuple[list[ManifestFile], list[MetadataFile]]:
        """Return the manifests of all the staged files, at least one for each spec, rolled near the table's target size.

        One object is to be put at the most, which can go side by side with the list: the others are put already. They are
        written when they are first asked for, under names that nobody else uses; a later request, after the table has moved,
        takes the same ones unless its schema has changed.
        """
        metadata = version.metadata
        if self._manifests is None or self._manifests[0] != metadata.current_schema_id:
            wanted = metadata.properties.get(TableProperties.MANIFEST_TARGET_SIZE_BYTES, "")
            target_bytes = int(wanted) if wanted.isdecimal() else TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT
            made: list[ManifestFile] = []
            file: MetadataFile | None = None
            stem = f"{version.metadata_folder}/{self.key.uid}-{self.key.epoch}-{new_token()}"
            for _, entries in sorted(self.by_spec.items()):
                for blocks in entries.rolled(target_bytes):
                    if file is not None:
                        file.put()
                    file = MetadataFile(f"{stem}-m{len(made)}.avro", version.storage)
                    made.append(entries.write(file, metadata, self.snapshot_id, blocks))
            self._manifests = metadata.current_schema_id, made, file
        _, made, file = self._manifests
        return list(made), [file] if file is not None else []


@dataclass(frozen=True, slots=True)
class StagedFor:
    """What the targets of an epoch's attempts say: each data location with the spec that was staged under, the schemas, and how
    long bounds may be, by schema and field id.
    """

    specs: frozenset[tuple[str, int]]
    schemas: Mapping[int, Schema]
    most_bound_bytes: Mapping[int, Mapping[int, int]] = field(default_factory=dict)


def staged_for(targets: Iterable[IcebergTarget]) -> StagedFor:
    """Return what files may have been staged for."""
    targets = tuple(targets)
    specs = {(each.data_location, PartitionSpec.model_validate_json(each.partition_spec_json).spec_id) for each in targets}
    schemas = [Schema.model_validate_json(each.table_schema_json) for each in targets]
    longest: dict[int, dict[int, int]] = {}
    for target, schema in zip(targets, schemas, strict=True):
        # Attempts may have staged in other modes.
        known = longest.setdefault(schema.schema_id, {})
        for field_id, most in _most_bound_bytes(target, schema).items():
            known[field_id] = max(most, known.get(field_id, 0))
    return StagedFor(frozenset(specs), {schema.schema_id: schema for schema in schemas}, longest)


def _most_bound_bytes(target: IcebergTarget, schema: Schema) -> Mapping[int, int]:
    order = SortOrder.model_validate_json(target.sort_order_json) if target.sort_order_json is not None else None
    return most_bound_bytes(schema, modes_of(schema, order, dict(target.write_properties)))


def pack(
    metadata: TableMetadata,
    key: EpochKey,
    snapshot_id: int,
    wanted: StagedFor | None,
    files: Iterable[IcebergFile],
    footers: Footers | None = None,
) -> IcebergAppend:
    """Take all the files in, past the footers. `wanted`: what they were staged for; None: that was checked before.

    Corrupt if the partition values of a file are not of its spec's types.
    """
    packed = IcebergAppend(key, snapshot_id)
    specs = None if wanted is None else wanted.specs
    checks = None if wanted is None else FileChecks(wanted.schemas, wanted.most_bound_bytes)
    own = OwnFiles(key, (location for location, _ in specs or ()))
    known_specs = metadata.specs()
    known_orders = {order.order_id for order in metadata.sort_orders}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        location = own.location_of(folder, name)
        if location is None and specs is not None:
            packed.incompatibility = packed.incompatibility or Rejected(
                reasons.STAGED_RESULT_REFUSED,
                f"a seal names the file {file.path}, which is not one that epoch {key.epoch} of the write has staged",
            )
            continue
        if file.spec_id not in known_specs or (specs is not None and (location, file.spec_id) not in specs):
            packed.incompatibility = packed.incompatibility or Rejected(
                reasons.STAGED_RESULT_REFUSED, f"{file.path} was staged under the unknown spec {file.spec_id}"
            )
            continue
        if file.sort_order_id is not None and file.sort_order_id not in known_orders:
            packed.incompatibility = packed.incompatibility or Rejected(
                reasons.STAGED_RESULT_REFUSED, f"{file.path} was staged in the unknown sort order {file.sort_order_id}"
            )
            continue
        if checks is not None and (problem := checks.problem_of(file)) is not None:
            packed.incompatibility = packed.incompatibility or Rejected(
                reasons.STAGED_RESULT_REFUSED, f"what a seal says of the file {file.path} cannot be so: {problem}"
            )
            continue
        if name in packed.sizes.get(folder, ()):
            packed.incompatibility = packed.incompatibility or _named_twice(file.path)
            continue
        if file.spec_id not in packed.by_spec:
            packed.by_spec[file.spec_id] = entries_under(metadata, file.spec_id, snapshot_id)
        packed.by_spec[file.spec_id].add(file)
        packed.sizes.setdefault(folder, {})[name] = file.size_bytes
        if footers is not None:
            footers.add(file.path, file.rows)
    if footers is not None:
        footers.finish()
    for entries in packed.by_spec.values():
        entries.finish()
    return packed


def _named_twice(path: str) -> Rejected:
    return Rejected(reasons.STAGED_RESULT_REFUSED, f"seals name the file {path} twice, so that its rows would be there twice")


class OwnFiles:
    """Which files are surely an epoch's own: stagers name them `<data location>/cw-<uid>/<epoch>-...`.

    Nothing in a path is resolved or unquoted.
    """

    def __init__(self, key: EpochKey, locations: Iterable[str]) -> None:
        self._folders = {f"{location}/{STAGED_FOLDER_PREFIX}{key.uid}": location for location in locations}
        self._start = f"{key.epoch}-"

    def location_of(self, folder: str, name: str) -> str | None:
        """Return the data location below which this epoch has staged a file; None if the file is not surely its own."""
        return self._folders.get(folder) if name.startswith(self._start) and _FILE_NAME.fullmatch(name) else None


def own_files(key: EpochKey, locations: Iterable[str], paths: Iterable[str]) -> dict[str, list[str]]:
    """Return which of the files are surely the epoch's own: of each folder, their names."""
    own = OwnFiles(key, locations)
    by_folder: dict[str, list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if own.location_of(folder, name) is not None:
            by_folder.setdefault(folder, []).append(name)
    return by_folder
