"""Put values over the rows of a fragment, a batch at a time. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from checkpoint_formats.rows.nested import no_rows

Places = np.ndarray[tuple[int], np.dtype[np.int64]]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
#: Values, and the places of the rows that they are for, which rise.
Placed = tuple[Places, pa.RecordBatch]

_NULL: Final = -1


class WrongPlaces(ValueError):
    """What is staged is not for rows of the fragment, each once and in order."""


def overlaid(
    rows: int,
    schema: pa.Schema,
    staged: Iterator[Placed],
    base: Iterator[pa.RecordBatch] | None = None,
    cleared: Mask | None = None,
    batch_rows: int = 8_192,
) -> Iterator[pa.RecordBatch]:
    """Give so many rows with these columns: the staged value where there is one, else the one of the base, else NULL.

    `base`: all rows as they are, in order; None: NULL in each. `cleared`: of which of them nothing is taken. The places of the
    staged values rise from batch to batch. Holds one batch of the base, and what is staged for it, and no more.
    """
    waiting = _Waiting(staged)
    at = 0
    while at < rows:
        below = next(base) if base is not None else None
        count = min(batch_rows, rows - at) if below is None else below.num_rows
        places, values = waiting.before(at + count, schema)
        if len(places) == count:
            yield values
        else:
            yield _merged(schema, count, below, None if cleared is None else cleared[at : at + count], places - at, values)
        at += count
    if waiting.is_left or at != rows:
        raise WrongPlaces(f"values are staged for rows beyond the {rows} of the fragment")


def _merged(
    schema: pa.Schema, count: int, below: pa.RecordBatch | None, cleared: Mask | None, places: Places, values: pa.RecordBatch
) -> pa.RecordBatch:
    if below is None:
        numbers, offset = np.full(count, _NULL, np.int64), 0
    else:
        numbers, offset = np.arange(count, dtype=np.int64), count
        if cleared is not None:
            numbers[cleared] = _NULL
    numbers[places] = offset + np.arange(len(places))
    taken = pa.array(numbers, mask=numbers == _NULL)
    arrays = []
    for field in schema:
        of_values = values.column(values.schema.get_field_index(field.name))
        parts = [of_values] if below is None else [below.column(below.schema.get_field_index(field.name)), of_values]
        arrays.append(pa.chunked_array(parts, field.type).combine_chunks().take(taken))
    return pa.RecordBatch.from_arrays([_whole(array) for array in arrays], schema=schema)


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


class _Waiting:
    """Staged values that were read, and are for rows further on."""

    def __init__(self, staged: Iterator[Placed]) -> None:
        self._staged = staged
        self._held: Placed | None = None
        self._last = -1

    @property
    def is_left(self) -> bool:
        return self._take() is not None

    def before(self, end: int, schema: pa.Schema) -> Placed:
        """Return what is for the rows before one, and follows what was returned before."""
        found: list[Placed] = []
        while (held := self._take()) is not None and held[0][0] < end:
            count = int(np.searchsorted(held[0], end))
            found.append((held[0][:count], held[1].slice(0, count)))
            self._held = (held[0][count:], held[1].slice(count))
        if not found:
            return np.empty(0, np.int64), no_rows(schema)
        if len(found) == 1:
            return found[0]
        return np.concatenate([places for places, _ in found]), pa.concat_batches([values for _, values in found])

    def _take(self) -> Placed | None:
        while self._held is None or len(self._held[0]) == 0:
            self._held = next(self._staged, None)
            if self._held is None:
                return None
            places = self._held[0]
            if len(places) and (places[0] <= self._last or (np.diff(places) <= 0).any()):
                raise WrongPlaces("values are staged twice for a row, or out of order")
            self._last = int(places[-1]) if len(places) else self._last
        return self._held
