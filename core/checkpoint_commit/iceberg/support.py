"""Which Iceberg tables can be written, and what is read off one for its stagers.

Pure. What is refused here is refused before any work, by `validate` too; each text goes on after "the table c.db.t ...".
"""

from __future__ import annotations

from typing import Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    GeographyType,
    GeometryType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from checkpoint_commit.catalogs.named import CLASS_PROPERTIES
from checkpoint_formats.iceberg.manifests_3 import LINEAGE
from checkpoint_formats.iceberg.writing import write_properties
from checkpoint_formats.iceberg.writing.transforms import source_type, why_not_computed, why_not_sorted
from checkpoint_formats.iceberg.writing.write_properties import WriteProperties
from checkpoint_protocol.records import Append, Merge, Operation, Upsert

#: Types whose equality is what people mean by it: NaN is not equal to itself, and 0.1 + 0.2 not to 0.3.
_KEYS: Final = (
    *(BinaryType, BooleanType, DateType, DecimalType, FixedType, IntegerType, LongType, StringType, TimeType, TimestampType),
    *(TimestamptzType, UUIDType),
)
_UNWRITTEN: Final = (UnknownType, GeometryType, GeographyType)
_LINEAGE: Final = frozenset(field.name for field in LINEAGE)


def why_not_committed(metadata: TableMetadata) -> str | None:
    """Say why nothing can be committed to the table, however it was staged; None if it can."""
    if classes := sorted(CLASS_PROPERTIES & metadata.properties.keys()):
        return f"asks for code to be imported by its property {classes[0]!r}"
    return None


def why_unsupported(metadata: TableMetadata) -> str | None:
    """Say why the table cannot be written; None if it can."""
    if (problem := why_not_committed(metadata)) is not None:
        return problem
    schema, order = metadata.schema(), sort_order_of(metadata)
    for field_id, field in schema._lazy_id_to_field.items():
        if isinstance(field.field_type, _UNWRITTEN):
            name = schema.find_column_name(field_id)
            return f"has the column {name!r} of the type {field.field_type}, which cannot be written: drop the column"
    if (problem := _why_not_partitioned(metadata.spec(), schema)) is not None:
        return problem
    if order is not None and (why := why_not_sorted(order, schema)) is not None:
        return f"has the sort order {order.order_id}, in which rows cannot be put: {why}; replace it (WRITE UNORDERED in Spark)"
    try:
        wanted_of(metadata)
    except ValueError as error:
        return f"has a property that cannot be followed: {error}; correct or remove it"
    return None


def why_not_done(operation: Operation, metadata: TableMetadata) -> str | None:
    """Say why the operation cannot be done on a table of that kind, for which rows can be appended."""
    if isinstance(operation, Append):
        return None
    if isinstance(operation, Upsert | Merge):
        return _why_not_upserted(operation, metadata)
    return None


def _why_not_upserted(operation: Upsert | Merge, metadata: TableMetadata) -> str | None:
    name = property_of_rewrites(operation, metadata)
    if metadata.format_version == 1 and name is None:
        return (
            "has format version 1, which has no deletes of rows, and sink.mode: Upsert makes some: upgrade it to version 2 "
            "(ALTER TABLE ... SET TBLPROPERTIES ('format-version' = '2') in Spark), or append"
        )
    if metadata.format_version > 2 and name is not None and (taken := _LINEAGE & set(metadata.schema().column_names)):
        return (
            f"has the column {min(taken)!r}, whose name is that of a column of row lineage in format version 3, which "
            "sink.mode: Upsert writes beside it: rename the column"
        )
    return None


def property_of_rewrites(operation: Upsert | Merge, metadata: TableMetadata) -> str | None:
    """Return the table's property that asks for data files to be written anew, where rows of them go (copy-on-write).

    None where it asks for deletes of rows, or says nothing. `write.merge.mode` goes before the others.
    """
    names = ("write.merge.mode", "write.delete.mode" if operation.when_matched == "Delete" else "write.update.mode")
    name = next((name for name in names if name in metadata.properties), None)
    return name if name is not None and metadata.properties[name].lower() == "copy-on-write" else None


def why_no_key(name: str, schema: Schema) -> str | None:
    """Say why a column cannot be one of those that rows are matched by; None if it can."""
    try:
        column = schema.find_field(name)
    except ValueError:
        return f"there is no column {name!r} (there are {', '.join(field.name for field in schema.fields)}); correct it"
    if column not in schema.fields:
        return f"the column {name!r} is within another one; name columns of the table"
    if not isinstance(column.field_type, _KEYS):
        return (
            f"the column {name!r} is {column.field_type}, and rows are matched by strings, integers, decimals, booleans, "
            "dates, times, UUIDs and binaries only; name another one"
        )
    return None


def wanted_of(metadata: TableMetadata) -> WriteProperties:
    """Return how the table wants its files written. ValueError names a property that is wrong."""
    return write_properties.parse(metadata.properties, metadata.schema(), sort_order_of(metadata))


def sort_order_of(metadata: TableMetadata) -> SortOrder | None:
    """Return the order that rows of a file are to have, or None where they need none."""
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    return None if order is None or order.is_unsorted else order


def data_location_of(metadata: TableMetadata) -> str:
    """Return where data files go, as Iceberg's own Java decides it."""
    is_spread = metadata.properties.get("write.object-storage.enabled", "false").lower() == "true"
    names = ("write.data.path", *(("write.object-storage.path",) if is_spread else ()), "write.folder-storage.path")
    given = next((metadata.properties[name] for name in names if name in metadata.properties), None)
    return (given or f"{metadata.location.rstrip('/')}/data").rstrip("/")


def _why_not_partitioned(spec: PartitionSpec, schema: Schema) -> str | None:
    for part in spec.fields:
        if (why := why_not_computed(part.transform, source_type(schema, part.source_id))) is not None:
            return (
                f"is partitioned by the field {part.name!r}, of which no values can be made: {why}; replace that partition field"
            )
    return None
