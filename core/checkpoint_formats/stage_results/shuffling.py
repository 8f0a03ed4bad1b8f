"""Rows into buckets: each part of a file has the rows of one bucket after the other, a record batch for each.

So many rows are held at a time as fit in some memory, whatever their number and that of their keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from checkpoint_formats.rows.pieces import cut
from checkpoint_formats.stage_results.group_keys import Hashes, hashes_of
from checkpoint_protocol.records import Grouping

_HELD_BYTES: Final = 32 << 20


def by_bucket(batches: Iterator[pa.RecordBatch], grouping: Grouping) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Give the same rows in batches of one bucket each, with its number."""
    held: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in (piece for given in batches for piece in cut(given, _HELD_BYTES)):
        if held and size_bytes + batch.nbytes > _HELD_BYTES:
            yield from _divided(pa.concat_batches(held), grouping)
            held, size_bytes = [], 0
        if batch.num_rows:
            held.append(batch)
            size_bytes += batch.nbytes
    if held:
        yield from _divided(pa.concat_batches(held), grouping)


def buckets_of(hashes: Hashes, buckets: int) -> Hashes:
    return hashes % np.uint64(buckets)


def _divided(batch: pa.RecordBatch, grouping: Grouping) -> Iterator[tuple[pa.RecordBatch, int]]:
    if grouping.buckets == 1:
        yield batch, 0
        return
    of = buckets_of(hashes_of(batch, grouping.by), grouping.buckets)
    yield from divided(batch, of)


def divided(batch: pa.RecordBatch, numbers: Hashes) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Give the rows of each number together, by rising numbers, in the order that they had."""
    order = np.argsort(numbers, kind="stable")
    ordered, sorted_numbers = batch.take(pa.array(order)), numbers[order]
    starts = np.flatnonzero(np.diff(sorted_numbers, prepend=sorted_numbers[:1] + np.uint64(1)))
    ends = np.append(starts[1:], len(order))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield ordered.slice(start, end - start), int(sorted_numbers[start])
