"""Make the steps' output fit the table: by column name, with casts that cannot change what a value means."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

_WIDENING = {("int", "float"), ("int", "decimal"), ("date", "timestamp")}


def _kind(kind: pa.DataType) -> str:
    checks = (
        ("null", pa.types.is_null),
        ("bool", pa.types.is_boolean),
        ("int", pa.types.is_integer),
        ("float", pa.types.is_floating),
        ("decimal", pa.types.is_decimal),
        ("date", pa.types.is_date),
        ("timestamptz", lambda t: pa.types.is_timestamp(t) and t.tz is not None),
        ("timestamp", pa.types.is_timestamp),
        ("time", pa.types.is_time),
        ("string", lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t)),
        (
            "binary",
            lambda t: (
                pa.types.is_binary(t)
                or pa.types.is_large_binary(t)
                or pa.types.is_fixed_size_binary(t)
                or pa.types.is_binary_view(t)
            ),
        ),
        ("list", lambda t: pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t)),
        ("map", pa.types.is_map),
        ("struct", pa.types.is_struct),
    )
    return next((name for name, is_kind in checks if is_kind(kind)), str(kind))


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a safe cast keeps the meaning: the same kind at every depth, or a widening one."""
    if given == wanted:
        return True
    if pa.types.is_dictionary(given):
        return _fits(given.value_type, wanted)
    kinds = (_kind(given), _kind(wanted))
    if kinds[0] == "null" or kinds in _WIDENING:
        return True
    if kinds[0] != kinds[1]:
        return False
    if kinds[0] == "list":
        return _fits(given.value_type, wanted.value_type)
    if kinds[0] == "map":
        return _fits(given.key_type, wanted.key_type) and _fits(given.item_type, wanted.item_type)
    if kinds[0] == "struct":
        names = [field.name for field in given]
        return names == [field.name for field in wanted] and all(
            _fits(given.field(i).type, wanted.field(i).type) for i in range(given.num_fields)
        )
    return True


def check_columns(given: pa.Schema, wanted: pa.Schema) -> None:
    """Refuse output whose columns cannot go into the table. Said once, before the first batch, and again for each."""
    duplicates = [name for name in given.names if given.names.count(name) > 1]
    if duplicates:
        raise NeedsChange(reasons.OUTPUT_SCHEMA_WRONG, f"the steps give the column {duplicates[0]!r} more than once")
    for field in given:
        if field.name not in wanted.names:
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"the steps give the column {field.name!r}, which the table does not have (it has {', '.join(wanted.names)}); "
                "drop it in a step (or by source.columns), or add it to the table",
            )
        expected = wanted.field(field.name).type
        if not _fits(field.type, expected):
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"the steps give {field.type} in the column {field.name!r}, and the table has {expected}; cast it in a step",
            )
    for field in wanted:
        if not field.nullable and field.name not in given.names:
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"the table requires the column {field.name!r}; the steps do not give it (they give {', '.join(given.names)})",
            )


def fit(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly the wanted columns and types; optional columns that it lacks are NULL.

    NeedsChange(OutputSchemaWrong) names the column, and the value where one does not fit.
    """
    if batch.schema.equals(wanted) and all(
        field.nullable or not column.null_count for field, column in zip(wanted, batch.columns, strict=True)
    ):
        return batch
    check_columns(batch.schema, wanted)
    arrays: list[pa.Array] = []
    for field in wanted:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        array = batch.column(index)
        if array.type != field.type:
            try:
                array = pc.cast(array, field.type, safe=True)
            except pa.ArrowException as error:
                raise NeedsChange(
                    reasons.OUTPUT_SCHEMA_WRONG,
                    f"a value in the column {field.name!r} does not fit the table's type {field.type}: {error}",
                ) from error
        if not field.nullable and array.null_count:
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG, f"the steps give NULL in the column {field.name!r}, which the table requires"
            )
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
