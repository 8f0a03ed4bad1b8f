"""What a seal may say of an Iceberg file: checked before anything is claimed, as readers believe it for ever.

Metrics of a field that the schema has not, a bound that is no value of its type, or a lower bound above the upper one, make
readers of the whole table fail. (Trino makes a range of the two, and knows none from 2 to 1, or from NaN.) Whether what is said
is true cannot be told here: that takes the files.

Pure. Source of the rules: the Iceberg table specification (data files, binary single-value serialization). Written for speed: a
commit may have a million files, each with metrics of a hundred columns.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isnan
from typing import Any, Final

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from checkpoint_protocol.records import IcebergFile

#: More than any file that is staged has, also of values in lists; a million such files are still counted in 63 bits.
_MOST_ROWS: Final = 1 << 40
#: How a bound is read, where its type gives it a width. (A column that was an int is a long in the schema of the file.)
_READ: Final[Mapping[type[PrimitiveType], str]] = {
    BooleanType: "<b",
    IntegerType: "<i",
    DateType: "<i",
    FloatType: "<f",
    LongType: "<q",
    DoubleType: "<d",
    TimeType: "<q",
    TimestampType: "<q",
    TimestamptzType: "<q",
    TimestampNanoType: "<q",
    TimestamptzNanoType: "<q",
}
_UUID_BYTES: Final = 16
_MOST_DECIMAL_BYTES: Final = 16
#: Of a bound, or a partition value, whose length nothing else says. A manifest has one of each for each file.
_MOST_BOUND_BYTES: Final = 4 << 10
_MOST_PARTITION_BYTES: Final = 64 << 10
#: A record's pattern has made sure that it is base64.
_decode: Final = binascii.a2b_base64


#: Says what is wrong with the lower and the upper bound of a column, in base64: nothing (None) if they are values of its type,
#: and the lower one is not above the upper one.
_CheckBounds = Callable[[str | None, str | None], str | None]
_NO_VALUE: Final = "a bound of the column {!r} is no value of its type"
_TOO_LONG: Final = "a bound of the column {!r} is longer than those that are staged"
_OUT_OF_ORDER: Final = "the lower bound of the column {!r} is above the upper one"


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of the metrics of many files. `within_rows`: places of those with no more values than the file has rows."""

    names: tuple[str, ...]
    within_rows: tuple[int, ...]
    check_bounds: tuple[_CheckBounds, ...]


@dataclass(slots=True)
class FileChecks:
    """For files that were staged for these schemas, by their ids. `most_bound_bytes`: of fields of them, by both ids."""

    schemas: Mapping[int, Schema]
    most_bound_bytes: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    _columns: dict[tuple[int, tuple[int, ...]], _Columns | str] = field(default_factory=dict)

    def problem_of(self, file: IcebergFile) -> str | None:
        """Name what a staged file says and cannot be so; None if all of it can."""
        if not 0 < file.rows <= _MOST_ROWS:
            return f"it has {file.rows} rows"
        if not file.size_bytes:
            return "it has no bytes"
        last = -1
        for offset in file.split_offsets:
            if not last < offset < file.size_bytes:
                return f"the split offset {offset} is not between the one before and its size, {file.size_bytes} bytes"
            last = offset
        if any(value is not None and _length(value) > _MOST_PARTITION_BYTES for value in file.partition):
            return f"it has a partition value of more than {_MOST_PARTITION_BYTES:,} bytes"
        if file.schema_id not in self.schemas:
            return f"it was staged for the unknown schema {file.schema_id}"
        return self._problem_of_metrics(file) if file.metrics else None

    def _problem_of_metrics(self, file: IcebergFile) -> str | None:
        field_ids, sizes, values, nulls, nans, lowers, uppers = zip(*file.metrics, strict=True)
        key = (file.schema_id, field_ids)
        columns = self._columns.get(key)
        if columns is None:
            columns = self._columns[key] = _columns_of(
                self.schemas[file.schema_id], field_ids, self.most_bound_bytes.get(file.schema_id, {})
            )
        if isinstance(columns, str):
            return columns
        rows = file.rows
        if _most(sizes) > file.size_bytes:
            place = sizes.index(_most(sizes))
            return f"the column {columns.names[place]!r} has {sizes[place]} of its {file.size_bytes} bytes"
        if (most := _most(values)) > rows:  # which a list may have
            for place in columns.within_rows:
                if values[place] is not None and values[place] > rows:
                    return f"the column {columns.names[place]!r} has {values[place]} values in {rows} rows"
            if most > _MOST_ROWS:
                return f"the column {columns.names[values.index(most)]!r} has {most} values"
        for counts in (nulls, nans):
            if not any(counts):
                continue
            for place, count in enumerate(counts):
                if count and values[place] is not None and count > values[place]:
                    return f"the column {columns.names[place]!r} has {count} values of {values[place]} that are NULL or NaN"
        for place, (check, lower, upper) in enumerate(zip(columns.check_bounds, lowers, uppers, strict=True)):
            if (problem := check(lower, upper)) is not None:
                return problem.format(columns.names[place])
        return None


