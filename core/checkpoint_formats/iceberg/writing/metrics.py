"""What is said of a data file, for manifests: counts and bounds by field id, in the modes that the table's properties name.

Bounds are shorter than a mode would have them where it says `full`, or `truncate` of very much.

Sources of the rules: Iceberg's table properties (`write.metadata.metrics.*`) and its Java class MetricsConfig; the Iceberg table
specification (appendix D on single-value serialization).
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import (
    BinaryType,
    DateType,
    FixedType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from checkpoint_protocol.records import FieldMetrics

DEFAULT_MODE: Final = "write.metadata.metrics.default"
COLUMN_MODE: Final = "write.metadata.metrics.column."
MOST_COLUMNS: Final = "write.metadata.metrics.max-inferred-column-defaults"
_MODE: Final = re.compile(r"none|counts|full|truncate\([1-9][0-9]{0,8}\)", re.IGNORECASE)
_USUAL: Final = "truncate(16)"
_USUAL_MOST_COLUMNS: Final = 100
_COUNTS: Final = MetricsMode(MetricModeTypes.COUNTS)
_TIMES: Final = (DateType, TimeType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_USUAL_CHARACTERS: Final = 16
#: Of text, or bytes of a binary value, in a bound, whatever the mode says: a bound of megabytes, in each of a million entries, is
#: more than readers have memory for. A value that is cut off is still a bound.
_MOST_CHARACTERS: Final = 1024
_CHARACTER_BYTES: Final = 4


def modes_of(schema: Schema, order: SortOrder | None, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the modes as properties that name each column which has not the default. ValueError names a property that is wrong.

    As in Java: a table of many columns has metrics of the first hundred only, unless a default is set, and columns that the
    table is sorted by have bounds unless they have a mode of their own.
    """
    modes: dict[str, str] = {}
    if DEFAULT_MODE in properties:
        default = _checked(DEFAULT_MODE, properties[DEFAULT_MODE])
    elif len(schema.field_ids) <= (most := _most_columns(properties)):
        default = _USUAL
    else:
        default = "none"
        modes = {schema.find_column_name(field_id) or "": _USUAL for field_id in _limited(schema.as_struct(), most)}
    for field in order.fields if order is not None else ():
        name = schema.find_column_name(field.source_id)
        if name is not None and field.transform.preserves_order:
            modes[name] = default if default not in ("none", "counts") else _USUAL
    own = {name.removeprefix(COLUMN_MODE): (name, mode) for name, mode in properties.items() if name.startswith(COLUMN_MODE)}
    modes.update({column: _checked(name, mode) for column, (name, mode) in own.items()})
    return {DEFAULT_MODE: default, **{f"{COLUMN_MODE}{column}": mode for column, mode in modes.items()}}


def _checked(name: str, mode: str) -> str:
    if not _MODE.fullmatch(mode.strip()):
        raise ValueError(f"{name} is {mode!r}, and none, counts, truncate(16) or full is expected")
    return mode.strip().lower()


def _most_columns(properties: Mapping[str, str]) -> int:
    given = properties.get(MOST_COLUMNS, str(_USUAL_MOST_COLUMNS))
    if not given.isdecimal():
        raise ValueError(f"{MOST_COLUMNS} is {given!r}, and a number is expected")
    return int(given)


def _limited(given: StructType, most: int) -> Iterator[int]:
    """Give the ids of so many columns: of each struct its plain columns first, then those of the structs in it."""
    plain = [field.field_id for field in given.fields if field.field_type.is_primitive]
    yield from plain[:most]
    most -= len(plain)
    for field in given.fields:
        if most <= 0:
            return
        if isinstance(field.field_type, StructType):
            inner = list(_limited(field.field_type, most))
            yield from inner
            most -= len(inner)


def most_bound_bytes(schema: Schema, modes: Mapping[str, str]) -> dict[int, int]:
    """Return how long the bounds of files that are staged in these modes may be, by the ids of the fields with bounds of any
    length. Those of columns that have none by their mode may be as long as usual ones.
    """
    found: dict[int, int] = {}
    for field_id, column in _plan_of(schema, modes).items():
        characters = column.mode.length or _USUAL_CHARACTERS
        if isinstance(column.iceberg_type, StringType):
            found[field_id] = characters * _CHARACTER_BYTES
        elif isinstance(column.iceberg_type, BinaryType):
            found[field_id] = characters
        elif isinstance(column.iceberg_type, FixedType):
            found[field_id] = min(column.iceberg_type.root, _MOST_CHARACTERS)
    return found


def _plan_of(schema: Schema, modes: Mapping[str, str]) -> dict[int, StatisticsCollector]:
    """Return what is collected of each field, with bounds that are cut off where the mode would have longer ones."""
    plan = compute_statistics_plan(schema, dict(modes))
    for field_id, column in plan.items():
        kind, mode = column.iceberg_type, column.mode
        if mode.type not in (MetricModeTypes.FULL, MetricModeTypes.TRUNCATE):
            continue
        if isinstance(kind, StringType | BinaryType) and (mode.length or _MOST_CHARACTERS + 1) > _MOST_CHARACTERS:
            plan[field_id] = replace(column, mode=MetricsMode(MetricModeTypes.TRUNCATE, _MOST_CHARACTERS))
        elif isinstance(kind, FixedType) and kind.root > _MOST_CHARACTERS:  # which is not cut off
            plan[field_id] = replace(column, mode=MetricsMode(MetricModeTypes.COUNTS))
    return plan


