"""The column types of a new table where steps give values without types: the rows of a `row` step, objects in a pandas frame.

What pyarrow infers of the first values is the narrowest that holds these: decimal(3,2) of 1.50, and the table stays so. A column
that keeps its name through the steps has the type that it came with, where the values fit; else the widest of its kind. What a
step declares (its `output`) goes before both. Arrow columns, and numbers and times of pandas, have types of their own.

Called by the step engine (steps/), for the sample of which a table is made (`sink.create`) only: rows of which no table
is made become what the table has.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import pyarrow as pa

from checkpoint_formats.rows.plain_types import schema_of_new
from checkpoint_work.steps.values.schema_cast import encoded, fit_array

_MOST_DIGITS: Final = 38


class TypesByName:
    """The types that the columns have by the rule, on their way through the steps."""

    def __init__(self, source: pa.Schema) -> None:
        self._source = source
        self.begin()

    def begin(self) -> None:
        """Begin before the first step, with the columns of the source."""
        self.declare(schema_of_new(self._source))

    def get(self, name: str) -> pa.DataType | None:
        """Return the type that a column has before the step that comes next; None for a column that is new."""
        return self._types.get(name)

    def declare(self, schema: pa.Schema) -> None:
        """Note that a step declares all that it gives."""
        self._types: dict[str, pa.DataType] = {field.name: field.type for field in schema}

    def infer(self, made: pa.RecordBatch, columns: Collection[str] | None = None) -> None:
        """Note what a step gives. Of these columns (None: of all) the values have the types that pyarrow inferred of them."""
        self._types = {
            field.name: type_of(column, self._types.get(field.name)) if columns is None or field.name in columns else field.type
            for field, column in zip(made.schema, made.columns, strict=True)
        }

    def pass_through(self, given: pa.Schema, made: pa.RecordBatch, inferred: Collection[str]) -> None:
        """Note what a batch step makes: a column that keeps its name and its Arrow type is the one that it was given.

        `inferred` are columns of objects, as in `infer`.
        """
        before = self._types
        self.infer(made, inferred)
        for field in made.schema:
            number = given.get_field_index(field.name)
            if field.name not in inferred and number >= 0 and given.field(number).type == field.type:
                self._types[field.name] = before.get(field.name, field.type)

    def of(self, made: pa.RecordBatch) -> pa.Schema:
        """Return the schema of a table for what the steps have made."""
        return pa.schema([pa.field(field.name, self._types.get(field.name, field.type), field.nullable) for field in made.schema])


def type_of(found: pa.Array, before: pa.DataType | None) -> pa.DataType:
    """Return the type of a column whose values were inferred, and which had the type `before` until then (None: it is new)."""
    if found.type == before:
        return found.type
    if isinstance(before, pa.UuidType) and _holds_all(before.storage_type, found):
        return before
    if before is not None and (plain := encoded(before)) is not None:
        return type_of(found, plain)
    if before is not None and _holds_all(before, found):
        return before
    kind = found.type
    if pa.types.is_struct(kind):
        # Fields that no row of the sample gives may come later: the widest struct has them.
        had = {field.name: field for field in before} if before is not None and pa.types.is_struct(before) else {}
        given = {field.name: part for field, part in zip(kind, found.flatten(), strict=True)}
        names = dict.fromkeys([*had, *given])
        return pa.struct(
            [
                (name, type_of(given[name], had[name].type if name in had else None) if name in given else had[name].type)
                for name in names
            ]
        )
    if pa.types.is_list(kind):
        is_list = before is not None and (
            pa.types.is_list(before) or pa.types.is_large_list(before) or pa.types.is_fixed_size_list(before)
        )
        return pa.list_(type_of(found.flatten(), before.value_type if before is not None and is_list else None))
    return widest(kind)


def widest(kind: pa.DataType) -> pa.DataType:
    """Return the widest type of a kind of plain values. What is NULL only has none, and uint64 goes beyond int64."""
    if pa.types.is_integer(kind):
        return kind if pa.types.is_uint64(kind) else pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal(kind):
        # All digits before the point that its scale leaves room for.
        return pa.decimal128(_MOST_DIGITS, kind.scale) if kind.precision <= _MOST_DIGITS else pa.decimal256(76, kind.scale)
    return kind


def _holds_all(wanted: pa.DataType, found: pa.Array) -> bool:
    """Whether the values are the same in the other type, as Python compares them: a date is no time, and 0.1 no float32."""
    if found.type == wanted:
        return True
    try:
        return _is_same(found.to_pylist(), fit_array(found, wanted).to_pylist())
    except (pa.ArrowException, ValueError, OverflowError):
        return False


def _is_same(given: Any, kept: Any) -> bool:
    if isinstance(given, dict) and isinstance(kept, dict):
        # What a struct lacks is NULL.
        return all(_is_same(given.get(name), value) for name, value in kept.items())
    if isinstance(given, list) and isinstance(kept, list):
        return len(given) == len(kept) and all(map(_is_same, given, kept))
    return bool(given == kept) or (given != given and kept != kept)  # NaN
