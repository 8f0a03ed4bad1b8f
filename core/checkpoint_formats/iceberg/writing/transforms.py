"""What Iceberg's transforms make of Arrow columns: the values of partitions, and what files are sorted by.

pyiceberg and its Rust core compute most of them. What they lack, or compute otherwise than Iceberg's own Java, is made here:
transforms of nanoseconds, which Java makes of the microsecond that they lie in, and truncated bytes.

Source of the rules: the Iceberg table specification (partition transforms, appendix B on hashes, appendix D on binary values).
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, Transform, TruncateTransform, UnknownTransform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    PrimitiveType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UnknownType,
)

_MICROSECONDS: Final[dict[type[IcebergType], PrimitiveType]] = {
    TimestampNanoType: TimestampType(),
    TimestamptzNanoType: TimestamptzType(),
}


def why_not_computed(transform: Transform[Any, Any], source: IcebergType | None) -> str | None:
    """Say why no value can be computed of a column of this type (None: a column that was dropped)."""
    if isinstance(transform, VoidTransform):
        return None
    if isinstance(transform, UnknownTransform):
        return "its transform is not known"
    if source is None:
        return "its column was dropped"
    return None if transform.can_transform(source) else f"{transform} does not apply to {source}"


def value_type(part: PartitionField, schema: Schema) -> PrimitiveType:
    """Return the type of a partition value; UnknownType, of which there is only NULL, where the column was dropped."""
    source = source_type(schema, part.source_id)
    result = UnknownType() if source is None else part.transform.result_type(source)
    assert isinstance(result, PrimitiveType)
    return result


def source_type(schema: Schema, field_id: int) -> IcebergType | None:
    """Return the type of a column, or None if the schema has it no more."""
    try:
        return schema.find_type(field_id)
    except ValueError:
        return None


def column_of(batch: pa.RecordBatch, schema: Schema, field_id: int) -> pa.Array:
    """Return a column, which may lie inside structs."""
    name = schema.find_column_name(field_id) or ""
    head, *rest = name.split(".")
    if head not in batch.schema.names:  # a name with dots in it
        return batch.column(name)
    column = batch.column(head)
    for part in rest:
        column = pc.struct_field(column, part)
    return column


def transformed(batch: pa.RecordBatch, schema: Schema, field_id: int, transform: Transform[Any, Any]) -> pa.Array:
    """Return what the transform makes of a column of the batch."""
    source = source_type(schema, field_id)
    if isinstance(transform, VoidTransform) or source is None:
        return pa.nulls(batch.num_rows, pa.int32())
    values = column_of(batch, schema, field_id)
    if isinstance(transform, IdentityTransform):
        return values
    if (coarser := _MICROSECONDS.get(type(source))) is not None:
        values = pc.floor_temporal(values, unit="microsecond").cast(pa.timestamp("us", values.type.tz))
        source = coarser
    if isinstance(transform, TruncateTransform) and isinstance(source, BinaryType):
        return pc.binary_slice(values, 0, transform.width)
    return transform.pyarrow_transform(source)(values)


def as_stored(values: pa.Array) -> pa.Array:
    """Return values as Iceberg's binary form has them: dates and times are numbers, UUIDs bytes."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return values.storage
    if pa.types.is_date32(kind):
        return values.view(pa.int32())
    return values.view(pa.int64()) if pa.types.is_temporal(kind) else values


def encoded(kind: PrimitiveType, value: Any) -> bytes | None:
    """Return a partition value, out of `as_stored`, in Iceberg's binary form."""
    return None if value is None else to_bytes(kind, value)
