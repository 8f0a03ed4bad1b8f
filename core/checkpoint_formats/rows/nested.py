"""Lists, maps and structs taken apart, and put together again around other values.

What lies below a NULL list or map is no value, and is left out on the way.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def flat(lists: pa.Array) -> pa.Array:
    """Return the values of all lists that are not NULL, one after another."""
    there = not_null(lists)
    if pa.types.is_fixed_size_list(lists.type):
        return places(there)
    first, last = (there.offsets[end].as_py() for end in (0, -1))
    return there.values.slice(first, last - first)


def places(lists: pa.Array) -> pa.Array:
    """Return the values of fixed size lists; also what lies below NULL, since it has its places."""
    return lists.values.slice(lists.offset * lists.type.list_size, len(lists) * lists.type.list_size)


def with_values(lists: pa.Array, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return lists of the type `kind`, as long as these, of other values: those of `flat`, or of `places` for a fixed size."""
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=_mask(lists))
    made: Any = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return made.from_arrays(_offsets(lists, kind), values, type=kind, mask=_mask(lists))


def entries(maps: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the keys and the items of all maps that are not NULL, one after another."""
    there = not_null(maps)
    first, last = (there.offsets[end].as_py() for end in (0, -1))
    return there.keys.slice(first, last - first), there.items.slice(first, last - first)


def with_entries(maps: pa.Array, keys: pa.Array, items: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return maps of the type `kind`, as long as these, of other keys and items: those of `entries`."""
    return pa.MapArray.from_arrays(_offsets(maps, kind), keys, items, type=kind, mask=_mask(maps))


def number_of(structs: pa.DataType, name: str) -> int | None:
    """Return which field of a struct has a name; None if none has. ValueError if two have.

    A name is not given to Arrow as a reference to a field: to it, `.a` is the field `a`.
    """
    numbers = structs.get_all_field_indices(name)
    if len(numbers) > 1:
        raise ValueError(f"two fields of a struct have the name {name!r}")
    return numbers[0] if numbers else None


def is_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types are the same, also in what is required, which Arrow does not look at in maps with extension types.

    Where Arrow's Parquet writer takes the items of a map for required, and the array has optional ones, it writes NULL for each.
    """
    if not one.equals(other):
        return False
    if pa.types.is_map(one) and one.item_field.nullable != other.item_field.nullable:
        return False
    return all(is_type(one.field(number).type, other.field(number).type) for number in range(one.num_fields))


def with_fields(structs: pa.Array, children: list[pa.Array], kind: pa.DataType) -> pa.Array:
    """Return structs of the type `kind` with these fields, NULL where `structs` are."""
    if not children:  # Arrow would not know how many structs these are
        return pa.array([None if is_null else {} for is_null in structs.is_null().to_pylist()], kind)
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=_mask(structs))


def not_null(array: pa.Array) -> pa.Array:
    """Return the values that are not NULL."""
    # Not Arrow's `drop_null` and `flatten`, which cannot make an empty array of structs with an extension type in them.
    return array.filter(array.is_valid()) if array.null_count else array


def nulls(rows: int, kind: pa.DataType) -> pa.Array:
    """Return NULLs of the type. Below one of a struct, required fields have a value that nobody reads.

    Parquet's writer refuses NULL there.
    """
    if not pa.types.is_struct(kind):
        return pa.nulls(rows, kind)
    first = pa.array([0] * rows, pa.int64())
    children = [nulls(rows, field.type) if field.nullable else some(field.type).take(first) for field in kind]
    return with_fields(pa.nulls(rows, pa.struct([])), children, kind)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return an empty batch. Arrow's own ways to make one know no extension type that lies in other values."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def some(kind: pa.DataType) -> pa.Array:
    """Return one value of a type: zero, no text, an empty list."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, some(kind.storage_type))
    if pa.types.is_struct(kind):
        parts = [some(field.type) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array([False]))
    if pa.types.is_fixed_size_list(kind):
        values = pa.concat_arrays([some(kind.value_type)] * kind.list_size) if kind.list_size else pa.array([], kind.value_type)
        return pa.FixedSizeListArray.from_arrays(values, type=kind)
    # Made of what it consists of: `pa.array` cannot make values with an extension type in them.
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays([0, 0], pa.nulls(0, kind.key_type), pa.nulls(0, kind.item_type), type=kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made: Any = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
        offsets = pa.array([0, 0], pa.int64() if pa.types.is_large_list(kind) else pa.int32())
        return made.from_arrays(offsets, pa.nulls(0, kind.value_type), type=kind)
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(pa.array([0], kind.index_type), some(kind.value_type))
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(max(1, kind.bit_width // 8)))])
    return pa.array([b""]).cast(kind)


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _offsets(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return where each list, or map, begins among the values of those that are not NULL."""
    lengths = pc.subtract(array.offsets[1:], array.offsets[:-1]) if pa.types.is_map(array.type) else pc.list_value_length(array)
    if array.null_count:
        lengths = pc.if_else(array.is_valid(), lengths, pa.scalar(0, lengths.type))
    offsets = pa.concat_arrays([pa.array([0], lengths.type), pc.cumulative_sum(lengths)])
    return offsets.cast(pa.int64() if pa.types.is_large_list(kind) else pa.int32())
