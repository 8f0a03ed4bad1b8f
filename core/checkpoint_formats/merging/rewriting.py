"""Files that a merge writes anew without some of their rows: what is read of them, and what stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkpoint_formats.merging.reading import Positions, numbers_of
from checkpoint_formats.port import Chunk, Reader, WrappingReader
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.nested import no_rows
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

_PATH: Final = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True)
class RewritingReader(WrappingReader):
    """Gives the rows of files that have rows to be deleted, as `file_path`, `stays` and `row`, and none of other files.

    `rows`: the columns of a row, all that the table has. Rows that are deleted already are not given. `rows_to_delete` returns
    the numbers of the rows of a file that are to be deleted, rising.
    """

    inner: Reader
    rows_to_delete: Callable[[SourceFile, Range], Positions]
    rows: pa.Schema

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        # Matched as a whole, also where only the rest is left to be read: all its segments write it anew, or none does.
        gone = self.rows_to_delete(file, Range(file=piece.file, start=0, end=file.end))
        if not len(gone):
            yield Chunk(_batch(file.path, no_rows(self.rows), pa.array([], pa.bool_())), *_ends(piece))
            return
        for chunk in self.inner.read(file, piece, self.rows, sizing):
            stays = pa.array(~_are_in(numbers_of(chunk).to_numpy(), gone))
            yield Chunk(_batch(file.path, chunk.batch, stays), chunk.start, chunk.end, chunk.kept)


@dataclass(slots=True)
class Rest:
    """The rows that stay of one file, out of what a RewritingReader gives of it. `rows`: so many were looked at."""

    batches: Iterator[pa.RecordBatch]
    schema: pa.Schema
    rows: int = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.batches:
            self.rows += batch.num_rows
            row = batch.column("row").filter(batch.column("stays"))
            if len(row):
                yield pa.RecordBatch.from_arrays(row.flatten(), schema=self.schema)


def path_of(batch: pa.RecordBatch) -> str:
    """Return the file that rows of a RewritingReader are of."""
    path: str = batch.column("file_path")[0].as_py()
    return path


def _ends(piece: Range) -> tuple[int, int | None]:
    return piece.start, piece.end


def _batch(path: str, rows: pa.RecordBatch, stays: pa.Array) -> pa.RecordBatch:
    paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows.num_rows, np.int32)), pa.array([path]))
    row = rows.to_struct_array()
    return pa.RecordBatch.from_arrays([paths.cast(_PATH), stays, row], names=["file_path", "stays", "row"])


def _are_in(numbers: Positions, rising: Positions) -> np.ndarray[Any, np.dtype[np.bool_]]:
    at = np.searchsorted(rising, numbers)
    found: np.ndarray[Any, np.dtype[np.bool_]] = rising[np.minimum(at, len(rising) - 1)] == numbers
    return found
