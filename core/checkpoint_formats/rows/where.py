"""`source.where` on Arrow: which rows of a batch it takes, and which row groups of a Parquet file cannot have such rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkpoint_protocol.manifest.where import (
    AllOf,
    AnyOf,
    BeginsWith,
    Compare,
    Condition,
    IsIn,
    IsNan,
    IsNull,
    Predicate,
    check_where,
    value_for,
)

_KERNELS: Final[Mapping[str, Callable[..., pa.Array]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class Filter:
    """A condition, bound to the types of the columns. NeedsChange(ManifestInvalid) if it does not fit them.

    `else_hint` is what one can do, beside correcting the name, about a column that is not there.
    """

    def __init__(self, condition: Condition, schema: pa.Schema, else_hint: str = "") -> None:
        check_where(condition, {field.name: str(field.type) for field in schema}, else_hint)
        self._condition = condition
        self._schema = schema

    def take(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the numbers of the rows that the condition takes, rising."""
        return pc.indices_nonzero(pc.fill_null(self._mask(self._condition, batch), False))

    def _mask(self, condition: Condition, batch: pa.RecordBatch) -> pa.Array:
        """Return true, false or NULL for each row."""
        match condition:
            case AllOf(parts):
                return reduce(pc.and_kleene, (self._mask(part, batch) for part in parts))
            case AnyOf(parts):
                return reduce(pc.or_kleene, (self._mask(part, batch) for part in parts))
        column = batch.column(batch.schema.get_field_index(condition.column))
        match condition:
            case Compare(_, operator, value):
                return _KERNELS[operator](column, self._scalar(condition, value))
            case IsIn(_, values, negated):
                found = self._is_in(column, condition, values)
                return pc.invert(found) if negated else found
            case IsNull(_, negated):
                return pc.is_valid(column) if negated else pc.is_null(column)
            case IsNan(_, negated):
                return pc.invert(pc.is_nan(column)) if negated else pc.is_nan(column)
            case BeginsWith(_, beginning, negated):
                found = pc.starts_with(column, beginning)
                return pc.invert(found) if negated else found

    def _is_in(self, column: pa.Array, predicate: Predicate, values: tuple[Any, ...]) -> pa.Array:
        kind = self._schema.field(predicate.column).type
        # By their bits -0.0 and 0.0 would not be equal; and pyarrow looks up no small decimals.
        if pa.types.is_floating(kind) or pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
            return reduce(pc.or_kleene, (pc.equal(column, self._scalar(predicate, value)) for value in values))
        members = []
        for value in values:
            try:
                members.append(self._scalar(predicate, value).cast(kind).as_py())
            except pa.ArrowInvalid:
                continue  # finer than any value of the column: a second of a timestamp[s] is never 12:00:00.5
        found = pc.is_in(column, value_set=pa.array(members, kind))
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))

    def _scalar(self, predicate: Predicate, given: Any) -> pa.Scalar:
        """Return a literal in the column's type; a time as fine as it is written, since a cast might round it."""
        kind = self._schema.field(predicate.column).type
        value = value_for(predicate.column, given, str(kind))
        return pa.scalar(value, pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind)

    # --- row groups -----------------------------------------------------------------------------------------------------------

    def may_take(self, group: pq.RowGroupMetaData, names: Mapping[str, str]) -> bool:
        """Whether a row group may have rows that the condition takes, by its statistics. True where they do not tell.

        `names`: the columns that the file has, by its own names.
        """
        statistics = {
            column.path_in_schema: (column.statistics, group.num_rows)
            for number in range(group.num_columns)
            if (column := group.column(number)).path_in_schema in names.values()
        }
        return self._may(self._condition, lambda name: statistics.get(names.get(name, "")))

    def _may(self, condition: Condition, statistics_of: Callable[[str], tuple[Any, int] | None]) -> bool:
        match condition:
            case AllOf(parts):
                return all(self._may(part, statistics_of) for part in parts)
            case AnyOf(parts):
                return any(self._may(part, statistics_of) for part in parts)
        statistics, rows = statistics_of(condition.column) or (None, 0)
        if statistics is None:
            return True
        nulls = statistics.null_count if statistics.has_null_count else None
        if isinstance(condition, IsNull):
            return nulls is None or (nulls < rows if condition.negated else nulls > 0)
        if nulls == rows:
            return False  # NULL everywhere: no other predicate is true
        if not statistics.has_min_max or not isinstance(condition, Compare | IsIn):
            return True
        try:
            least, most = statistics.min, statistics.max
            if not least <= most:  # a NaN among them
                return True
            if isinstance(condition, IsIn):
                return condition.negated or any(least <= self._plain(condition, value) <= most for value in condition.values)
            value = self._plain(condition, condition.value)
            match condition.operator:
                case "=":
                    return bool(least <= value <= most)
                case "<":
                    return bool(least < value)
                case "<=":
                    return bool(least <= value)
                case ">":
                    return bool(most > value)
                case ">=":
                    return bool(most >= value)
        except (TypeError, ValueError, OverflowError):
            # Statistics of another type than the column's values, or that Python cannot hold (a year beyond 9999, a text
            # that is no UTF-8): they say nothing.
            return True
        return True

    def _plain(self, predicate: Predicate, given: Any) -> Any:
        """Return a literal as Python compares it with statistics; of types whose order is not surely the same, TypeError."""
        value = self._scalar(predicate, given).as_py()
        if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal | datetime.date):
            raise TypeError
        return value
