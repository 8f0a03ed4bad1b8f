"""What a seal may say of an Iceberg file: checked before anything is claimed, as readers believe it for ever.

Metrics of a field that the schema has not, or a bound that is no value of its type, make readers of the whole table fail. Whether
what is said is true cannot be told here: that takes the files.

Pure. Source of the rules: the Iceberg table specification (data files, binary single-value serialization). Written for speed: a
commit may have a million files, each with metrics of a hundred columns.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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

#: More than any file that is staged has; a million such files are still counted in 63 bits.
_MOST_ROWS: Final = 1 << 40
#: How many bytes a bound has, where that is given by its type. (A column that was an int is a long in the schema of the file.)
_WIDTHS: Final[Mapping[type[PrimitiveType], int]] = {
    BooleanType: 1,
    IntegerType: 4,
    DateType: 4,
    FloatType: 4,
    LongType: 8,
    DoubleType: 8,
    TimeType: 8,
    TimestampType: 8,
    TimestamptzType: 8,
    TimestampNanoType: 8,
    TimestamptzNanoType: 8,
    UUIDType: 16,
}
#: The length of so many bytes in base64, and how it ends.
_IN_BASE64: Final = {width: ((width + 2) // 3 * 4, "=" * (-width % 3)) for width in (1, 4, 8, 16)}
_MOST_DECIMAL_BYTES: Final = 16

#: Says whether a text in base64 is a bound of a type.
_IsBound = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of the metrics of many files. `within_rows`: places of those with no more values than the file has rows."""

    names: tuple[str, ...]
    within_rows: tuple[int, ...]
    is_bound: tuple[_IsBound, ...]


@dataclass(slots=True)
class FileChecks:
    """For files that were staged for these schemas, by their ids."""

    schemas: Mapping[int, Schema]
    _columns: dict[tuple[int, tuple[int, ...]], _Columns | str] = field(default_factory=dict)

    def problem_of(self, file: IcebergFile) -> str | None:
        """Say what of a staged file cannot be so; None if all of it can."""
        if not 0 < file.rows <= _MOST_ROWS:
            return f"it has {file.rows} rows"
        if not file.size_bytes:
            return "it has no bytes"
        last = -1
        for offset in file.split_offsets:
            if not last < offset < file.size_bytes:
                return f"the split offset {offset} is not between the one before and its size, {file.size_bytes} bytes"
            last = offset
        if file.schema_id not in self.schemas:
            return f"it was staged for the unknown schema {file.schema_id}"
        return self._problem_of_metrics(file) if file.metrics else None

    def _problem_of_metrics(self, file: IcebergFile) -> str | None:
        field_ids, _, values, nulls, nans, lowers, uppers = zip(*file.metrics, strict=True)
        key = (file.schema_id, field_ids)
        columns = self._columns.get(key)
        if columns is None:
            columns = self._columns[key] = _columns_of(self.schemas[file.schema_id], field_ids)
        if isinstance(columns, str):
            return columns
        rows = file.rows
        for place in columns.within_rows:
            if values[place] is not None and values[place] > rows:
                return f"the column {columns.names[place]!r} has {values[place]} values in {rows} rows"
        for counts in (nulls, nans):
            for place, count in enumerate(counts):
                if count and values[place] is not None and count > values[place]:
                    return f"the column {columns.names[place]!r} has {count} values of {values[place]} that are NULL or NaN"
        for bounds in (lowers, uppers):
            for place, bound in enumerate(bounds):
                if bound is not None and not columns.is_bound[place](bound):
                    return f"a bound of the column {columns.names[place]!r} is no value of its type"
        return None


def _columns_of(schema: Schema, field_ids: tuple[int, ...]) -> _Columns | str:
    if len(set(field_ids)) < len(field_ids):
        return "it has metrics of a column twice"
    by_id = index_by_id(schema)
    repeated = _repeated(schema)
    checks: list[_IsBound] = []
    for field_id in field_ids:
        known = by_id.get(field_id)
        if known is None:
            return f"it has metrics of the field id {field_id}, which schema {schema.schema_id} has not"
        checks.append(_check_of(known.field_type))
    return _Columns(
        names=tuple(by_id[field_id].name for field_id in field_ids),
        within_rows=tuple(place for place, field_id in enumerate(field_ids) if field_id not in repeated),
        is_bound=tuple(checks),
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


def _check_of(given: Any) -> _IsBound:
    match given:
        case StringType():
            return _is_text
        case BinaryType():
            return lambda text: True
        case FixedType():
            return lambda text: 0 < _bytes_of(text) <= given.root
        case DecimalType():
            return lambda text: 0 < _bytes_of(text) <= _MOST_DECIMAL_BYTES
        case _ if (width := _WIDTHS.get(type(given))) is not None:
            length, end = _IN_BASE64[width]
            return lambda text: len(text) == length and text[length - len(end) :] == end and text[-len(end) - 1] != "="
        case _:
            return lambda text: False


def _is_text(text: str) -> bool:
    try:
        binascii.a2b_base64(text).decode()
    except ValueError:
        return False
    return True


def _bytes_of(text: str) -> int:
    return len(text) // 4 * 3 - text.count("=", -2)
