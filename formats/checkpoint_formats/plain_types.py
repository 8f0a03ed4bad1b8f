"""One type for what several writers store alike: a column is text, whether its file says string, large_string or dictionary."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

#: Extension types whose values are the same in a plain type. Others stay as they are, and `unknown_extension` tells them.
_SAME_VALUES: Final = {
    "arrow.bool8": pa.bool_(),
    "arrow.json": pa.string(),
    "arrow.uuid": pa.binary(16),
    # Its own storage are places in other files. The reader of Lance datasets asks for the bytes.
    "lance.blob.v2": pa.binary(),
}


def unknown_extension(kind: pa.DataType) -> str | None:
    """Return the name of an extension type that a plain type has in it: nobody here knows what its values mean."""
    if isinstance(kind, pa.BaseExtensionType):
        return str(kind.extension_name)
    parts = (unknown_extension(kind.field(number).type) for number in range(kind.num_fields))
    return next((name for name in parts if name is not None), None)


def plain_type(given: pa.DataType) -> pa.DataType:
    """Return the type without encodings, known extensions and NOT NULL, at every depth. Values can be cast to it without loss."""
    kind = pa.types
    if isinstance(given, pa.BaseExtensionType):
        return _SAME_VALUES.get(given.extension_name, given)
    if kind.is_dictionary(given) or kind.is_run_end_encoded(given):
        return plain_type(given.value_type)
    if kind.is_large_string(given) or kind.is_string_view(given):
        return pa.string()
    if kind.is_large_binary(given) or kind.is_binary_view(given):
        return pa.binary()
    if kind.is_map(given):
        return pa.map_(plain_type(given.key_type), plain_type(given.item_type))
    if kind.is_fixed_size_list(given):
        return pa.list_(plain_type(given.value_type), given.list_size)
    if kind.is_list(given) or kind.is_large_list(given):
        return pa.list_(plain_type(given.value_type))
    if kind.is_struct(given):
        return pa.struct([(field.name, plain_type(field.type)) for field in given])
    return given


def plain_schema(given: pa.Schema) -> pa.Schema:
    """Return the schema in plain types, without metadata, every column optional: a later file may have NULLs in it."""
    return pa.schema([(field.name, plain_type(field.type)) for field in given])


def as_plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return exactly the columns of a plain schema. One that the batch does not have is NULL.

    pa.ArrowInvalid if a value does not fit its type.
    """
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(index)
        columns.append(column if column.type.equals(field.type, check_metadata=False) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
