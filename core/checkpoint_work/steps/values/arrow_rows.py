"""Python rows become Arrow: as the step declares its columns, else as the table has them, else by what their values are."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa

from checkpoint_protocol import reasons
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.steps.columns import declared_by, refuse_left_out, refuse_names, refuse_surplus
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.row_steps import Row
from checkpoint_work.steps.values.new_table_types import TypesByName
from checkpoint_work.steps.values.python_values import as_arrow, default_of
from checkpoint_work.steps.values.schema_cast import DECLARE, ValueMismatch, fit_array, said_of


def to_arrow(
    given: pa.RecordBatch | list[Row],
    schema: pa.Schema | None,
    step: Step | None,
    place: Place | None = None,
    optional: Collection[str] = (),
    types: TypesByName | None = None,
    is_last: bool = False,
) -> pa.RecordBatch:
    """Return what `step` gives as a batch: rows with a schema (the table's) as its types, a batch as it is.

    A row gives every column of the table that is not optional. Where the step declares its output, that counts in place of the
    table, and what is left out is NULL. `types` takes down the types that a new table is to have.
    NeedsChange(OutputSchemaWrong) names the column; ValueMismatch, which is one, where it is the fault of some rows only.
    """
    if not isinstance(given, list):
        return given
    label = step.label if step else "source"
    rows = [row for row, _ in given]
    declared = declared_by(step)
    schema = schema if declared is None else declared
    # A key that only a later row has must not be lost, so the columns are those of all rows.
    names = dict.fromkeys(declared.names if declared is not None else (name for row in rows for name in row))
    refuse_names(given, label, place)
    if schema is not None:
        refuse_surplus(given, step, schema.names, place)
        if declared is None:
            refuse_left_out(given, label, [name for name in schema.names if name not in optional], place)
            names = names or dict.fromkeys(schema.names)  # rows that say nothing are rows of NULL
    arrays, fields = [], []
    for name in names:
        field = schema.field(name) if schema is not None else None
        wanted = field.type if field is not None else None
        # Of a new table: what the column is in the source. Between steps no task knows that.
        hint = types.get(name) if wanted is None and types is not None and is_last else wanted
        default = default_of(field)
        values = [row.get(name, default) for row in rows]
        try:
            array = _fitted(values, wanted, hint)
        except MemoryError:
            raise
        except Exception as error:  # also what the values' own code raises, which pyarrow calls
            expected = f"values of type {wanted}" if wanted is not None else "values of one type"
            remedy = DECLARE if declared is None else "correct the step, or what it declares"
            what = _said_of_incompatibility(values, wanted, hint, given, place)
            raise ValueMismatch(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"step {label!r}: column {name!r} needs {expected}{what}: {error}; {remedy}",
            ) from error
        arrays.append(array)
        fields.append(pa.field(name, array.type))
    made = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    if types is not None and declared is not None:
        types.declare(declared)
    elif types is not None:
        types.infer(made)
    return made


def _said_of_incompatibility(
    values: list[Any], wanted: pa.DataType | None, hint: pa.DataType | None, given: list[Row], place: Place | None
) -> str:
    """Say which value does not fit by itself, and its row; nothing where nobody knows where many rows lie."""
    if place is None and len(values) > 1:
        return ""  # row_isolation.py looks for the row
    for index, value in enumerate(values):
        try:
            _fitted([value], wanted, hint)
        except Exception:
            return said_of(value, None if place is None else place.of_given(index, given[index][1]))
    return "" if place is None else f" in {place.of_rows(len(values))}"


def _fitted(values: list[Any], wanted: pa.DataType | None, hint: pa.DataType | None) -> pa.Array:
    made = as_arrow(values, hint)
    return made if wanted is None else fit_array(made, wanted)
