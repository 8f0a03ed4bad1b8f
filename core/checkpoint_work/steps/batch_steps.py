"""Arrow and pandas steps: a batch goes in, and a batch comes out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from checkpoint_formats.rows.nested import entries, flat, no_rows, not_null
from checkpoint_work.steps.calling.calls import Calls
from checkpoint_work.steps.calling.event_loop import refuse_unawaited
from checkpoint_work.steps.failing.failures import Raised, WrongResult
from checkpoint_work.steps.values.python_values import as_arrow
from checkpoint_work.steps.values.taking import batch_as_it_is

# Batches as pandas frames, and back. What pandas has no place for (integers beside NULL, zones in lists) stays as it is.
#
# NaN and NULL are one in pandas: of doubles, both come back as NULL.


def batch_as_frame(batch: pa.RecordBatch) -> Any:
    """Return a pandas frame. Integers beside a NULL stay integers (Int64 and the like): as floats, large ones would change."""
    import pandas as pd

    by_pandas = [field.name for field, column in zip(batch.schema, batch.columns, strict=True) if not _is_changed(column)]
    frame = batch.select(by_pandas).to_pandas(integer_object_nulls=True) if by_pandas else pd.DataFrame(index=range(len(batch)))
    for number, (field, column) in enumerate(zip(batch.schema, batch.columns, strict=True)):
        if field.name not in by_pandas:
            frame.insert(number, field.name, pd.Series(column.to_pylist(), dtype=object))
        elif pa.types.is_integer(field.type) and column.null_count:
            kind = getattr(pd, f"{'U' if str(field.type).startswith('u') else ''}Int{field.type.bit_width}Dtype")()
            frame[field.name] = column.to_pandas(types_mapper={field.type: kind}.get)
    return frame


def _is_changed(column: pa.Array) -> bool:
    """Whether nested values are not the same in pandas: they are given as Python values, as a row step has them."""
    return pa.types.is_nested(column.type) and any(map(_loses, _leaves(column)))


def _leaves(values: pa.Array) -> Iterator[pa.Array]:
    """Give the plain values in nested ones."""
    kind = values.type
    if pa.types.is_struct(kind):
        parts = [not_null(values).field(number) for number in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        parts = list(entries(values))
    elif pa.types.is_nested(kind):
        parts = [flat(values)]
    else:
        yield values
        return
    for part in parts:
        yield from _leaves(part)


def _loses(values: pa.Array) -> bool:
    kind = values.type
    if pa.types.is_timestamp(kind):
        return kind.tz is not None or kind.unit == "ns"  # no zone in a list, and a number in a struct
    if pa.types.is_duration(kind):
        return bool(kind.unit == "ns")
    if pa.types.is_floating(kind):
        return bool(values.null_count)  # which would be NaN, and is not NULL then
    return pa.types.is_fixed_size_binary(kind) or isinstance(kind, pa.BaseExtensionType)


def frame_as_batch(frame: Any, hints: Mapping[str, pa.DataType]) -> tuple[pa.RecordBatch, frozenset[str]]:
    """Return what a pandas step gives, and the columns of objects, whose types were found by their values.

    `hints`: what columns may be, by name; see `as_arrow`.
    """
    if not hasattr(frame, "columns"):
        raise WrongResult(f"a pandas step gives a pandas.DataFrame, not {type(frame).__name__}")
    names = [str(name) for name in frame.columns]
    of_objects = [number for number, kind in enumerate(frame.dtypes) if str(kind) == "object"]
    others = [number for number in range(len(names)) if number not in of_objects]
    arrays = dict(zip(others, pa.RecordBatch.from_pandas(frame.iloc[:, others], preserve_index=False).columns, strict=True)) | {
        number: _of_objects(frame.iloc[:, number], hints.get(names[number]), names[number]) for number in of_objects
    }
    batch = pa.RecordBatch.from_arrays([arrays[number] for number in range(len(names))], names)
    return batch, frozenset(names[number] for number in of_objects)


def _of_objects(column: Any, hint: pa.DataType | None, name: str) -> pa.Array:
    return as_arrow([None if missing else value for value, missing in zip(column, column.isna(), strict=True)], hint, name)


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