def _most(counts: tuple[int | None, ...]) -> int:
    return max(filter(None, counts), default=0)


def _columns_of(schema: Schema, field_ids: tuple[int, ...], most_bytes: Mapping[int, int]) -> _Columns | str:
    if len(set(field_ids)) < len(field_ids):
        return "it has metrics of a column twice"
    by_id = index_by_id(schema)
    repeated = _repeated(schema)
    checks: list[_CheckBounds] = []
    for field_id in field_ids:
        known = by_id.get(field_id)
        if known is None:
            return f"it has metrics of the field id {field_id}, which schema {schema.schema_id} does not have"
        checks.append(_check_of(known.field_type, most_bytes.get(field_id, _MOST_BOUND_BYTES)))
    return _Columns(
        names=tuple(by_id[field_id].name for field_id in field_ids),
        within_rows=tuple(place for place, field_id in enumerate(field_ids) if field_id not in repeated),
        check_bounds=tuple(checks),
    )


def _repeated(schema: Schema) -> set[int]:
    """Return the ids of fields below lists and maps, of which a row may have several values."""
    found: set[int] = set()

    def visit(given: Any, is_repeated: bool) -> None:
        parts: tuple[NestedField, ...] = ()
        match given:
            case StructType():
                parts = given.fields
            case ListType():
                parts, is_repeated = (given.element_field,), True
            case MapType():
                parts, is_repeated = (given.key_field, given.value_field), True
        for part in parts:
            if is_repeated:
                found.add(part.field_id)
            visit(part.field_type, is_repeated)

    visit(schema.as_struct(), False)
    return found


def _check_of(given: Any, most_bytes: int) -> _CheckBounds:
    match given:
        case StringType():
            return partial(_check_bytes, most_bytes, _is_text)  # the order of code points
        case BinaryType():
            return partial(_check_bytes, most_bytes, lambda data: True)
        case FixedType():
            return partial(_check_bytes, most_bytes, lambda data: 0 < len(data) <= given.root)
        case UUIDType():
            return _check_uuids
        case DecimalType():
            return _check_decimals
        case FloatType() | DoubleType():
            return partial(_check_floats, struct.Struct(_READ[type(given)]).unpack)
        case _ if (read := _READ.get(type(given))) is not None:
            return partial(_check_numbers, struct.Struct(read).unpack)
        case _:
            return lambda lower, upper: None if lower is upper is None else _NO_VALUE


_Unpack = Callable[[bytes], tuple[Any, ...]]


def _check_numbers(unpack: _Unpack, lower: str | None, upper: str | None) -> str | None:
    try:
        low = unpack(_decode(lower)) if lower is not None else None
        high = unpack(_decode(upper)) if upper is not None else None
    except struct.error:
        return _NO_VALUE
    return _OUT_OF_ORDER if low is not None and high is not None and low > high else None


def _check_floats(unpack: _Unpack, lower: str | None, upper: str | None) -> str | None:
    try:
        numbers = [unpack(_decode(bound))[0] for bound in (lower, upper) if bound is not None]
    except struct.error:
        return _NO_VALUE
    if any(map(isnan, numbers)):
        return _NO_VALUE
    return _OUT_OF_ORDER if numbers and numbers[0] > numbers[-1] else None


def _check_decimals(lower: str | None, upper: str | None) -> str | None:
    bounds = [_decode(bound) for bound in (lower, upper) if bound is not None]
    if not all(0 < len(bound) <= _MOST_DECIMAL_BYTES for bound in bounds):
        return _NO_VALUE
    numbers = [int.from_bytes(bound, "big", signed=True) for bound in bounds]
    return _OUT_OF_ORDER if numbers and numbers[0] > numbers[-1] else None


def _check_bytes(most_bytes: int, is_value: Callable[[bytes], bool], lower: str | None, upper: str | None) -> str | None:
    if (lower is not None and _length(lower) > most_bytes) or (upper is not None and _length(upper) > most_bytes):
        return _TOO_LONG
    low = _decode(lower) if lower is not None else None
    high = _decode(upper) if upper is not None else None
    if (low is not None and not is_value(low)) or (high is not None and not is_value(high)):
        return _NO_VALUE
    return _OUT_OF_ORDER if low is not None and high is not None and low > high else None


def _check_uuids(lower: str | None, upper: str | None) -> str | None:
    """Readers do not agree on their order."""
    return None if all(bound is None or len(_decode(bound)) == _UUID_BYTES for bound in (lower, upper)) else _NO_VALUE


def _length(encoded: str) -> int:
    """Return how many bytes these in base64 are."""
    return len(encoded) // 4 * 3 - encoded.count("=", -2)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except ValueError:
        return False
    return True
