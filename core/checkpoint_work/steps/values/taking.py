"""What a step gave is taken as it was when it was given: a step may use its own dicts, lists, frames and buffers again.

Rows wait in memory until a batch, a row group or a file is full, and the step may have changed its own objects by then.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import ItemsView, KeysView, ValuesView
from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, RootModel

_TEXTS_AND_NUMBERS: Final = frozenset({str, int, float, bool, bytes, type(None)})
#: Of a dict, which show what it holds at each moment.
_VIEWS: Final = (KeysView, ValuesView, ItemsView)


def row_of(value: Any) -> dict[str, Any] | None:
    """Return a row that a step gave as it is now: a dict, or an object with fields. None for anything else."""
    made = as_it_is(value) if isinstance(value, dict | BaseModel) or _has_fields(type(value)) else None
    return made if isinstance(made, dict) else None


def _has_fields(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def _fields_of(value: Any) -> Any:
    """Return what the fields of an object hold, by their names; of a model of one value (RootModel) that value.

    Of a model the same fields as in `model_dump()`, which would leave out fields of a subclass within another model.
    """
    kind = type(value)
    if isinstance(value, RootModel):
        return value.root
    if isinstance(value, BaseModel):
        names = [name for name, field in kind.model_fields.items() if not field.exclude]
        return {name: getattr(value, name) for name in (*names, *kind.model_computed_fields, *(value.model_extra or ()))}
    names = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind._fields
    return {name: getattr(value, name) for name in names}


def as_it_is(value: Any) -> Any:
    """Return a value of a row as it is now. What holds values is copied; an object that is none stays the same one.

    An object with fields is a dict, a member of an enum is its value, and a path is text.
    """
    kind = type(value)
    if kind in _TEXTS_AND_NUMBERS:
        return value
    if kind is dict:
        return _dict_as_it_is(value, {})
    if kind is list:
        return value.copy() if _TEXTS_AND_NUMBERS.issuperset(map(type, value)) else [as_it_is(part) for part in value]
    if kind is tuple:
        return tuple(as_it_is(part) for part in value)
    if isinstance(value, _VIEWS):
        return [as_it_is(part) for part in value]
    if isinstance(value, memoryview):
        return value.tobytes()
    if isinstance(value, np.ndarray):
        return _array_as_it_is(value)
    if isinstance(value, dict):
        parts = copy.copy(value)
        parts.clear()
        return _dict_as_it_is(value, parts)
    if isinstance(value, list):
        items = copy.copy(value)
        items[:] = [as_it_is(part) for part in value]
        return items
    if isinstance(value, set | frozenset):
        return _set_as_it_is(value)
    if isinstance(value, Enum):
        return as_it_is(value.value)
    if isinstance(value, BaseModel) or _has_fields(kind):
        return as_it_is(_fields_of(value))
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    return copy.copy(value) if isinstance(value, bytearray) else value


def _dict_as_it_is(value: dict[Any, Any], made: dict[Any, Any]) -> dict[Any, Any]:
    for name, part in value.items():
        if type(name) is not str and isinstance(name, Enum | os.PathLike):
            name = as_it_is(name)
        made[name] = as_it_is(part)
    if len(made) < len(value):
        raise ValueError(f"a dict has two keys that are the same as text or values: {', '.join(map(repr, value))}")
    return made


def _set_as_it_is(value: set[Any] | frozenset[Any]) -> Any:
    """Return a set as it is now; as a list, where its members as values are equal, or may not be in a set."""
    parts = [as_it_is(part) for part in value]
    try:
        made = set(parts) if isinstance(value, set) else frozenset(parts)
    except TypeError:
        return parts
    return made if len(made) == len(parts) else parts


def _array_as_it_is(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    made = array.copy()
    if array.dtype == object:
        for place, part in np.ndenumerate(array):
            made[place] = as_it_is(part)
    return made


def batch_as_it_is(made: pa.RecordBatch, given: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch in memory that the step does not have. What it passed on of the batch it was given is not copied."""
    known = {buffer.address for column in given.columns for buffer in column.buffers() if buffer is not None}
    copied = [number for number, column in enumerate(made.columns) if not _lies_in(column, known)]
    if not copied:
        return made
    columns = made.columns
    fresh = _copy(pa.RecordBatch.from_arrays([columns[number] for number in copied], [str(number) for number in copied]))
    for number, column in zip(copied, fresh.columns, strict=True):
        columns[number] = column
    return pa.RecordBatch.from_arrays(columns, schema=made.schema)


def _lies_in(column: pa.Array, known: set[int]) -> bool:
    # The values of a dictionary are not among its buffers.
    return not _has_dictionary(column.type) and all(buffer is None or buffer.address in known for buffer in column.buffers())


def _has_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    return pa.types.is_dictionary(kind) or any(_has_dictionary(kind.field(number).type) for number in range(kind.num_fields))


def _copy(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy the rows, and not all of the memory that they are a part of."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pa.ipc.open_stream(sink.getvalue()) as reader:
        made = reader.read_next_batch()
    # A type of the user's own that is not registered comes back as what it is stored as.
    return made if made.schema.equals(batch.schema) else batch.copy_to(pa.default_cpu_memory_manager())
