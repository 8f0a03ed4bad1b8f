"""Values that a table wants in columns which rows lack, kept with the Arrow fields of its schema.

In a field's metadata, so that they come along to wherever rows are made to fit the table, at every depth of a struct.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from checkpoint_formats.rows.nested import nulls

_DEFAULT: Final = b"checkpointed-writes.default"


def with_default(field: pa.Field, value: Any) -> pa.Field:
    """Return the field with a default, a Python value of its type."""
    batch = pa.record_batch([pa.array([value], field.type)], names=["default"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return field.with_metadata({**(field.metadata or {}), _DEFAULT: sink.getvalue().to_pybytes()})


def has_default(field: pa.Field) -> bool:
    return field.metadata is not None and _DEFAULT in field.metadata


def left_out(field: pa.Field, rows: int) -> pa.Array:
    """Return the column of so many rows that lack it: of the default, or of NULL."""
    return pa.repeat(_scalar(field.metadata[_DEFAULT]), rows) if has_default(field) else nulls(rows, field.type)


@lru_cache(maxsize=256)
def _scalar(data: bytes) -> pa.Scalar:
    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        return stream.read_all().column(0)[0]
