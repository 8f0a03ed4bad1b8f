"""Positions for files that are read from their start only: the number of a row is its position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from checkpoint_formats.failures import vanished
from checkpoint_formats.port import Chunk
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.nested import no_rows
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.rows.positions import Range

#: A batch of rows, or why the next row cannot be read.
Rows: TypeAlias = "pa.RecordBatch | CheckpointError"


def number_rows(path: str, batches: Iterator[Rows], piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
    """Count all rows of a file from 0, those that cannot be read too; drop the ones before the piece, give the others.

    The chunk with the file's last row has the end of the piece, so None where that is the end of the file. Sizes are chosen
    when a chunk is taken, not before.
    """
    first = 0  # position of the first row of the batch
    gave = False
    for batch, is_last in _with_last(batches):
        after = first + _count(batch)
        stop = after if piece.end is None else min(after, piece.end)
        at = max(first, piece.start)
        while at < stop:
            end = min(at + sizing.rows, stop)
            ends_file = piece.end is None and is_last and end == after
            if isinstance(batch, CheckpointError):
                yield replace(empty_chunk(piece, schema), start=at, end=None if ends_file else end, failed=batch)
            else:
                yield Chunk(batch.slice(at - first, end - at), at, None if ends_file else end)
            at, gave = end, True
        first = after
        if piece.end is not None and first >= piece.end:
            break
    if first < (piece.start if piece.end is None else piece.end):
        raise vanished(path)
    if not gave:
        yield empty_chunk(piece, schema)


def _count(rows: Rows) -> int:
    return 1 if isinstance(rows, CheckpointError) else rows.num_rows


def _with_last(batches: Iterator[Rows]) -> Iterator[tuple[Rows, bool]]:
    """Tell of each batch that has rows whether it is the last one."""
    filled = (batch for batch in batches if _count(batch))
    current = next(filled, None)
    while current is not None:
        following = next(filled, None)
        yield current, following is None
        current = following


def empty_chunk(piece: Range, schema: pa.Schema) -> Chunk:
    """Return a chunk for a piece in which no row lies."""
    return Chunk(no_rows(schema), piece.start, piece.end)
