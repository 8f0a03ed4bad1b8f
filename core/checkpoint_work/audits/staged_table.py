"""What a function of `sink.audit` is given: the table as it would be after the commit.

Its public methods are for users, documented in docs/guides/sinks.md. Drivers have no catalog: files and deletes are those of the
input of the attempt, as of any Iceberg table that is a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from checkpoint_formats.readers import reader_for
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.plain_types import decode_schema
from checkpoint_formats.rows.selecting import SelectingReader, selection_of
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import STAGED_FOLDER_PREFIX, EpochKey
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import InputRecord, PinnedIceberg
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.parts import Input

#: Makes a Spark DataFrame of pieces, each of which a task reads by `read_piece`.
MakeFrame = Callable[[Sequence["Piece"], pa.Schema], Any]
#: A source, and an input of it of one file, as JSON: what a task needs to read that.
Piece = tuple[str, str]


class StagedTable:
    """The table as it would be after the commit.

    `name` is catalog.namespace.table, `snapshot_id` the Iceberg snapshot, `schema` the Arrow schema of all columns. Each of the
    methods takes `columns` (those, in that order; None: all), `where` (a condition as in a manifest's source.where) and `added`
    (True: only the rows that the commit adds). Rows come in no order.
    """

    def __init__(
        self,
        key: EpochKey,
        source: Source,
        record: Input,
        storage: StorageSettings,
        make_frame: MakeFrame,
        note: Callable[[int], None] = lambda rows: None,
    ) -> None:
        (table,) = record.tables
        assert isinstance(table, PinnedIceberg)
        assert table.snapshot_id is not None
        self.name: str = table.table
        self.snapshot_id: int = table.snapshot_id
        self.schema: pa.Schema = decode_schema(record.arrow_schema)
        self._key = key
        self._source = source
        self._record = record
        self._storage = storage
        self._make_frame = make_frame
        self._note = note

    def reader(
        self, columns: Sequence[str] | None = None, where: str | None = None, *, added: bool = False
    ) -> pa.RecordBatchReader:
        """Return the rows as they are asked for, some 65,536 at a time. DuckDB and Polars take one as it is."""
        source = self._selected(columns, where)
        schema, given = _schemas(source, self.schema)
        return pa.RecordBatchReader.from_batches(given, self._batches(source, schema, added))

    def to_arrow(self, columns: Sequence[str] | None = None, where: str | None = None, *, added: bool = False) -> pa.Table:
        """Return the rows as a table in memory."""
        return self.reader(columns, where, added=added).read_all()

    def count(self, where: str | None = None, *, added: bool = False) -> int:
        """Return how many rows there are, or how many for which the condition is true."""
        # One column is read: how many rows of a file are deleted says no statistic.
        return sum(batch.num_rows for batch in self.reader(self.schema.names[:1], where, added=added))

    def to_spark(self, columns: Sequence[str] | None = None, where: str | None = None, *, added: bool = False) -> Any:
        """Return the rows as a pyspark.sql.DataFrame, whose tasks read the files; Spark is started when it is first asked for."""
        source = self._selected(columns, where)
        _, given = _schemas(source, self.schema)
        # Each has what the input has beside its files.
        record = InputRecord(token="0" * 32, files=(), arrow_schema=self._record.arrow_schema, tables=self._record.tables)
        as_json = source.model_dump_json(by_alias=True, exclude_defaults=True)
        pieces = [(as_json, record.model_copy(update={"files": (file,)}).model_dump_json()) for file in self._files(added)]
        return self._make_frame(pieces, given)

    def _selected(self, columns: Sequence[str] | None, where: str | None) -> Source:
        chosen = None if columns is None else tuple(columns)
        if unknown := [name for name in chosen or () if name not in self.schema.names]:
            raise ValueError(f"the table {self.name} has no column {unknown[0]!r} (it has {', '.join(self.schema.names)})")
        return self._source.model_copy(update={"columns": chosen, "where": where})

    def _files(self, added: bool) -> Iterator[SourceFile]:
        for file in self._record.files:
            if not added or _is_of(self._key, file.path):
                yield file

    def _batches(self, source: Source, schema: pa.Schema, added: bool) -> Iterator[pa.RecordBatch]:
        reader = reader_for(source, self._storage, self._record.tables)
        for file in self._files(added):
            for batch in _batches_of(reader, file, schema):
                self._note(batch.num_rows)
                yield batch


def read_piece(piece: Piece, storage: StorageSettings) -> Iterator[pa.RecordBatch]:
    """Give the rows of one file, in a task."""
    source, record = Source.model_validate_json(piece[0]), InputRecord.model_validate_json(piece[1])
    schema, _ = _schemas(source, decode_schema(record.arrow_schema))
    yield from _batches_of(reader_for(source, storage, record.tables), record.files[0], schema)


def _batches_of(reader: SelectingReader, file: SourceFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for piece in file.ranges(0):
        if piece.start != piece.end:
            for chunk in reader.read(file, Range(file=0, start=piece.start, end=piece.end), schema, BatchSizing(60.0, scale=1.0)):
                yield chunk.batch


def _schemas(source: Source, all_columns: pa.Schema) -> tuple[pa.Schema, pa.Schema]:
    """Return the columns that are read, and those that are given. ValueError if `where` cannot be understood."""
    try:
        selection = selection_of(source)
    except NeedsChange as error:
        raise ValueError(error.message) from None
    read = selection.columns_to_read
    schema = all_columns if read is None else pa.schema([all_columns.field(name) for name in read])
    return schema, schema if selection.columns is None else pa.schema([schema.field(name) for name in selection.columns])


def _is_of(key: EpochKey, path: str) -> bool:
    """Whether an epoch has staged the file, by its folder and name."""
    folder, _, name = path.rpartition("/")
    return folder.endswith(f"/{STAGED_FOLDER_PREFIX}{key.uid}") and name.startswith(f"{key.epoch}-")