class FileStatistics:
    """Reads them off the footers of data files of one schema. A bound that cannot be told is left out, and fails no file."""

    def __init__(self, schema: Schema, modes: Mapping[str, str]) -> None:
        self._plan = _plan_of(schema, modes)
        self._ids_by_path = parquet_path_to_id_mapping(schema)
        self._bounded = {
            field_id
            for field_id, column in self._plan.items()
            if column.mode.type in (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL)
        }
        self._times = {field_id for field_id in self._bounded if isinstance(self._plan[field_id].iceberg_type, _TIMES)}

    @property
    def paths(self) -> tuple[str, ...]:
        """Of the leaves of the schema, as Parquet has them."""
        return tuple(self._ids_by_path)

    def of(self, footer: pq.FileMetaData) -> tuple[int, tuple[FieldMetrics, ...], tuple[int, ...]]:
        """Return a file's rows, its metrics and where its row groups begin."""
        known = self._bounded - self._without_bounds(footer)
        asked = known - self._times
        try:
            found = self._read(footer, asked)
        except Exception:  # whatever a statistic is: it fails no row
            found = self._read(footer, asked - _untold(lambda columns: self._read(footer, columns), asked))
        for field_id, lower, upper in self._bounds_of_times(footer, known & self._times):
            found["lower_bounds"][field_id], found["upper_bounds"][field_id] = lower, upper
        return found["record_count"], _metrics(found), tuple(found["split_offsets"] or ())

    def _read(self, footer: pq.FileMetaData, bounded: Collection[int]) -> dict[str, Any]:
        """Return what pyiceberg finds: of these columns with bounds, of the others without."""
        plan = {
            field_id: replace(column, mode=_COUNTS) if field_id in self._bounded and field_id not in bounded else column
            for field_id, column in self._plan.items()
        }
        found: dict[str, Any] = data_file_statistics_from_parquet_metadata(footer, plan, self._ids_by_path).to_serialized_dict()
        return found

    def _columns(self, footer: pq.FileMetaData) -> Iterator[tuple[int, list[pq.ColumnChunkMetaData]]]:
        """Give the columns that are to have bounds, each with its parts in the row groups."""
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        for place in range(footer.num_columns if groups else 0):
            field_id = self._ids_by_path[groups[0].column(place).path_in_schema]
            if field_id in self._bounded:
                yield field_id, [group.column(place) for group in groups]

    def _without_bounds(self, footer: pq.FileMetaData) -> set[int]:
        """Return the columns of which a row group has values and does not say which: Arrow leaves out texts of 4 KiB and more."""
        return {field_id for field_id, parts in self._columns(footer) if not all(map(self._says_all, parts))}

    def _says_all(self, part: pq.ColumnChunkMetaData) -> bool:
        says = part.statistics
        if says is None:
            return bool(part.num_values == 0)
        # A NaN is in no bound.
        return bool(says.has_min_max or says.num_values == 0 or says.physical_type in ("FLOAT", "DOUBLE"))

    def _bounds_of_times(self, footer: pq.FileMetaData, bounded: Collection[int]) -> Iterator[tuple[int, bytes, bytes]]:
        """Give bounds as Parquet has them, which is as Iceberg has them. Python has no year 10000, no 24:00, no nanoseconds."""
        for field_id, parts in self._columns(footer):
            found = [part.statistics for part in parts if part.statistics is not None and part.statistics.has_min_max]
            if field_id in bounded and found:
                form = "<i" if isinstance(self._plan[field_id].iceberg_type, DateType) else "<q"
                lower, upper = min(each.min_raw for each in found), max(each.max_raw for each in found)
                yield field_id, struct.pack(form, lower), struct.pack(form, upper)


def _untold(read: Callable[[Collection[int]], object], columns: Collection[int]) -> set[int]:
    """Return the columns whose bounds cannot be told: a text that is no UTF-8, for one. Found by halving, since they are few."""
    if not columns:
        return set()
    try:
        read(columns)
    except Exception:
        if len(columns) == 1:
            return set(columns)
        ordered = sorted(columns)
        middle = len(ordered) // 2
        return _untold(read, ordered[:middle]) | _untold(read, ordered[middle:])
    return set()


def _metrics(statistics: dict[str, Any]) -> tuple[FieldMetrics, ...]:
    columns = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    field_ids = sorted({field_id for name in columns for field_id in statistics[name]})
    return tuple(
        FieldMetrics(
            field_id=field_id,
            column_size=statistics["column_sizes"].get(field_id),
            value_count=statistics["value_counts"].get(field_id),
            null_count=statistics["null_value_counts"].get(field_id),
            nan_count=statistics["nan_value_counts"].get(field_id),
            lower=_bound(statistics["lower_bounds"].get(field_id)),
            upper=_bound(statistics["upper_bounds"].get(field_id)),
        )
        for field_id in field_ids
    )


def _bound(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
