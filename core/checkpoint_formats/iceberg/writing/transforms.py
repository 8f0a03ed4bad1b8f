"""What Iceberg's transforms make of Arrow columns, and rows in a table's sort order.

pyiceberg and its Rust core compute most of them. What they lack, or compute otherwise than Iceberg's own Java, is made here:
transforms of nanoseconds, which Java makes of the microsecond that they lie in, and truncated bytes.

Source of the rules: the Iceberg table specification (partition transforms, appendix B on hashes, appendix D on binary values).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
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


# Rows in a table's sort order.
#
# Source of the rules: the Iceberg table specification (sorting): floating point numbers are in the total order of IEEE 754, from
# -NaN by -Infinity, -0 and 0 to NaN; the order of NULL is said for each field.


_FLOATS: Final = {32: (np.int32, 0x7FFFFFFF), 64: (np.int64, 0x7FFFFFFFFFFFFFFF)}


def why_not_sorted(order: SortOrder, schema: Schema) -> str | None:
    """Say why rows cannot be put into that order."""
    for field in order.fields:
        name = schema.find_column_name(field.source_id)
        if (why := why_not_computed(field.transform, source_type(schema, field.source_id))) is not None:
            return f"{why} (column {name!r})" if name is not None else why
    return None


def sorted_rows(rows: pa.RecordBatch, schema: Schema, order: SortOrder) -> pa.Array:
    """Return the numbers of the rows in order. Rows that the order does not tell apart stay as they are."""
    keys: list[pa.Array] = []
    directions: list[str] = []
    for field in order.fields:
        if isinstance(field.transform, VoidTransform):
            continue
        values = as_stored(transformed(rows, schema, field.source_id, field.transform))
        if values.null_count:
            # Of true and false, false is first.
            keys.append(values.is_null() if field.null_order == NullOrder.NULLS_LAST else values.is_valid())
            directions.append("ascending")
        keys.append(_in_total_order(values) if pa.types.is_floating(values.type) else values)
        directions.append("ascending" if field.direction == SortDirection.ASC else "descending")
    # Arrow's sort is not said to be stable.
    keys.append(pa.array(np.arange(rows.num_rows)))
    directions.append("ascending")
    names = [f"k{number}" for number in range(len(keys))]
    return pc.sort_indices(pa.table(keys, names=names), sort_keys=list(zip(names, directions, strict=True)))


def _in_total_order(values: pa.Array) -> pa.Array:
    """Return whole numbers that are in the order of the floating point numbers, NaN and -0 too."""
    kind, all_but_sign = _FLOATS[values.type.bit_width]
    bits = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False).view(kind)
    return pa.array(np.where(bits < 0, bits ^ kind(all_but_sign), bits), mask=np.asarray(values.is_null()))
