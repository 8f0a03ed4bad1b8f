"""Stage Iceberg data files: Parquet with field ids and statistics, rolled by real bytes, one open file per partition value.

Where the table has a sort order, the rows of a file wait in memory until there are enough for one: then they are sorted, written
at once, and the file ends. So memory bounds the size of a sorted file, and no disk is needed.

Sources of the rules: the Iceberg table specification (column projection by field id, sorting, appendix D on single-value
serialization for bounds and partition values).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from checkpoint_formats.iceberg.file_io import open_file_io
from checkpoint_formats.iceberg.writing import write_properties
from checkpoint_formats.iceberg.writing.metrics import FileStatistics
from checkpoint_formats.iceberg.writing.transforms import as_stored, encoded, sorted_rows, transformed, value_type
from checkpoint_formats.iceberg.writing.write_properties import with_defaults
from checkpoint_formats.rows.batch_sizing import cut
from checkpoint_formats.rows.parquet_rows import not_worth_a_dictionary
from checkpoint_protocol.identity import STAGED_FOLDER_PREFIX, EpochKey, new_token
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import IcebergFile, IcebergTarget

_ROW_GROUP_BYTES: Final = 64 << 20
_BUFFERED_BYTES: Final = 192 << 20
#: Of rows that wait to be sorted: there is a copy of them while that is done.
_UNSORTED_BYTES: Final = 128 << 20
_OPEN_FILES: Final = 128

_Partition = tuple[bytes | None, ...]


@dataclass(slots=True)
class _OpenFile:
    """A data file that is being written; batches wait in `pending` until they make a row group, or a file that is sorted."""

    path: str
    stream: Any
    #: Begins the file for these rows, which are its first.
    begin: Callable[[pa.Table], pq.ParquetWriter]
    pending: list[pa.RecordBatch] = field(default_factory=list)
    pending_bytes: int = 0
    _writer: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        self.pending.append(batch)
        self.pending_bytes += batch.nbytes

    @property
    def size_bytes(self) -> int:
        """What there is of it, in the store and in memory."""
        return int(self.stream.tell()) + self.pending_bytes

    def sort(self, order: Callable[[pa.RecordBatch], pa.Array], row_group_bytes: int) -> None:
        """Write all that is pending in that order: row groups of about so many bytes in memory."""
        rows, rows_bytes = pa.concat_batches(self.pending), self.pending_bytes
        self.pending, self.pending_bytes = [], 0
        numbers = order(rows)
        step = max(1, rows.num_rows * row_group_bytes // max(1, rows_bytes))
        for start in range(0, rows.num_rows, step):
            self._write(pa.Table.from_batches([rows.take(numbers.slice(start, step))]))

    def write_row_group(self, schema: pa.Schema) -> None:
        if self.pending:
            self._write(pa.Table.from_batches(self.pending, schema=schema))
            self.pending, self.pending_bytes = [], 0

    def finish(self, schema: pa.Schema) -> pq.FileMetaData:
        """Write what is pending and the footer; return that. At least one batch was added."""
        self.write_row_group(schema)
        assert self._writer is not None
        self._writer.close()
        return self._writer.writer.metadata

    def _write(self, table: pa.Table) -> None:
        self._writer = self._writer or self.begin(table)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))


class IcebergStager:
    """Writes the data files of one task try. Names carry a random token, so that nothing is ever overwritten."""

    def __init__(self, target: IcebergTarget, key: EpochKey, label: str, target_bytes: int, storage: StorageSettings) -> None:
        self._target = target
        self._folder = f"{target.data_location.rstrip('/')}/{STAGED_FOLDER_PREFIX}{key.uid}"
        self._label = f"{key.epoch}-{label}"
        self._target_bytes = target_bytes
        self._schema = Schema.model_validate_json(target.table_schema_json)
        self._spec = PartitionSpec.model_validate_json(target.partition_spec_json)
        self._order = SortOrder.model_validate_json(target.sort_order_json) if target.sort_order_json is not None else None
        self._properties = write_properties.parse(dict(target.write_properties), self._schema, self._order)
        self._arrow_schema: pa.Schema = schema_to_pyarrow(self._schema, include_field_ids=True)
        self._io = open_file_io(target.data_location, storage, most_metadata_bytes=None)
        self._statistics = FileStatistics(self._schema, self._properties.metrics)
        self._partition_types = [value_type(partition, self._schema) for partition in self._spec.fields]
        self._row_group_bytes = min(self._properties.row_group_bytes or _ROW_GROUP_BYTES, _BUFFERED_BYTES, target_bytes)

    @property
    def arrow_schema(self) -> pa.Schema:
        return with_defaults(self._arrow_schema, self._schema)

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns as they are written."""
        return self._arrow_schema

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[IcebergFile, ...]:
        """Write the batches; files are whole in the store when this returns."""
        open_files: dict[_Partition, _OpenFile] = {}
        finished: list[IcebergFile] = []

        def finish(partition: _Partition) -> None:
            finished.append(self._finish(partition, open_files.pop(partition)))

        for batch in (piece for given in batches for piece in cut(given, self._row_group_bytes)):
            for partition, part in self._split(batch):
                if partition not in open_files:
                    if len(open_files) >= _OPEN_FILES:
                        finish(max(open_files, key=lambda value: open_files[value].size_bytes))
                    open_files[partition] = self._open()
                open_files[partition].add(part)
                if self._is_full(open_files[partition]):
                    finish(partition)
            while sum(data_file.pending_bytes for data_file in open_files.values()) > self._most_pending_bytes:
                largest = max(open_files, key=lambda value: open_files[value].pending_bytes)
                if self._order is None:
                    open_files[largest].write_row_group(self._arrow_schema)
                else:
                    finish(largest)
        for partition in tuple(open_files):
            finish(partition)
        return tuple(finished)

    @property
    def _most_pending_bytes(self) -> int:
        return _BUFFERED_BYTES if self._order is None else _UNSORTED_BYTES

    def _is_full(self, data_file: _OpenFile) -> bool:
        """Write a row group if there is enough for one; return whether there is enough for a file."""
        if self._order is not None:
            return data_file.pending_bytes >= min(self._target_bytes, _UNSORTED_BYTES)
        if data_file.pending_bytes < self._row_group_bytes:
            return False
        data_file.write_row_group(self._arrow_schema)
        return int(data_file.stream.tell()) >= self._target_bytes

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[_Partition, pa.RecordBatch]]:
        """Divide a batch by partition value."""
        if self._spec.is_unpartitioned():
            yield (), batch
            return
        columns = [as_stored(transformed(batch, self._schema, part.source_id, part.transform)) for part in self._spec.fields]
        names = [f"p{number}" for number in range(len(columns))]
        values = pa.table(columns, names=names).append_column("row", pa.array(range(batch.num_rows), pa.int64()))
        groups = values.group_by(names, use_threads=False).aggregate([("row", "list")])
        for number in range(groups.num_rows):
            given = [groups.column(name)[number].as_py() for name in names]
            value = tuple(encoded(kind, each) for kind, each in zip(self._partition_types, given, strict=True))
            rows = groups.column("row_list")[number].values
            yield value, batch if len(rows) == batch.num_rows else batch.take(rows)

    def _open(self) -> _OpenFile:
        path = f"{self._folder}/{self._label}-{new_token()}.parquet"
        stream = self._io.new_output(path).create()
        return _OpenFile(path, stream, partial(self._begin, stream))

    def _begin(self, stream: Any, rows: pa.Table) -> pq.ParquetWriter:
        distinct = not_worth_a_dictionary(rows)
        return pq.ParquetWriter(
            stream,
            self._arrow_schema,
            compression=None if self._target.codec == "uncompressed" else self._target.codec,
            compression_level=self._target.codec_level,
            # Nested columns are known by the paths of their leaves; all of them begin with a dictionary.
            use_dictionary=[path for path in self._statistics.paths if path not in distinct] or False,
            data_page_size=self._properties.page_bytes,
            dictionary_pagesize_limit=self._properties.dictionary_bytes,
            store_decimal_as_integer=True,
        )

    def _finish(self, partition: _Partition, data_file: _OpenFile) -> IcebergFile:
        if self._order is not None:
            data_file.sort(partial(sorted_rows, schema=self._schema, order=self._order), self._row_group_bytes)
        footer = data_file.finish(self._arrow_schema)
        size_bytes = data_file.stream.tell()
        data_file.stream.close()
        rows, metrics, split_offsets = self._statistics.of(footer)
        return IcebergFile(
            path=data_file.path,
            size_bytes=size_bytes,
            rows=rows,
            schema_id=self._schema.schema_id,
            spec_id=self._spec.spec_id,
            partition=tuple(None if value is None else base64.b64encode(value).decode() for value in partition),
            metrics=metrics,
            split_offsets=split_offsets,
            sort_order_id=None if self._order is None else self._order.order_id,
        )
