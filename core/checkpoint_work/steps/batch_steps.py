"""Arrow and pandas steps: a batch goes in, and a batch comes out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from checkpoint_formats.rows.nested import no_rows
from checkpoint_work.steps.calling.calls import Calls
from checkpoint_work.steps.calling.waiting import refuse_unawaited
from checkpoint_work.steps.failing.failures import Raised, WrongResult
from checkpoint_work.steps.values.frames import batch_as_frame, frame_as_batch
from checkpoint_work.steps.values.taking import batch_as_it_is


def call_on_batch(calls: Calls, batch: pa.RecordBatch, wanted: pa.Schema | None = None) -> tuple[pa.RecordBatch, frozenset[str]]:
    """Return what a step makes of a batch, and the columns whose types were inferred: those of pandas that hold objects.

    `wanted`: the columns that are asked for, which tell what objects may be; of others it is what the step was given.

    Raises what the step raises, and WrongResult.
    """
    is_pandas = calls.step.input == "pandas"

    def convert(result: Any) -> tuple[pa.RecordBatch, frozenset[str]]:
        refuse_unawaited(result)
        if not is_pandas:
            return batch_as_it_is(_of_arrow(result, batch), batch), frozenset()
        made, inferred = frame_as_batch(
            result, {field.name: field.type for schema in (batch.schema, wanted or ()) for field in schema}
        )
        return batch_as_it_is(made, batch), inferred

    given = batch_as_frame(batch) if is_pandas else batch
    outcome = calls.together([given], convert)[0] if calls.waits else calls.directly(given, convert)
    if isinstance(outcome, Raised):
        raise outcome.error
    return outcome


def _of_arrow(result: Any, batch: pa.RecordBatch) -> pa.RecordBatch:
    if result is None:
        return batch.slice(0, 0)
    if isinstance(result, pa.Table):
        batches = result.combine_chunks().to_batches()
        if len(batches) > 1:  # Arrow does not join more than 2 GiB of one column; the rest of the rows would be lost
            raise ValueError(f"a result of {result.nbytes} bytes is too large; use large_binary, or give less at a time")
        return batches[0] if batches else no_rows(result.schema)
    if not isinstance(result, pa.RecordBatch):
        raise WrongResult(f"an arrow step gives a pyarrow.RecordBatch or Table, not {type(result).__name__}")
    return result
