"""Columns of folders `key=value`, added to what a format reads: in one place, for every format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.numbering import empty_chunk
from checkpoint_formats.files.partition_folders import PartitionColumns, folders_of, keys_of
from checkpoint_formats.port import NOTHING_TAKEN, Chunk, Described, FileReader, TakenColumns, WrappingReader
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.where import Filter
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.source import FilesSource
from checkpoint_protocol.manifest.where import AllOf, Condition, columns_of
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

#: Makes the reader of a format for files in folders of these keys, and of columns and a condition that it can know.
Make = Callable[[FilesSource, Condition | None], FileReader]


class PartitionedReader(WrappingReader, FileReader):
    """Reads files by the reader of their format, and gives each row the values of its file's folders.

    The values are as certain as the path, by which the file is recorded. A file that has a column of that name itself is refused:
    neither value is to replace the other unsaid. Files in folders that `where` leaves out are not read.
    """

    def __init__(self, source: FilesSource, columns: Sequence[str] | None, condition: Condition | None, make: Make) -> None:
        self._source = source
        self._columns = columns
        #: Rows are taken where each of them is true.
        self._parts: tuple[Condition, ...] = (
            () if condition is None else tuple(condition.parts) if isinstance(condition, AllOf) else (condition,)
        )
        self._make = make
        self._partitions = PartitionColumns(source.types)
        #: By the keys of folders. The first is made now, so that what the source says wrong of its format is told here.
        self._readers: dict[tuple[str, ...], FileReader] = {(): make(source, condition)}

    def inner_of(self, file: SourceFile | FoundFile) -> FileReader:
        """Return the reader of what a file has itself."""
        keys = tuple(folders_of(file.path))
        if keys not in self._readers:
            types = {name: text for name, text in self._source.types.items() if name not in keys}
            own = self._source.model_copy(update={"types": types})
            about = [part for part in self._parts if set(columns_of(part)).isdisjoint(keys)]
            self._readers[keys] = self._make(own, AllOf(tuple(about)) if about else None)
        return self._readers[keys]

    def check(self, file: FoundFile) -> None:
        self.inner_of(file).check(file)

    def describe(self, found: Sequence[FoundFile], taken: TakenColumns = NOTHING_TAKEN) -> Described:
        paths = [file.path for file in found]
        described = self.inner_of(found[0]).describe(found, taken)  # first: the folder of a table is refused as such
        keys = keys_of(paths)
        stray = [name for name in self._source.types if name not in keys]
        if stray and not self._source.is_text:
            raise NeedsChange(
                reasons.MANIFEST_INVALID,
                f"source.files.types.{stray[0]}: {described.place} lies in no folder {stray[0]}=..., and {self._source.format} "
                "files have types of their own; leave it out, or cast in a step",
            )
        if not keys:
            return described
        for key in keys:
            if key in described.known:
                raise _has_it_itself(described.place, key)
        chosen = [key for key in keys if self._columns is None or key in self._columns]
        if not described.schema.names and self._source.is_text:
            raise NeedsChange(
                reasons.MANIFEST_INVALID,
                f"source.columns names columns of folders only ({', '.join(chosen)}), and rows of text are found by columns of "
                f"their own; add one of {', '.join(described.known)}",
            )
        schema = pa.schema([*described.schema, *self._partitions.schema(chosen, paths)])
        return replace(described, schema=schema, known=(*described.known, *keys))

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        inner = self.inner_of(file)
        keys = [key for key in folders_of(file.path) if key in schema.names]
        if not keys:
            yield from inner.read(file, piece, schema, sizing)
            return
        row = self._partitions.row(file.path, pa.schema([schema.field(key) for key in keys]))
        if piece.start == piece.end or not self._may_take(row):
            inner.check_unchanged(file)
            yield empty_chunk(piece, schema)
            return
        if len(keys) == len(schema) and file.end is not None:
            inner.check_unchanged(file)
            yield from _rows_of_folders(row, piece.start, file.end if piece.end is None else piece.end, schema, sizing)
            return
        for chunk in inner.read(file, piece, schema, sizing):
            yield replace(chunk, batch=_with_folders(file.path, chunk.batch, row))

    def _may_take(self, row: pa.RecordBatch) -> bool:
        """Whether `where` may take rows of a file, by those of its parts that are about folders alone."""
        names = set(row.schema.names)
        about = [part for part in self._parts if set(columns_of(part)) <= names]
        return all(len(Filter(part, row.schema).take(row)) for part in about)


def _with_folders(path: str, batch: pa.RecordBatch, row: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the values of the folders, in the place of columns that the format's reader has found nowhere."""
    arrays = list(batch.columns)
    for name in row.schema.names:
        index = batch.schema.get_field_index(name)
        if arrays[index].null_count < batch.num_rows:
            raise _has_it_itself(f"source file {path}", name)
        arrays[index] = _repeated(row.column(name), batch.num_rows)
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _rows_of_folders(row: pa.RecordBatch, start: int, end: int, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
    """Give rows of which nothing is asked for that the file has, so that it need not be read."""
    while start < end:
        stop = min(end, start + max(1, sizing.rows))
        arrays = [_repeated(row.column(field.name), stop - start) for field in schema]
        yield Chunk(pa.RecordBatch.from_arrays(arrays, schema=schema), start, stop)
        start = stop


def _repeated(value: pa.Array, rows: int) -> pa.Array:
    return value.take(pa.array([0] * rows, pa.int32()))


def _has_it_itself(place: str, name: str) -> NeedsChange:
    return NeedsChange(
        reasons.SOURCE_UNREADABLE,
        f"{place} has a column {name!r} itself, and lies in a folder {name}=...: it cannot be told which value counts; set "
        "source.files.partitions: Ignore to take the file's own, or rename the folder",
    )
