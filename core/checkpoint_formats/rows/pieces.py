"""Cut batches, so that a file can be rolled near its target size however large the batches are that the steps give."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


def cut(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Give the batch in pieces of about so many bytes in memory, and of one row at least. Copies nothing."""
    if batch.nbytes <= most_bytes or batch.num_rows <= 1:
        yield batch
        return
    rows = max(1, batch.num_rows * most_bytes // batch.nbytes)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
