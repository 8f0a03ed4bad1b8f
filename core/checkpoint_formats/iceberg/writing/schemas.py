"""The Arrow schema of rows that are to go into an Iceberg table, with the table's defaults for what they lack.

Source of the rules: the Iceberg table specification (default values): a writer that has no value for a field writes its
`write-default`.
"""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField, StructType

from checkpoint_formats.rows.defaults import with_default


def with_defaults(arrow: pa.Schema, schema: Schema) -> pa.Schema:
    """Return the Arrow schema of this Iceberg schema with the defaults of its fields."""
    fields = zip(arrow, schema.fields, strict=True)
    return pa.schema([_field(one, other) for one, other in fields], metadata=arrow.metadata)


def _field(arrow: pa.Field, field: NestedField) -> pa.Field:
    made = arrow.with_type(_type(arrow.type, field.field_type))
    default = field.write_default
    return made if default is None else with_default(made, _plain(default))


def _type(arrow: pa.DataType, kind: Any) -> pa.DataType:
    match kind:
        case StructType():
            return pa.struct([_field(one, other) for one, other in zip(arrow, kind.fields, strict=True)])
        case ListType():
            return pa.large_list(_field(arrow.value_field, kind.element_field))
        case MapType():
            return pa.map_(_field(arrow.key_field, kind.key_field), _field(arrow.item_field, kind.value_field))
        case _:
            return arrow


def _plain(value: Any) -> Any:
    return value.bytes if isinstance(value, uuid.UUID) else value
