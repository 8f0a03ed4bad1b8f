"""What lies below a NULL: no value, so that no rule of a table is about it.

In Arrow a NULL struct still has a place in each of its fields. Parquet's writer refuses NULL there in a field that is required,
so these places get a value that nobody reads.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_formats.rows.nested import entries, flat, not_null, places, some, with_entries, with_fields, with_values


def requires_values(kind: pa.DataType) -> bool:
    """Whether a part of the values, at any depth, is required. Keys of maps always are."""
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or requires_values(kind.key_type) or requires_values(kind.item_type)
    parts = [kind.field(number) for number in range(kind.num_fields)]
    return any(not part.nullable or requires_values(part.type) for part in parts)


def null_where_required(array: pa.Array) -> str | None:
    """Return what nested part holds a NULL and must not; the array itself may. What lies below a NULL does not count."""
    if not requires_values(array.type):
        return None
    for field, values in _parts(array):
        if not field.nullable and values.null_count:
            return f"{field.name!r}"
        if (found := null_where_required(values)) is not None:
            return found
    return None


def _parts(array: pa.Array) -> list[tuple[pa.Field, pa.Array]]:
    """Return what an array is made of, without what lies below a NULL."""
    kind = array.type
    if pa.types.is_struct(kind):
        there = not_null(array)
        return [(field, there.field(number)) for number, field in enumerate(kind)]
    if pa.types.is_map(kind):
        return list(zip((kind.key_field, kind.item_field), entries(array), strict=True))
    return [(kind.value_field, flat(array))]


def without_null_below(array: pa.Array) -> pa.Array:
    """Return the same values, with no NULL in a part that is required. `null_where_required` has found none but below a NULL."""
    kind = array.type
    if not requires_values(kind):
        return array
    if pa.types.is_struct(kind):
        # Of each field, with what is NULL above it: nothing else is left below a NULL.
        return with_fields(array, [_part(field, pc.struct_field(array, [number])) for number, field in enumerate(kind)], kind)
    if pa.types.is_fixed_size_list(kind):
        return with_values(array, _part(kind.value_field, places(array)), kind)
    if pa.types.is_map(kind):
        keys, items = entries(array)
        return with_entries(array, _part(kind.key_field, keys), _part(kind.item_field, items), kind)
    return with_values(array, _part(kind.value_field, flat(array)), kind)


def _part(field: pa.Field, values: pa.Array) -> pa.Array:
    values = without_null_below(values)
    if field.nullable or not values.null_count:
        return values
    numbers = pc.if_else(values.is_null(), len(values), pa.array(range(len(values)), pa.int64()))
    return pa.concat_arrays([values, some(field.type)]).take(numbers)
