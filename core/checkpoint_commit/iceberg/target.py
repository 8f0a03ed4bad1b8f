"""An Iceberg table as staging needs to know it: which tables can be written, what a new one is made with, what may not change."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import parse_transform

from checkpoint_commit.catalogs.format_3 import WritesFormat3, find_unknown
from checkpoint_commit.catalogs.named import translate_catalog_error
from checkpoint_commit.iceberg.support import (
    data_location_of,
    sort_order_of,
    wanted_of,
    why_no_key,
    why_not_committed,
    why_not_done,
    why_unsupported,
)
from checkpoint_commit.outcomes import Rejected
from checkpoint_commit.sinks.table_types import iceberg_schema
from checkpoint_formats.iceberg.file_io import refuse_places_elsewhere
from checkpoint_formats.iceberg.writing import write_properties
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, one_line
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import IcebergTarget, Operation


def target_of(table: Table, settings: Settings, title: str, head: Snapshot | None) -> IcebergTarget:
    """Return what stagers are told of the table; `head`: of the branch. NeedsChange if it cannot be written."""
    metadata = table.metadata
    refuse_unsupported(table, settings, title)
    wanted, order = wanted_of(metadata), sort_order_of(metadata)
    return IcebergTarget(
        table=title,
        table_uuid=str(metadata.table_uuid),
        data_location=data_location_of(metadata),
        table_schema_json=metadata.schema().model_dump_json(),
        partition_spec_json=metadata.spec().model_dump_json(),
        codec=wanted.codec,
        codec_level=wanted.codec_level,
        snapshot_id=head.snapshot_id if head is not None else None,
        sort_order_json=None if order is None else order.model_dump_json(),
        write_properties=write_properties.kept(metadata.properties),
        target_file_size_bytes=wanted.file_size_bytes,
    )


def refuse_unsupported(table: Table, settings: Settings, title: str) -> None:
    """NeedsChange(TableUnsupported) if the table is one that we do not write."""
    refuse_places_elsewhere(table.metadata, table.metadata_location, settings, title)
    _refuse(why_unsupported(table.metadata), title)
    _refuse_loss(table, settings, title)


def refuse_operation(operation: Operation, metadata: TableMetadata, title: str) -> None:
    """NeedsChange(TableUnsupported) if a table of that kind does not take the operation."""
    _refuse(why_not_done(operation, metadata), title)


def refuse_keys(schema: Schema, keys: Sequence[str], order_by: str | None) -> None:
    """NeedsChange(ManifestInvalid) if rows cannot be matched by these columns, or be told apart by that one."""
    for number, name in enumerate(keys):
        if (why := why_no_key(name, schema)) is not None:
            raise NeedsChange(reasons.MANIFEST_INVALID, f"spec.sink.upsertKeys.{number}: {why}")
    if order_by is None:
        return
    column = next((field for field in schema.fields if field.name == order_by), None)
    if column is None:
        known = ", ".join(field.name for field in schema.fields)
        raise NeedsChange(reasons.MANIFEST_INVALID, f"spec.sink.orderBy: there is no column {order_by!r} (there are {known})")
    if not column.field_type.is_primitive:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"spec.sink.orderBy: {order_by!r} is {column.field_type}, which has no order")


def refuse_columns_of_upsert(target: IcebergTarget, sink: Sink) -> None:
    """NeedsChange(ManifestInvalid) if the table has not the columns that a manifest's upsert goes by."""
    refuse_keys(Schema.model_validate_json(target.table_schema_json), sink.upsert_keys or (), sink.order_by)


def refuse_what_it_has_become(table: Table, settings: Settings, title: str) -> None:
    """NeedsChange if the table has become one that we do not write; it was not so when the write was launched."""
    refuse_places_elsewhere(table.metadata, table.metadata_location, settings, title)
    _refuse(why_not_committed(table.metadata), title)
    _refuse_loss(table, settings, title)


def _refuse_loss(table: Table, settings: Settings, title: str) -> None:
    """NeedsChange if the next metadata file would not have all that this one says."""
    if table.metadata.format_version < 3 or not isinstance(table.catalog, WritesFormat3):
        return
    try:
        unknown = find_unknown(table.metadata, table.io.new_input(table.metadata_location))
    except OSError as error:
        raise translate_catalog_error(error, table.catalog.name, settings.place) from error
    if unknown is not None:
        _refuse(
            f"has format version 3, and its metadata says {unknown}, which pyiceberg would leave out of the next metadata file: "
            "write the table through a REST catalog, whose server writes these files",
            title,
        )


def _refuse(problem: str | None, title: str) -> None:
    if problem is not None:
        raise NeedsChange(reasons.TABLE_UNSUPPORTED, f"the table {title} {problem}")


