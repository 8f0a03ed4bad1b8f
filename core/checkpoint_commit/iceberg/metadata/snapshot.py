"""A snapshot of an Iceberg table, and the request that makes it the head of its branch.

Where main has no snapshot and the write goes to a branch, there are two: main's first one, which is empty, and ours after it.
Without that, the branch and what others put into main later would have no history in common.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation as SnapshotOperation
from pyiceberg.table.snapshots import Snapshot, Summary, update_snapshot_summaries
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from checkpoint_commit.iceberg import refs as iceberg_refs
from checkpoint_commit.iceberg.changes.change import IcebergChange, TableVersion
from checkpoint_commit.iceberg.metadata import metadata_files as iceberg_manifest_list
from checkpoint_commit.iceberg.metadata.metadata_files import MetadataFile, put_all
from checkpoint_protocol.identity import new_token


@dataclass(frozen=True, slots=True)
class Said:
    """What a commit says beside its files: in the properties of the table, in the snapshot's summary, and by a tag."""

    properties: Mapping[str, str]
    summary: Mapping[str, str]
    tag: str | None = None


def begin_main(version: TableVersion) -> tuple[TableVersion, tuple[TableUpdate, ...]]:
    """Write an empty snapshot for a main that has none; return the table as it is with it, and how it becomes so."""
    metadata = version.metadata
    snapshot = _written(version, secrets.randbits(62) + 1, [], [], Summary(operation=SnapshotOperation.APPEND))
    updates = AddSnapshotUpdate(snapshot=snapshot), iceberg_refs.moved(metadata, MAIN_BRANCH, snapshot.snapshot_id)
    begun = update_table_metadata(metadata, updates)
    return dataclasses.replace(version, metadata=begun, head=snapshot), updates


def write_snapshot(version: TableVersion, change: IcebergChange, summary: Mapping[str, str]) -> Snapshot:
    """Write the change's manifests and the manifest list, under fresh names; return the snapshot that names them.

    `summary` is added to what the change says. OSError or ValueError where the store does not take a file.
    """
    manifests, waiting = change.manifests(version)
    counted = change.summary()
    counted.additional_properties.update({**summary, **counted.additional_properties})
    return _written(version, change.snapshot_id, manifests, waiting, counted)


def _written(
    version: TableVersion,
    snapshot_id: int,
    manifests: Sequence[ManifestFile],
    waiting: Sequence[MetadataFile],
    counted: Summary,
) -> Snapshot:
    metadata, parent = version.metadata, version.head
    head = parent.snapshot_id if parent is not None else None
    list_file = MetadataFile(f"{version.metadata_folder}/snap-{snapshot_id}-{new_token()}.avro", version.storage)
    first_row_id, added_rows = iceberg_manifest_list.write(metadata, list_file, snapshot_id, head, list(manifests))
    put_all([*waiting, list_file])
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head,
        manifest_list=list_file.location,
        sequence_number=metadata.next_sequence_number(),
        summary=update_snapshot_summaries(counted, _totals_of(parent)),
        schema_id=metadata.current_schema_id,
        first_row_id=first_row_id,
        added_rows=added_rows,
    )


def request_snapshot(
    catalog: Catalog,
    table: Table,
    branch: str,
    snapshot: Snapshot,
    said: Said,
    before: Sequence[TableUpdate] = (),
    unmoved: Iterable[str] = (),
    dropped: str | None = None,
    *,
    is_known: bool = False,
) -> None:
    """Ask the catalog once that the snapshot becomes the head, if nothing that it was made for has changed. Never retries.

    `before`: what begins main. `unmoved`: other branches that have to be where they were loaded. `dropped`: a branch that is
    dropped with it. `is_known`: the table has the snapshot already. Raises what the catalog raises; only CommitFailedException
    says that nothing was done.
    """
    updates: list[TableUpdate] = [*before]
    if not is_known:
        updates.append(AddSnapshotUpdate(snapshot=snapshot))
    updates.append(iceberg_refs.moved(table.metadata, branch, snapshot.snapshot_id))
    if said.tag is not None:
        updates.append(iceberg_refs.tagged(said.tag, snapshot.snapshot_id))
    names = [*((MAIN_BRANCH,) if before else ()), branch, said.tag, *unmoved]
    _request(catalog, table, updates, names, said.properties, dropped)


def request_drop(
    catalog: Catalog,
    table: Table,
    branch: str,
    unmoved: Iterable[str] = (),
    properties: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Ask the catalog once to drop a branch, if it and these others are where they were loaded, and to set the properties.

    Never retries, and raises as `request_snapshot`.
    """
    _request(catalog, table, [], unmoved, properties, branch)


def _request(
    catalog: Catalog,
    table: Table,
    updates: Sequence[TableUpdate],
    unmoved: Iterable[str | None],
    properties: Mapping[str, str],
    dropped: str | None,
) -> None:
    metadata = table.metadata
    requirements: list[TableRequirement] = [
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
    ]
    for name in dict.fromkeys([*unmoved, dropped]):
        # pyiceberg refuses to be asked for any but main where a table has no snapshot: there are no others then.
        if name is not None and (name == MAIN_BRANCH or metadata.snapshots):
            requirements.append(iceberg_refs.unmoved(metadata, name))
    asked = [*updates]
    if dropped is not None:
        asked.append(RemoveSnapshotRefUpdate(ref_name=dropped))
    if properties:
        asked.append(SetPropertiesUpdate(updates=dict(properties)))
    catalog.commit_table(table, requirements=tuple(requirements), updates=tuple(asked))


def _totals_of(parent: Snapshot | None) -> Mapping[str, str] | None:
    """Return a snapshot's summary without totals that are no numbers: ours then has none of these, as Iceberg's own Java does."""
    if parent is None or parent.summary is None:
        return None
    known: Mapping[str, str] = parent.summary.additional_properties
    return {name: value for name, value in known.items() if name.startswith("total-") and value.isdecimal()} or {"": ""}
