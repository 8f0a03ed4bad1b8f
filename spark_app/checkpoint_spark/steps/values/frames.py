"""Batches as pandas frames, and back. What pandas has no place for (integers beside NULL, zones in lists) stays as it is.

NaN and NULL are one in pandas: of doubles, both come back as NULL.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from checkpoint_spark.steps.failing.failures import WrongResult
from checkpoint_spark.steps.values.inferring import holds_a_map, with_whole_times


def batch_as_frame(batch: pa.RecordBatch) -> Any:
    """Return a pandas frame. Integers beside a NULL stay integers (Int64 and the like): as floats, large ones would change."""
    import pandas as pd

    by_pandas = [field.name for field in batch.schema if not _is_changed_by_pandas(field.type)]
    frame = batch.select(by_pandas).to_pandas(integer_object_nulls=True) if by_pandas else pd.DataFrame(index=range(len(batch)))
    for number, (field, column) in enumerate(zip(batch.schema, batch.columns, strict=True)):
        if field.name not in by_pandas:
            frame.insert(number, field.name, pd.Series(column.to_pylist(), dtype=object))
        elif pa.types.is_integer(field.type) and column.null_count:
            kind = getattr(pd, f"{'U' if str(field.type).startswith('u') else ''}Int{field.type.bit_width}Dtype")()
            frame[field.name] = column.to_pandas(types_mapper={field.type: kind}.get)
    return frame


def _is_changed_by_pandas(kind: pa.DataType) -> bool:
    """Whether values of a nested type are not the same in pandas: they are given as Python values, as a row step has them."""
    return pa.types.is_nested(kind) and any(map(_loses, _leaves(kind)))


def _leaves(kind: pa.DataType) -> list[pa.DataType]:
    if not pa.types.is_nested(kind):
        return [kind]
    return [leaf for number in range(kind.num_fields) for leaf in _leaves(kind.field(number).type)]


def _loses(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is not None or kind.unit == "ns"  # no zone in a list, and a number in a struct
    if pa.types.is_duration(kind):
        return bool(kind.unit == "ns")
    return pa.types.is_fixed_size_binary(kind) or isinstance(kind, pa.BaseExtensionType)


def frame_as_batch(frame: Any, given: pa.Schema) -> tuple[pa.RecordBatch, frozenset[str]]:
    """Return what a pandas step gives, and the columns of objects, whose types were inferred. `given`: what it was given."""
    if not hasattr(frame, "columns"):
        raise WrongResult(f"a pandas step gives a pandas.DataFrame, not {type(frame).__name__}")
    arrays = {number: array for number in range(len(frame.columns)) if (array := _as_given(frame, number, given)) is not None}
    others = [number for number in range(len(frame.columns)) if number not in arrays]
    made = pa.RecordBatch.from_pandas(frame.iloc[:, others], preserve_index=False)
    for number, column in zip(others, made.columns, strict=True):
        arrays[number] = column
        if frame.dtypes.iloc[number].kind == "O":
            arrays[number] = with_whole_times(frame.iloc[:, number], column, str(frame.columns[number]))
    names = [str(name) for name in frame.columns]
    inferred = {names[number] for number in others if str(frame.dtypes.iloc[number]) == "object"}
    batch = pa.RecordBatch.from_arrays([arrays[number] for number in range(len(names))], names)
    return batch, frozenset(inferred)


def _as_given(frame: Any, number: int, given: pa.Schema) -> pa.Array | None:
    """Return a column of objects in the type that the column of its name had, where none can be inferred: of maps, and uint64."""
    name = frame.columns[number]
    place = given.get_field_index(name) if isinstance(name, str) else -1
    if place < 0 or str(frame.dtypes.iloc[number]) != "object":
        return None
    kind = given.field(place).type
    if not holds_a_map(kind) and not any(map(pa.types.is_uint64, _leaves(kind))):
        return None
    try:
        return pa.array(frame.iloc[:, number], kind, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None  # the step gives something else
