"""Rows in a table's sort order.

Source of the rules: the Iceberg table specification (sorting): floating point numbers are in the total order of IEEE 754, from
-NaN by -Infinity, -0 and 0 to NaN; the order of NULL is said for each field.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.transforms import VoidTransform

from checkpoint_formats.iceberg.writing.transforms import as_stored, source_type, transformed, why_not_computed

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
