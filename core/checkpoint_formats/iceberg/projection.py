"""The columns of a data file as those of the table: fields are found by their ids, at every depth.

Source of the rules: the Iceberg table specification (column projection, schema evolution, default values).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, promote
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from checkpoint_formats.rows.nested import entries, flat, nulls, number_of, with_entries, with_fields, with_values

#: The names by which files have the zone of times with one.
_UTC: Final = frozenset({"UTC", "+00:00", "Etc/UTC", "Z"})


def projected(batch: pa.RecordBatch, wanted: Schema, there: Schema, constants: dict[int, Any]) -> pa.RecordBatch:
    """Return the batch, which has the schema `there`, with the wanted columns. `constants`: of columns that it lacks, by id.

    ResolveError for a required column that is not there, or whose values do not become those of the wanted type; ValueError for a
    batch that is not of the schema.
    """
    made = _Projection(constants).struct(batch.to_struct_array(), wanted.as_struct(), there.as_struct())
    return pa.RecordBatch.from_struct_array(made)


@dataclass(frozen=True, slots=True)
class _Projection:
    constants: dict[int, Any]

    def struct(self, structs: pa.Array, wanted: StructType, there: StructType) -> pa.Array:
        known = {field.field_id: field for field in there.fields}
        children = [
            self._field(structs, field, found)
            if (found := known.get(field.field_id)) is not None
            else self._missing(field, len(structs))
            for field in wanted.fields
        ]
        return with_fields(structs, children, pa.struct(map(_arrow_field, wanted.fields, children)))

    def _field(self, structs: pa.Array, wanted: NestedField, there: NestedField) -> pa.Array:
        if (number := number_of(structs.type, there.name)) is None:
            raise ValueError(f"it has no field {there.name!r}")
        # What lies below a NULL struct stays: a NULL in its place would be refused in a required field.
        return self._values(structs.field(number), wanted.field_type, there.field_type)

    def _missing(self, field: NestedField, rows: int) -> pa.Array:
        kind = schema_to_pyarrow(field.field_type, include_field_ids=False)
        value = self.constants.get(field.field_id, field.initial_default)
        if value is not None:
            return pa.repeat(pa.scalar(value, kind), rows)
        if field.required:
            raise ResolveError(f"Field is required, and could not be found in the file: {field}")
        return nulls(rows, kind)

    def _values(self, values: pa.Array, wanted: IcebergType, there: IcebergType) -> pa.Array:
        match wanted, there:
            case StructType(), StructType():
                return self.struct(values, wanted, there)
            case ListType(), ListType():
                items = self._values(flat(values), wanted.element_type, there.element_type)
                item = _arrow_field(wanted.element_field, items)
                return with_values(values, items, pa.large_list(item) if pa.types.is_large_list(values.type) else pa.list_(item))
            case MapType(), MapType():
                keys, items = entries(values)
                keys = self._values(keys, wanted.key_type, there.key_type)
                items = self._values(items, wanted.value_type, there.value_type)
                kind = pa.map_(_arrow_field(wanted.key_field, keys), _arrow_field(wanted.value_field, items))
                return with_entries(values, keys, items, kind)
        return _promoted(values, wanted, there)


def _arrow_field(field: NestedField, values: pa.Array) -> pa.Field:
    return pa.field(field.name, values.type, field.optional)


def _promoted(values: pa.Array, wanted: IcebergType, there: IcebergType) -> pa.Array:
    """Return plain values in the type of the table. ResolveError if a table may not change the one type to the other."""
    kind, given = schema_to_pyarrow(wanted, include_field_ids=False), values.type
    if given == kind:
        return values
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(given):
        if given.tz is not None and given.tz not in _UTC:
            raise ResolveError(f"Cannot read {given} as {wanted}")
        # Files of other writers have times in other units. A table in microseconds has no place for nanoseconds.
        return values.cast(kind, safe=kind.unit != "us" or given.unit != "ns")
    is_wider = (pa.types.is_integer(kind) and pa.types.is_integer(given)) or (
        pa.types.is_floating(kind) and pa.types.is_floating(given)
    )
    if is_wider and given.bit_width < kind.bit_width:
        return values.cast(kind)
    return values if wanted == there else values.cast(schema_to_pyarrow(promote(there, wanted), include_field_ids=False))