def new_table(given: pa.Schema, sink: Sink) -> tuple[Schema, PartitionSpec]:
    """Return schema, with fresh ids, and partitions of a new table for rows of an Arrow schema. No catalog is asked.

    NeedsChange says what no catalog would take: a type, names, a partition field.
    """
    try:
        schema = assign_fresh_schema_ids(Catalog._convert_schema_if_needed(iceberg_schema(given)))
    except NeedsChange:
        raise
    except Exception as error:  # pyiceberg's own for types is a bare Exception
        raise NeedsChange(reasons.OUTPUT_SCHEMA_WRONG, one_line(error)) from error
    refuse_keys(schema, sink.upsert_keys or (), sink.order_by)
    partition_spec = new_partition_spec(schema, sink)
    try:
        new_table_metadata(schema, partition_spec, UNSORTED_SORT_ORDER, location="file:///nowhere")
    except (ValueError, TypeError, NotImplementedError) as error:
        raise NeedsChange(reasons.OUTPUT_SCHEMA_WRONG, one_line(error)) from error
    return schema, partition_spec


def cannot_be_made(title: str, error: Exception) -> NeedsChange:
    return NeedsChange(
        reasons.OUTPUT_SCHEMA_WRONG, f"no Iceberg table {title} can be made of the steps' output: {one_line(error)}"
    )


def new_partition_spec(schema: Schema, sink: Sink) -> PartitionSpec:
    """Return the spec of a new table. NeedsChange if a column is missing, or its type has no such transform."""
    fields = []
    for number, wanted in enumerate(sink.partition_by):
        try:
            source = schema.find_field(wanted.column)
        except ValueError:
            names = ", ".join(schema.column_names)
            raise NeedsChange(
                reasons.MANIFEST_INVALID,
                f"spec.sink.partitionBy.{number}: the steps' output has no column {wanted.column!r} (it has {names})",
            ) from None
        transform = parse_transform(wanted.transform)
        if not transform.can_transform(source.field_type):
            raise NeedsChange(
                reasons.MANIFEST_INVALID,
                f"spec.sink.partitionBy.{number}: {wanted.transform} does not apply to {source.field_type} of {wanted.column!r}",
            )
        # As Spark names them: day_month, id_bucket, name_trunc.
        kind = wanted.transform.partition("[")[0].replace("truncate", "trunc")
        name = wanted.column if kind == "identity" else f"{wanted.column}_{kind}"
        if kind != "identity" and name in schema.column_names:
            raise NeedsChange(
                reasons.MANIFEST_INVALID,
                f"spec.sink.partitionBy.{number}: the partition field would have the name {name!r}, which is that of a column of "
                "the output; rename the column in a step",
            )
        fields.append(PartitionField(source_id=source.field_id, field_id=1000 + number, transform=transform, name=name))
    return PartitionSpec(*fields)


def find_change(metadata: TableMetadata, targets: Sequence[IcebergTarget], title: str) -> Rejected | None:
    """Return why a version of the table is not the table that was staged for."""
    for target in targets:
        if target.table_uuid != str(metadata.table_uuid):
            return Rejected(
                reasons.TABLE_REPLACED,
                f"the table {title} was dropped and made again while the write was running (its uuid was "
                f"{target.table_uuid} and is {metadata.table_uuid}); start a new write under another name",
            )
        if changed := _schema_differences(Schema.model_validate_json(target.table_schema_json), metadata.schema()):
            return Rejected(
                reasons.SCHEMA_CHANGED,
                f"the table {title} changed while the write was running: {changed[0]}; undo that, or start a new "
                "write under another name",
            )
    return None


def _schema_differences(staged: Schema, current: Schema) -> list[str]:
    """Return what has changed so that staged files no longer read as what they are. A new optional column is fine."""
    found: list[str] = []
    now = {field_id: current.find_field(field_id) for field_id in current._lazy_id_to_field}
    before = {field_id: staged.find_field(field_id) for field_id in staged._lazy_id_to_field}
    for field_id, field in before.items():
        name = staged.find_column_name(field_id)
        if field_id not in now:
            again = name in {current.find_column_name(other) for other in now}
            found.append(f"the column {name!r} was dropped{' and made again' if again else ''}")
        elif field.field_type.is_primitive and now[field_id].field_type != field.field_type:
            found.append(f"the column {name!r} was {field.field_type} and is {now[field_id].field_type}")
        elif now[field_id].required and not field.required:
            found.append(f"the column {name!r} is now required")
    found += [
        f"the required column {current.find_column_name(field_id)!r} is new"
        for field_id, field in now.items()
        if field_id not in before and field.required
    ]
    return found
