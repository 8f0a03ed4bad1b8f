"""Of which row of a batch each row of output was made, in a column behind the table's; and one row of output for each.

The steps do not see it. A row step tells of which row it has made what; from the first batch step on it is known of nothing
but what was made of a single row. Where it is not known the numbers are NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from checkpoint_formats.rows.selecting import asks_for_addresses
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.steps.failing.row_errors import Part
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.row_steps import Row

#: No name that a step or a table gives to a column.
ROW_NUMBER: Final = "(source row)"
_FIELD: Final = pa.field(ROW_NUMBER, pa.uint64())


def asking_for_numbers(schema: pa.Schema | None) -> pa.Schema | None:
    """Return the columns of a table with the numbers behind; output for rows that the table has has their addresses already."""
    return schema if schema is None or asks_for_addresses(schema) else schema.append(_FIELD)


def asks_for_numbers(schema: pa.Schema | None) -> bool:
    return schema is not None and schema.names[-1:] == [ROW_NUMBER]


def without_numbers(schema: pa.Schema | None) -> pa.Schema | None:
    return schema.remove(len(schema) - 1) if schema is not None and asks_for_numbers(schema) else schema


def with_numbers(made: pa.RecordBatch, numbers: Sequence[int] | None) -> pa.RecordBatch:
    """Add the numbers. None: they are not known."""
    if isinstance(numbers, range):  # a copy of rows is not to wait for Python's numbers
        column = pa.array(np.arange(numbers.start, numbers.stop, dtype=np.uint64))
    else:
        column = pa.nulls(made.num_rows, pa.uint64()) if numbers is None else pa.array(numbers, pa.uint64())
    return pa.RecordBatch.from_arrays([*made.columns, column], schema=made.schema.append(_FIELD))


def numbers_of(part: Part, given: pa.RecordBatch | list[Row], *, was_given: bool) -> Sequence[int] | None:
    """Return of which rows of the batch the steps have made what they give of a part. `was_given`: there is no step."""
    if isinstance(given, list):
        known = [number for _, number in given if number is not None]
        if len(known) == len(given):
            return known
    elif was_given:
        return part.numbers
    numbers = part.numbers
    return [numbers[0]] * len(given) if len(numbers) == 1 else None


def taken_off(made: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None]:
    """Return the columns of the table, and the numbers; None where there are none."""
    if not asks_for_numbers(made.schema):
        return made, None
    return made.remove_column(made.num_columns - 1), made.column(made.num_columns - 1)


# Output for rows that the table has (`sink.mode: AddColumns`): one row for each, and of it the columns that are asked for.
#
# What a step passes on of the rows that it was given is left out. A row step at the beginning may give nothing for a row: then
# the row gets no value. From the first batch step on, rows are told apart by their order alone, so that none may be missing.


def one_for_each(part: Part, made: int, last: Step | None, place: Place, source_rows: int) -> Sequence[int]:
    """Return of which rows of the batch the results are, in order. NeedsChange if that is not one row for each."""
    numbers, given = part.numbers, len(part.rows)
    if given == len(numbers) == made:
        return numbers
    label = f"step {last.label!r} gives" if last is not None else "the steps give"
    raise NeedsChange(
        reasons.OUTPUT_SCHEMA_WRONG,
        f"{label} {made} rows for {len(numbers)} of {place.of_rows(source_rows)}: with sink.mode: AddColumns each row gets its "
        "own values, so that steps give one row for each, in the same order; give None in a column where a row has no value",
    )


def only_these(given: pa.RecordBatch | list[Row], schema: pa.Schema, last: Step | None) -> pa.RecordBatch | list[Row]:
    """Leave out of Python rows what else they have, unless the step declares what it gives."""
    if not isinstance(given, list) or (last is not None and last.output is not None):
        return given
    names = schema.names
    return [({name: row[name] for name in names if name in row}, number) for row, number in given]


def of_these(made: pa.RecordBatch, schema: pa.Schema, last: Step | None) -> pa.RecordBatch:
    """Leave out the columns that nobody asked for. NeedsChange if one is not there that somebody did."""
    for name in schema.names:
        if name not in made.schema.names:
            label = f"step {last.label!r} does" if last is not None else "the steps do"
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"{label} not give the column {name!r} of sink.columns (it gives {', '.join(made.schema.names)}); correct the "
                "step, or sink.columns",
            )
    return made.select([name for name in made.schema.names if name in schema.names])
