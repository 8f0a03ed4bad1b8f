"""Types of columns: one for what several writers store alike, as records hold them, with a table's defaults."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from checkpoint_formats.rows.nested import nulls
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

#: Extension types whose values are the same in a plain type. Others stay as they are, and `unknown_extension` tells them.
_SAME_VALUES: Final = {
    "arrow.bool8": pa.bool_(),
    "arrow.json": pa.string(),
    "arrow.uuid": pa.binary(16),
    # Its own storage are places in other files. The reader of Lance datasets asks for the bytes.
    "lance.blob.v2": pa.binary(),
}


#: In the metadata of a column of a plain schema: the extension types that its values have in the source, with commas.
_CAME_AS: Final = b"checkpointed-write.extensions"


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
    """Return the schema in plain types, every column optional: a later file may have NULLs in it.

    Of their metadata the columns keep none; they get what `came_as` tells, which says nothing of how they are read.
    """
    return pa.schema([plain_field(field) for field in given])


def plain_field(given: pa.Field) -> pa.Field:
    """Return a column as `plain_schema` does."""
    names = ",".join(dict.fromkeys(_known_extensions(given.type)))
    return pa.field(given.name, plain_type(given.type), metadata={_CAME_AS: names.encode()} if names else None)


def _known_extensions(kind: pa.DataType) -> Iterator[str]:
    if isinstance(kind, pa.BaseExtensionType):
        yield from [kind.extension_name] if kind.extension_name in _SAME_VALUES else []
    elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        yield from _known_extensions(kind.value_type)
    else:
        for number in range(kind.num_fields):
            yield from _known_extensions(kind.field(number).type)


def came_as(field: pa.Field) -> tuple[str, ...]:
    """Return the names of the extension types that a column of a plain schema has, or has in it, in the source."""
    names = (field.metadata or {}).get(_CAME_AS, b"").decode()
    return tuple(names.split(",")) if names else ()


def type_of_new(field: pa.Field) -> pa.DataType:
    """Return the type by which a new table is to keep a column of a plain schema: what is a UUID in the source stays one."""
    return pa.uuid() if came_as(field) == ("arrow.uuid",) and field.type == pa.binary(16) else field.type


def schema_of_new(given: pa.Schema) -> pa.Schema:
    """Return the columns by which a new table is to keep those of a plain schema."""
    return pa.schema([pa.field(field.name, type_of_new(field), field.nullable) for field in given])


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


def encode_schema(schema: pa.Schema) -> str:
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def decode_schema(text: str) -> pa.Schema:
    """Return the schema of a record. NeedsChange(OutputSchemaWrong) if it is none: drivers put them."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise NeedsChange(reasons.OUTPUT_SCHEMA_WRONG, f"what the driver gave is no Arrow schema: {error}") from error


# Values that a table wants in columns which rows lack, kept with the Arrow fields of its schema.
#
# In a field's metadata, so that they come along to wherever rows are made to fit the table, at every depth of a struct.


_DEFAULT: Final = b"checkpointed-writes.default"


def with_default(field: pa.Field, value: Any) -> pa.Field:
    """Return the field with a default, a Python value of its type."""
    batch = pa.record_batch([pa.array([value], field.type)], names=["default"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return field.with_metadata({**(field.metadata or {}), _DEFAULT: sink.getvalue().to_pybytes()})


def has_default(field: pa.Field) -> bool:
    return field.metadata is not None and _DEFAULT in field.metadata


def left_out(field: pa.Field, rows: int) -> pa.Array:
    """Return the column of so many rows that lack it: of the default, or of NULL."""
    return pa.repeat(_scalar(field.metadata[_DEFAULT]), rows) if has_default(field) else nulls(rows, field.type)


@lru_cache(maxsize=256)
def _scalar(data: bytes) -> pa.Scalar:
    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        return stream.read_all().column(0)[0]
