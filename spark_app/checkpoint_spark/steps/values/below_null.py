"""What lies below a NULL: no value, so that no rule of a table is about it.

In Arrow a NULL struct still has a place in each of its fields. Parquet's writer refuses NULL there in a field that is required,
so these places get a value that nobody reads.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


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
        there = array.filter(array.is_valid())
        return [(field, pc.struct_field(there, [number])) for number, field in enumerate(kind)]
    if pa.types.is_map(kind):
        entries = _entries(array).flatten()
        return [(kind.key_field, entries.field(0)), (kind.item_field, entries.field(1))]
    return [(kind.value_field, array.flatten())]


def without_null_below(array: pa.Array) -> pa.Array:
    """Return the same values, with no NULL in a part that is required. `null_where_required` has found none but below a NULL."""
    kind = array.type
    if not requires_values(kind):
        return array
    if pa.types.is_struct(kind):
        # Of each field, with what is NULL above it: nothing else is left below a NULL.
        children = [_part(field, pc.struct_field(array, [number])) for number, field in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_fixed_size_list(kind):
        values = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        return pa.FixedSizeListArray.from_arrays(_part(kind.value_field, values), type=kind, mask=array.is_null())
    if pa.types.is_map(kind):
        lists = _entries(array)
        keys, items = (_part(field, values) for field, values in _parts(array))
        return pa.MapArray.from_arrays(_offsets(lists), keys, items, type=kind, mask=array.is_null())
    made: Any = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return made.from_arrays(_offsets(array), _part(kind.value_field, array.flatten()), type=kind, mask=array.is_null())


def _part(field: pa.Field, values: pa.Array) -> pa.Array:
    values = without_null_below(values)
    if field.nullable or not values.null_count:
        return values
    numbers = pc.if_else(values.is_null(), len(values), pa.array(range(len(values)), pa.int64()))
    return pa.concat_arrays([values, _some(field.type)]).take(numbers)


def _entries(array: pa.Array) -> pa.Array:
    """Return maps as lists of their entries."""
    entries = pa.StructArray.from_arrays([array.keys, array.items], fields=[array.type.key_field, array.type.item_field])
    offsets = pc.add(array.offsets, pa.scalar(0, pa.int32()))  # which may be a part of others, and must not be beside a mask
    return pa.ListArray.from_arrays(offsets, entries, mask=array.is_null())


def _offsets(array: pa.Array) -> pa.Array:
    """Return where each list begins among the values of those that are not NULL."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    offsets = pa.concat_arrays([pa.array([0], lengths.type), pc.cumulative_sum(lengths)])
    return offsets.cast(pa.int64() if pa.types.is_large_list(array.type) else pa.int32())


def _some(kind: pa.DataType) -> pa.Array:
    """Return one value of a type: zero, no text, an empty list."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _some(kind.storage_type))
    if pa.types.is_struct(kind):
        parts = [_some(field.type) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array([False]))
    if pa.types.is_fixed_size_list(kind):
        values = pa.concat_arrays([_some(kind.value_type)] * kind.list_size) if kind.list_size else pa.array([], kind.value_type)
        return pa.FixedSizeListArray.from_arrays(values, type=kind)
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.array([[]], kind)
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(pa.array([0], kind.index_type), _some(kind.value_type))
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(max(1, kind.bit_width // 8)))])
    return pa.array([b""]).cast(kind)
