"""Arrow and pandas steps: a batch goes in, and a batch comes out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from checkpoint_spark.steps.calls import Calls
from checkpoint_spark.steps.failures import Raised, WrongResult
from checkpoint_spark.steps.taking import batch_as_it_is
from checkpoint_spark.steps.times import refuse_mixed_times
from checkpoint_spark.steps.waiting import refuse_unawaited


def call_on_batch(calls: Calls, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, frozenset[str]]:
    """Return what a step makes of a batch, and the columns whose types were inferred: those of pandas that hold objects.

    Raises what the step raises, and WrongResult.
    """
    is_pandas = calls.step.input == "pandas"

    def convert(result: Any) -> tuple[pa.RecordBatch, frozenset[str]]:
        refuse_unawaited(result)
        made, inferred = _of_frame(result) if is_pandas else (_of_arrow(result, batch), frozenset())
        return batch_as_it_is(made, batch), inferred

    given = _frame_of(batch) if is_pandas else batch
    outcome = calls.together([given], convert)[0] if calls.waits else calls.directly(given, convert)
    if isinstance(outcome, Raised):
        raise outcome.error
    return outcome


def _of_frame(frame: Any) -> tuple[pa.RecordBatch, frozenset[str]]:
    if not hasattr(frame, "columns"):
        raise WrongResult(f"a pandas step gives a pandas.DataFrame, not {type(frame).__name__}")
    made = pa.RecordBatch.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    for number, name in enumerate(frame.columns):
        if frame.dtypes.iloc[number].kind == "O":
            refuse_mixed_times(frame.iloc[:, number], made.column(number).type, str(name))
    return made, frozenset(str(name) for name, kind in zip(frame.columns, frame.dtypes, strict=True) if str(kind) == "object")


def _of_arrow(result: Any, batch: pa.RecordBatch) -> pa.RecordBatch:
    if result is None:
        return batch.slice(0, 0)
    if isinstance(result, pa.Table):
        batches = result.combine_chunks().to_batches()
        if len(batches) > 1:  # Arrow does not join more than 2 GiB of one column; the rest of the rows would be lost
            raise ValueError(f"a result of {result.nbytes} bytes is too large; use large_binary, or give less at a time")
        return batches[0] if batches else _empty(result.schema)
    if not isinstance(result, pa.RecordBatch):
        raise WrongResult(f"an arrow step gives a pyarrow.RecordBatch or Table, not {type(result).__name__}")
    return result


def _frame_of(batch: pa.RecordBatch) -> Any:
    """Return a pandas frame. Integers beside a NULL stay integers (Int64 and the like): as floats, large ones would change."""
    import pandas as pd

    frame = batch.to_pandas()
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_integer(field.type) and column.null_count:
            kind = getattr(pd, f"{'U' if str(field.type).startswith('u') else ''}Int{field.type.bit_width}Dtype")()
            frame[field.name] = column.to_pandas(types_mapper={field.type: kind}.get)
    return frame


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)
