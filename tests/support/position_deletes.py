"""A delete file in an Iceberg table, as engines put one that merge on read: pyiceberg 0.12 writes none itself."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest_list,
)
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, update_snapshot_summaries
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

from checkpoint_commit.iceberg.metadata.manifests import DeletesWriter
from tests.support.places import IcebergPlace

_SCHEMA: Final = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)
_BY_ID: Final = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])


def delete_first_row(place: IcebergPlace) -> None:
    """Delete the first row of the table's first data file."""
    table = place.table()
    delete_positions(place.opened(), table, _first_file(table), [0])


def delete_positions(catalog: Catalog, table: Table, task: FileScanTask, positions: Sequence[int]) -> None:
    """Delete rows of one data file by their numbers, which rise."""
    rows = pa.table({"file_path": [task.file.file_path] * len(positions), "pos": positions}, schema=_SCHEMA)
    _put_deletes(catalog, table, task, rows)


def delete_by_value(place: IcebergPlace, number: int, *, everywhere: bool = False) -> None:
    """Delete the rows whose column of the id 1 has that value, by an equality delete, as Flink does.

    In the partition of the table's first data file; `everywhere`: in all, by a delete under the table's unpartitioned spec 0.
    """
    table = place.table()
    _put_deletes(place.opened(), table, _first_file(table), pa.table({"id": [number]}, schema=_BY_ID), everywhere=everywhere)


def _first_file(table: Table) -> FileScanTask:
    return next(iter(table.scan().plan_files()))


def _put_deletes(catalog: Catalog, table: Table, task: FileScanTask, rows: pa.Table, *, everywhere: bool = False) -> None:
    is_by_position = rows.schema.names == _SCHEMA.names
    metadata, head = table.metadata, table.current_snapshot()
    assert head is not None
    folder, snapshot_id = f"{metadata.location}/data", uuid.uuid4().int >> 66
    path = f"{folder}/{uuid.uuid4()}-deletes.parquet"
    with table.io.new_output(path).create() as stream:
        pq.write_table(rows, stream)
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES if is_by_position else DataFileContent.EQUALITY_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record() if everywhere else task.file.partition,
        record_count=rows.num_rows,
        file_size_in_bytes=len(table.io.new_input(path)),
        column_sizes=None,
        value_counts=None,
        null_value_counts=None,
        nan_value_counts=None,
        lower_bounds=None,
        upper_bounds=None,
        key_metadata=None,
        split_offsets=None,
        equality_ids=None if is_by_position else [1],
        sort_order_id=None,
    )
    output = table.io.new_output(f"{metadata.location}/metadata/{uuid.uuid4()}-m0.avro")
    spec = metadata.specs()[0 if everywhere else task.file.spec_id]
    assert spec.is_unpartitioned() or not everywhere
    with DeletesWriter(spec, metadata.schema(), output, snapshot_id, "deflate") as writer:
        writer.add_entry(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file))
    list_file = table.io.new_output(f"{metadata.location}/metadata/snap-{uuid.uuid4()}.avro")
    with write_manifest_list(
        metadata.format_version, list_file, snapshot_id, head.snapshot_id, metadata.next_sequence_number(), "deflate"
    ) as manifests:
        manifests.add_manifests([*head.manifests(table.io), writer.to_manifest_file()])
    kind = "position" if is_by_position else "equality"
    counts = {"added-delete-files": "1", f"added-{kind}-delete-files": "1", f"added-{kind}-deletes": str(rows.num_rows)}
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=metadata.next_sequence_number(),
        manifest_list=list_file.location,
        summary=update_snapshot_summaries(
            Summary(operation=Operation.OVERWRITE, **counts),
            head.summary.additional_properties if head.summary is not None else None,
        ),
        schema_id=metadata.current_schema_id,
    )
    moved = SetSnapshotRefUpdate(  # type: ignore[call-arg]
        ref_name=MAIN_BRANCH, type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id, parent_snapshot_id=head.snapshot_id
    )
    catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot), moved))
