"""The column types of a table that is made for the steps' output: what the format has, and holds every value of what is given.

Pure. Called where the table is made, and by `validate` before. Whether a value goes in is for the Spark application to see
(`checkpoint_work.steps.values.schema_cast`): one that would lose digits, such as a nanosecond in Iceberg, is refused as a row
and never cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

_MOST_DIGITS: Final = 38
#: Arrow hands no schema of more than 64 levels from one library to another, and people read none of half of that.
_MOST_NESTED: Final = 32
_CAST: Final = "cast it in a step"


class _Unfit(Exception):
    """A type that the format has not, nor anything that holds its values."""

    def __init__(self, path: str, given: pa.DataType, remedy: str) -> None:
        super().__init__(path)
        self.path, self.given, self.remedy = path, given, remedy


def iceberg_schema(given: pa.Schema) -> pa.Schema:
    """Return the schema in types that an Iceberg table of format 2 has. NeedsChange names every column that has none."""
    return _schema(given, _iceberg_type, "Iceberg")


def lance_schema(given: pa.Schema) -> pa.Schema:
    """Return the schema in types that a Lance dataset stores. NeedsChange names every column that has none."""
    return _schema(given, _lance_type, "Lance")


def finer_than_iceberg(given: pa.Schema) -> tuple[str, ...]:
    """Return the columns with times in nanoseconds, which Iceberg keeps to the microsecond."""
    return tuple(field.name for field in given if _has_nanoseconds(field.type))


def _schema(given: pa.Schema, of: Callable[[pa.DataType, str], pa.DataType], format_name: str) -> pa.Schema:
    fields, problems = [], list(_unfit_names(given, ""))
    for field in given:
        if _depth(field.type) > _MOST_NESTED:
            problems.append(f"the column {field.name!r} is nested more than {_MOST_NESTED} deep: flatten it, or leave it out")
            continue
        try:
            fields.append(field.with_type(of(field.type, field.name)))
        except _Unfit as unfit:
            what = f"the column {unfit.path!r} has the type {unfit.given}, which {format_name} does not have"
            problems.append(f"{what}: {unfit.remedy}, or leave it out")
    if problems:
        raise NeedsChange(reasons.OUTPUT_SCHEMA_WRONG, "; ".join(problems))
    return pa.schema(fields)


def _unfit_names(fields: Iterable[pa.Field], above: str) -> Iterator[str]:
    """Say of which names a table cannot be read: Spark takes two that differ by case only for one, and none has no name."""
    first: dict[str, str] = {}
    for field in fields:
        path = f"{above}{field.name}"
        if not field.name.strip():
            yield f"a column has no name ({path!r}; pandas writes its index so): give it one in a step, or leave it out"
        elif (other := first.setdefault(field.name.lower(), field.name)) != field.name:
            yield (
                f"the columns {above + other!r} and {path!r} differ by case only, so that Spark cannot read the table: "
                "rename one of them in a step, or leave one out"
            )
        elif _depth(field.type) <= _MOST_NESTED:
            yield from _unfit_names((field.type.field(number) for number in range(field.type.num_fields)), f"{path}.")


def _depth(given: pa.DataType) -> int:
    """Return how many levels of fields a type has, counted up to one too many."""
    depth, level = 0, [given]
    while depth <= _MOST_NESTED and (level := [each.field(n).type for each in level for n in range(each.num_fields)]):
        depth += 1
    return depth


def _iceberg_type(given: pa.DataType, path: str) -> pa.DataType:
    kind = pa.types
    if isinstance(given, pa.BaseExtensionType):
        return _extension(given, path)
    if kind.is_unsigned_integer(given):
        # Iceberg's integers have a sign.
        return {8: pa.int32(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}[given.bit_width]
    if kind.is_int8(given) or kind.is_int16(given):
        return pa.int32()
    if kind.is_float16(given):
        return pa.float32()
    if kind.is_date(given):
        return pa.date32()
    if kind.is_time(given):
        return pa.time64("us")
    if kind.is_timestamp(given):
        return pa.timestamp("us", None if given.tz is None else "UTC")  # the same instant: Iceberg keeps no zone
    if kind.is_duration(given):
        raise _Unfit(path, given, f"{_CAST}, for example to a number of seconds")
    return _other(given, path, _iceberg_type, lambda item, _size: pa.list_(item))


def _lance_type(given: pa.DataType, path: str) -> pa.DataType:
    kind = pa.types
    is_kept = kind.is_temporal(given) and not kind.is_interval(given)
    if is_kept or kind.is_integer(given) or kind.is_floating(given) or isinstance(given, pa.BaseExtensionType):
        return given
    if kind.is_decimal256(given):
        return given
    return _other(given, path, _lance_type, _lance_fixed_list)


def _lance_fixed_list(item: pa.Field, size: int) -> pa.DataType:
    """Lance writes lists of a fixed size of numbers (vectors) only."""
    is_number = pa.types.is_integer(item.type) or pa.types.is_floating(item.type)
    return pa.list_(item, size) if is_number else pa.list_(item)


def _other(
    given: pa.DataType,
    path: str,
    of: Callable[[pa.DataType, str], pa.DataType],
    fixed_list: Callable[[pa.Field, int], pa.DataType],
) -> pa.DataType:
    """Return what both formats have in common: plain values without encodings, decimals, and what nests."""
    kind = pa.types
    if kind.is_dictionary(given) or kind.is_run_end_encoded(given):
        return of(given.value_type, path)
    if kind.is_boolean(given) or kind.is_integer(given) or kind.is_floating(given) or kind.is_fixed_size_binary(given):
        return given
    if kind.is_string(given) or kind.is_large_string(given) or kind.is_binary(given) or kind.is_large_binary(given):
        return given
    if kind.is_string_view(given):
        return pa.string()
    if kind.is_binary_view(given):
        return pa.binary()
    if kind.is_decimal(given):
        return _decimal(given, path)
    if kind.is_map(given):
        key = given.key_field.with_type(of(given.key_type, f"{path}.key"))
        return pa.map_(key, given.item_field.with_type(of(given.item_type, f"{path}.value")))
    if kind.is_struct(given) and given.num_fields:
        return pa.struct([field.with_type(of(field.type, f"{path}.{field.name}")) for field in given])
    if kind.is_fixed_size_list(given) or kind.is_large_list(given) or kind.is_list(given):
        item = given.value_field.with_type(of(given.value_type, f"{path}.element"))
        if kind.is_fixed_size_list(given):
            return fixed_list(item, given.list_size)
        return pa.large_list(item) if kind.is_large_list(given) else pa.list_(item)
    if kind.is_null(given):
        raise _Unfit(path, given, "it is NULL in all of the first rows, so give it a type in a step, or by the output of one")
    raise _Unfit(path, given, _CAST)


def _decimal(given: pa.DataType, path: str) -> pa.DataType:
    digits, scale = given.precision - min(0, given.scale), max(0, given.scale)
    if digits > _MOST_DIGITS:
        raise _Unfit(path, given, f"{_CAST} to a decimal of at most {_MOST_DIGITS} digits")
    return pa.decimal128(digits, scale)


def _extension(given: pa.BaseExtensionType, path: str) -> pa.DataType:
    if isinstance(given, pa.UuidType):
        return given
    if isinstance(given, pa.JsonType):
        return pa.string()
    raise _Unfit(path, given, f"{_CAST}, for example to {given.storage_type}, in which its values are stored")


def _has_nanoseconds(given: pa.DataType) -> bool:
    if pa.types.is_timestamp(given) or pa.types.is_time64(given):
        return bool(given.unit == "ns")
    if pa.types.is_dictionary(given):
        return _has_nanoseconds(given.value_type)
    return any(_has_nanoseconds(given.field(number).type) for number in range(given.num_fields))
