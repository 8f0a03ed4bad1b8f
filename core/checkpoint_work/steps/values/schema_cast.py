"""Make the steps' output fit the table: by column name, with casts that cannot change what a value means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_formats.rows.nested import entries, flat, is_type, number_of, places, with_entries, with_fields, with_values
from checkpoint_formats.rows.plain_types import has_default, left_out
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_work.steps.values.below_null import null_where_required, requires_values, without_null_below


class ValueMismatch(NeedsChange):
    """The columns fit the table, and a value in one of them does not: the fault of a row, not of all."""


#: What to do about a value that does not fit a column whose type the first rows decided.
DECLARE: Final = (
    "correct the step, or declare its output (output: {name: type}); a table that sink.create has made keeps its types, so drop "
    "it then, and start a new write"
)
_MOST_SHOWN: Final = 100

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


def encoded(given: pa.DataType) -> pa.DataType | None:
    """Return the type of the values, if the given one only says how they are stored or named."""
    if isinstance(given, pa.UuidType | pa.JsonType):
        storage: pa.DataType = given.storage_type
        return storage
    return given.value_type if pa.types.is_dictionary(given) or pa.types.is_run_end_encoded(given) else None


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a safe cast keeps the meaning: the same kind at every depth, or a widening one."""
    if given == wanted:
        return True
    if (values := encoded(given)) is not None:
        return _fits(values, wanted)
    if isinstance(wanted, pa.UuidType):  # which files and Spark have as its sixteen bytes
        return _kind(given) in ("binary", "null")
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
        names = {field.name for field in wanted}
        return all(field.name in names and _fits(field.type, wanted.field(field.name).type) for field in given)
    return True


def fit_array(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the same values as another type; ArrowInvalid if one of them would not be the same, or types do not fit.

    Fields that a struct lacks have the table's default, or are NULL. Stricter than Arrow's safe cast, which makes infinities of
    floats that are too large.
    """
    if not _fits(array.type, wanted):
        raise pa.ArrowInvalid(f"{array.type} is not {wanted}")
    fitted = _converted(array, wanted)
    if (missing := null_where_required(fitted)) is not None:
        raise pa.ArrowInvalid(f"NULL in {missing}, which is required")
    return without_null_below(fitted)


def incompatibility_of(array: pa.Array, wanted: pa.DataType, of_row: Callable[[int], str] | None = None) -> str:
    """Return the first value that does not fit, for a message, with its row as `of_row` names it; empty if it cannot be told."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            fit_array(array.slice(low, middle - low), wanted)
        except pa.ArrowException:
            high = middle
        else:
            low = middle
    try:
        value = array[low].as_py() if low < high else None
    except (ValueError, OverflowError):  # Python cannot hold it
        value = array[low]
    return said_of(value, of_row(low) if of_row is not None else None) if low < high else ""


def said_of(value: object, where: str | None) -> str:
    """Say which value does not fit, and in which row."""
    try:
        text = repr(value)
    except Exception as error:  # an object of the user's
        text = f"({type(value).__name__}, whose repr raised {type(error).__name__})"
    text = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
    return f" and has {text}" if where is None else f" and has {text} in {where}"


def _converted(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    given = array.type
    if is_type(given, wanted):
        return array
    if pa.types.is_null(given):
        return pc.cast(array, wanted)
    if isinstance(given, pa.UuidType | pa.JsonType):
        return _converted(array.storage, wanted)
    if isinstance(wanted, pa.UuidType):
        return pa.ExtensionArray.from_storage(wanted, _converted(array, wanted.storage_type))
    if pa.types.is_dictionary(given):
        return _converted(array.dictionary_decode(), wanted)
    if pa.types.is_run_end_encoded(given):
        return _converted(pc.run_end_decode(array), wanted)
    if pa.types.is_struct(given):
        return with_fields(array, [_field(array, field) for field in wanted], wanted)
    if _kind(given) == "list" and not pa.types.is_fixed_size_list(wanted):
        return with_values(array, _converted(flat(array), wanted.value_type), wanted)
    if pa.types.is_fixed_size_list(given) and given.list_size == wanted.list_size:
        return with_values(array, _converted(places(array), wanted.value_type), wanted)
    if _kind(given) == "list" and not is_type(given.value_type, wanted.value_type):
        return pc.cast(_converted(array, pa.list_(wanted.value_field)), wanted)
    if pa.types.is_map(given):
        keys, items = entries(array)
        return with_entries(array, _converted(keys, wanted.key_type), _converted(items, wanted.item_type), wanted)
    if pa.types.is_integer(given) and pa.types.is_decimal(wanted):
        # Arrow asks for room for every number of the integer type; what matters is whether these fit.
        array = pc.cast(array, pa.decimal256(min(76, 20 + wanted.scale), wanted.scale))
    fitted = pc.cast(array, wanted, safe=True)
    if pa.types.is_floating(wanted) and pa.types.is_floating(given):
        overflows = pc.and_(pc.is_inf(fitted), pc.invert(pc.is_inf(array)))
        if pc.any(overflows).as_py():
            raise pa.ArrowInvalid(f"a value is too large for {wanted}")
    return fitted


def _field(structs: pa.Array, wanted: pa.Field) -> pa.Array:
    number = number_of(structs.type, wanted.name)
    if number is None:
        return left_out(wanted, len(structs))
    return _converted(pc.struct_field(structs, [number]), wanted.type)


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
                "drop it in a step (or by source.columns, as long as nothing is sealed), or add it to the table",
            )
        expected = wanted.field(field.name).type
        if not _fits(field.type, expected):
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"the steps give {field.type} in the column {field.name!r}, and the table has {expected}; cast it in a step",
            )
    for field in wanted:
        if not field.nullable and field.name not in given.names and not has_default(field):
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"the table requires the column {field.name!r}; the steps do not give it (they give {', '.join(given.names)})",
            )


def fit(batch: pa.RecordBatch, wanted: pa.Schema, of_row: Callable[[int], str] | None = None) -> pa.RecordBatch:
    """Return the batch with exactly the wanted columns and types; columns that it lacks have the table's default, or are NULL.

    `of_row` names a row of the batch, for messages.

    NeedsChange(OutputSchemaWrong) names the column; ValueMismatch, which is one, where it is a value that does not fit.
    """
    if batch.schema.equals(wanted) and all(
        (field.nullable or not column.null_count) and not requires_values(field.type)
        for field, column in zip(wanted, batch.columns, strict=True)
    ):
        return batch
    check_columns(batch.schema, wanted)
    arrays: list[pa.Array] = []
    for field in wanted:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            arrays.append(left_out(field, batch.num_rows))
            continue
        array = batch.column(index)
        if array.type != field.type or pa.types.is_nested(field.type):
            try:
                array = fit_array(array, field.type)
            except pa.ArrowException as error:
                raise ValueMismatch(
                    reasons.OUTPUT_SCHEMA_WRONG,
                    f"the column {field.name!r} needs values of the table's type {field.type}"
                    f"{incompatibility_of(array, field.type, of_row)}: {error}; {DECLARE}",
                ) from error
        if not field.nullable and array.null_count:
            where = "" if of_row is None else f" in {of_row(array.is_null().index(True).as_py())}"
            raise ValueMismatch(
                reasons.OUTPUT_SCHEMA_WRONG, f"the steps give NULL in the column {field.name!r}{where}, which the table requires"
            )
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
