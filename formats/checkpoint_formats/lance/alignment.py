"""Arrow memory as Lance's writer wants it: each buffer begins where a value of its type may lie.

Arrow's own formats promise 8 bytes, and a 128-bit decimal wants 16, so one that came through a socket, or from a step, may lie
elsewhere. Lance's Rust code panics then.
"""

from __future__ import annotations

import pyarrow as pa


def aligned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch; columns that lie elsewhere are copied."""
    lie_right = [_lies_right(column) for column in batch.columns]
    if all(lie_right):
        return batch
    columns = [column if right else _copy(column) for column, right in zip(batch.columns, lie_right, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _lies_right(column: pa.Array) -> bool:
    wanted = 16 if _holds_a_decimal(column.type) else 8
    return all(buffer is None or buffer.address % wanted == 0 for buffer in column.buffers())


def _holds_a_decimal(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) or any(_holds_a_decimal(kind.field(number).type) for number in range(kind.num_fields))


def _copy(column: pa.Array) -> pa.Array:
    return pa.concat_arrays([column, column.slice(0, 0)])  # of one array Arrow makes no copy
