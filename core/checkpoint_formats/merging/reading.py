"""The reader of a merge: for each file the rows that are to be deleted, by where they lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_formats.merging.keys import column_of
from checkpoint_formats.merging.matching import Found, LoadPart, Matcher, open_matcher
from checkpoint_formats.port import Chunk, Reader, WrappingReader
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol.records import Merge, MergeKeysRecord
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

#: What a merge gives for each row that is to be deleted.
DELETED_ROWS: Final = pa.schema([("file_path", pa.string()), ("pos", pa.int64())])

#: Key columns are read as fast as that goes: nothing else is done with them.
_INTERVAL_S: Final = 3_600.0
_MOST_ROWS: Final = 1 << 16

Positions = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class WholeFiles(WrappingReader):
    """Reads files of which each is done by one task: what is made of one would else be in several files."""

    inner: Reader

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        assert file.end is not None
        return file.end


@dataclass(slots=True)
class MatchingReader(WrappingReader):
    """Gives where rows lie that are to be deleted, instead of the rows of an inner reader.

    Positions are those of the file that is read; a file is read as a whole, by one task.
    """

    inner: Reader
    merge: Merge
    keys: MergeKeysRecord
    load: LoadPart
    schema: pa.Schema
    resources: ExitStack
    _matcher: Matcher | None = None
    _staged: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._staged = {path: number for number, path in enumerate(self.keys.files)}

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        """A file is not cut: its deletes would be in several files."""
        assert file.end is not None
        return file.end

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        found = self._found(file, piece)
        start, end = piece.start, piece.end
        for first in range(0, max(1, len(found.at)), _MOST_ROWS):
            after = min(first + _MOST_ROWS, len(found.at))
            stop = end if after == len(found.at) else int(found.at[after - 1]) + 1
            at = found.at[first:after]
            yield Chunk(self._named(file, found, slice(first, after)), start, stop, kept=pa.array(at - start))
            assert stop is not None
            start = stop

    def rows_to_delete(self, file: SourceFile, piece: Range) -> Positions:
        """Return the numbers of the rows of the file itself that are to be deleted, rising. Not for `whenMatched: Ignore`."""
        assert self.merge.when_matched != "Ignore"
        return self._found(file, piece).at

    def _found(self, file: SourceFile, piece: Range) -> Found:
        number = self._staged.get(file.path)
        rows = self._rows(file, piece)
        if number is not None:
            return self._opened().rows_that_do_not_count(rows, number)
        if self.merge.when_matched == "Ignore":
            return self._opened().staged_rows_with_a_key(rows)
        return self._opened().rows_with_a_key(rows)

    def _opened(self) -> Matcher:
        if self._matcher is None:
            kinds = [self.schema.field(name).type for name in self.merge.keys]
            self._matcher = self.resources.enter_context(open_matcher(self.keys, self.load, kinds))
        return self._matcher

    def _rows(self, file: SourceFile, piece: Range) -> Iterator[pa.RecordBatch]:
        names = [*(column_of(number) for number in range(len(self.merge.keys))), "pos"]
        for chunk in whole(self.inner, file, piece, self.schema):
            columns = [chunk.batch.column(name) for name in self.merge.keys]
            yield pa.RecordBatch.from_arrays([*columns, numbers_of(chunk)], names=names)

    def _named(self, file: SourceFile, found: Found, rows: slice) -> pa.RecordBatch:
        if found.file is None or found.pos is None:
            positions: np.ndarray[Any, Any] = found.at[rows]
            paths = pa.array([file.path]).take(pa.array(np.zeros(len(positions), np.int32)))
        else:
            positions = found.pos[rows]
            paths = pa.array(self.keys.files, pa.string()).take(pa.array(found.file[rows]))
        return pa.RecordBatch.from_arrays([paths, pa.array(positions, pa.int64())], schema=DELETED_ROWS)


def whole(reader: Reader, file: SourceFile, piece: Range, schema: pa.Schema) -> Iterator[Chunk]:
    """Read a piece of a file as fast as that goes."""
    return reader.read(file, piece, schema, BatchSizing(_INTERVAL_S, scale=1.0))


def numbers_of(chunk: Chunk) -> pa.Array:
    """Return the numbers of a chunk's rows in their file."""
    if chunk.kept is None:
        return pa.array(np.arange(chunk.start, chunk.start + chunk.batch.num_rows, dtype=np.int64))
    numbers: np.ndarray[Any, Any] = chunk.kept.to_numpy(zero_copy_only=False)
    return pa.array(numbers.astype(np.int64) + chunk.start)


def by_path(batch: pa.RecordBatch) -> Iterator[tuple[str, Positions]]:
    """Part rows of DELETED_ROWS by their files."""
    positions: Positions = batch.column("pos").to_numpy()
    paths = pc.dictionary_encode(batch.column("file_path"))
    if len(paths.dictionary) == 1:
        yield paths.dictionary[0].as_py(), positions
        return
    numbers = paths.indices.to_numpy()
    for number, path in enumerate(paths.dictionary.to_pylist()):
        yield path, positions[numbers == number]
