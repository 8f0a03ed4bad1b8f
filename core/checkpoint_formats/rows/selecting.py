"""`source.where` and `source.columns`, for every format; and addresses, for output that belongs to rows of a table.

A row that is left out is covered all the same: its position belongs to the chunk, so that it is sealed as done, and is not read
again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_formats.port import Chunk, Reader, WrappingReader
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.where import Filter
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.manifest.where import Condition, columns_of, parse_where
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range


@dataclass(frozen=True, slots=True)
class Selection:
    """Which part of a source is taken: these columns (None: all) of the rows for which the condition is true."""

    columns: tuple[str, ...] | None = None
    condition: Condition | None = None

    @property
    def columns_to_read(self) -> tuple[str, ...] | None:
        """The columns that are asked for, and after them those that only the condition needs. None: all."""
        if self.columns is None or self.condition is None:
            return self.columns
        return tuple(dict.fromkeys((*self.columns, *columns_of(self.condition))))


def selection_of(source: Source) -> Selection:
    """Return what a source asks for. NeedsChange(ManifestInvalid) if `where` is no condition."""
    return Selection(source.columns, None if source.where is None else parse_where(source.where))


class SelectingReader(WrappingReader):
    """Gives what another reader reads without the rows that `where` does not take, and without columns nobody asked for.

    The schema that `read` is given is the one under which the input is recorded: with the columns of `where`. The batches have
    the columns of `given_schema`.
    """

    def __init__(self, selection: Selection, inner: Reader) -> None:
        self._selection = selection
        self.inner = inner

    def given_schema(self, schema: pa.Schema) -> pa.Schema:
        columns = self._selection.columns
        return schema if columns is None else pa.schema([schema.field(name) for name in columns])

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        condition = self._selection.condition
        rows = None if condition is None else Filter(condition, schema)
        given = self.given_schema(schema)
        for chunk in self.inner.read(file, piece, schema, sizing):
            taken = chunk if rows is None else _take(chunk, rows)
            if len(given) == len(schema):
                yield taken
            else:
                yield replace(taken, batch=taken.batch.select(given.names))


def _take(chunk: Chunk, rows: Filter) -> Chunk:
    if chunk.failed is not None:
        return chunk  # nobody can say whether it would be taken
    taken = rows.take(chunk.batch)
    if len(taken) == chunk.batch.num_rows:
        return chunk
    kept = taken if chunk.kept is None else pc.take(chunk.kept, taken)
    return replace(chunk, batch=chunk.batch.take(taken), kept=kept)


# Output that belongs to rows which are there already: each of its rows has the address of one.
#
# A stager that wants it has the column in its schema. The steps do not see it: the engine puts in it which row of its batch a row
# was made of, and the task makes an address of that.


#: As Lance calls it, which has no column of that name. The fragment is in the upper half, the place in it in the lower one.
ROW_ADDRESS: Final = "_rowaddr"
ADDRESS_FIELD: Final = pa.field(ROW_ADDRESS, pa.uint64(), nullable=False)
_PLACE_BITS: Final = np.uint64(32)
_PLACE: Final = np.uint64(0xFFFF_FFFF)

Addresses = np.ndarray[tuple[int], np.dtype[np.uint64]]


def addresses_of(fragment: int, places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Addresses:
    """Return the addresses of rows of a fragment by their places in it."""
    made: Addresses = (np.uint64(fragment) << _PLACE_BITS) | places.astype(np.uint64)
    return made


def fragments_of(addresses: Addresses) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return (addresses >> _PLACE_BITS).astype(np.int64)


def places_of(addresses: Addresses) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return (addresses & _PLACE).astype(np.int64)


def asks_for_addresses(schema: pa.Schema | None) -> bool:
    return schema is not None and schema.get_field_index(ROW_ADDRESS) >= 0


def without_addresses(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != ROW_ADDRESS])
