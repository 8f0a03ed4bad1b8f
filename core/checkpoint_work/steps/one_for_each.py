"""Output for rows that the table has (`sink.mode: AddColumns`): one row for each, and of it the columns that are asked for.

What a step passes on of the rows that it was given is left out. A row step at the beginning may give nothing for a row: then the
row gets no value. From the first batch step on, rows are told apart by their order alone, so that none may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.steps.failing.row_errors import Part
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.row_steps import Row


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
