"""Stage Iceberg data files: Parquet with field ids and statistics, rolled by real bytes, one open file per partition value.

Sources of the rules: the Iceberg table specification (column projection by field id, appendix D on single-value serialization
for bounds and partition values).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from checkpoint_formats.dictionaries import not_worth_a_dictionary
from checkpoint_formats.iceberg.file_io import open_file_io
from checkpoint_formats.pieces import cut
from checkpoint_protocol.identity import STAGED_FOLDER_PREFIX, EpochKey, new_token
from checkpoint_protocol.records import FieldMetrics, IcebergFile, IcebergTarget
from checkpoint_protocol.storage import StorageSettings

_ROW_GROUP_BYTES: Final = 64 << 20
_BUFFERED_BYTES: Final = 192 << 20
_OPEN_FILES: Final = 128

_Partition = tuple[bytes | None, ...]


@dataclass(slots=True)
class _OpenFile:
    """A data file that is being written; batches wait in `pending` until they make a row group."""

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

    def write_row_group(self, schema: pa.Schema) -> None:
        if self.pending:
            table = pa.Table.from_batches(self.pending, schema=schema)
            self._writer = self._writer or self.begin(table)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            self.pending, self.pending_bytes = [], 0

    def finish(self, schema: pa.Schema) -> pq.FileMetaData:
        """Write what is pending and the footer; return that. At least one batch was added."""
        self.write_row_group(schema)
        assert self._writer is not None
        self._writer.close()
        return self._writer.writer.metadata


class IcebergStager:
    """Writes the data files of one task try. Names carry a random token, so that nothing is ever overwritten."""

    def __init__(self, target: IcebergTarget, key: EpochKey, label: str, target_bytes: int, storage: StorageSettings) -> None:
        self._target = target
        self._folder = f"{target.data_location.rstrip('/')}/{STAGED_FOLDER_PREFIX}{key.uid}"
        self._label = f"{key.epoch}-{label}"
        self._target_bytes = target_bytes
        self._schema = Schema.model_validate_json(target.table_schema_json)
        self._spec = PartitionSpec.model_validate_json(target.partition_spec_json)
        self._arrow_schema: pa.Schema = schema_to_pyarrow(self._schema, include_field_ids=True)
        self._io = open_file_io(target.data_location, storage)
        self._statistics_plan = compute_statistics_plan(self._schema, {})
        self._ids_by_path = parquet_path_to_id_mapping(self._schema)
        self._partition_types = [_value_type(partition, self._schema) for partition in self._spec.fields]

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._arrow_schema

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[IcebergFile, ...]:
        """Write the batches; files are whole in the store when this returns."""
        open_files: dict[_Partition, _OpenFile] = {}
        finished: list[IcebergFile] = []
        row_group_bytes = min(_ROW_GROUP_BYTES, self._target_bytes)
        for batch in (piece for given in batches for piece in cut(given, row_group_bytes)):
            for partition, part in self._split(batch):
                if partition not in open_files:
                    if len(open_files) >= _OPEN_FILES:
                        fullest = max(open_files, key=lambda value: open_files[value].stream.tell())
                        finished.append(self._finish(fullest, open_files.pop(fullest)))
                    open_files[partition] = self._open()
                data_file = open_files[partition]
                data_file.add(part)
                if data_file.pending_bytes >= row_group_bytes:
                    data_file.write_row_group(self._arrow_schema)
                    if data_file.stream.tell() >= self._target_bytes:
                        finished.append(self._finish(partition, open_files.pop(partition)))
            while sum(data_file.pending_bytes for data_file in open_files.values()) > _BUFFERED_BYTES:
                max(open_files.values(), key=lambda data_file: data_file.pending_bytes).write_row_group(self._arrow_schema)
        finished.extend(self._finish(partition, data_file) for partition, data_file in open_files.items())
        return tuple(finished)

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[_Partition, pa.RecordBatch]]:
        """Divide a batch by partition value."""
        if self._spec.is_unpartitioned():
            yield (), batch
            return
        names = [f"p{number}" for number in range(len(self._spec.fields))]
        values = pa.table(
            [
                partition.transform.pyarrow_transform(self._schema.find_type(partition.source_id))(
                    _column(batch, self._schema, partition.source_id)
                )
                for partition in self._spec.fields
            ],
            names=names,
        ).append_column("row", pa.array(range(batch.num_rows), pa.int64()))
        groups = values.group_by(names, use_threads=False).aggregate([("row", "list")])
        for number in range(groups.num_rows):
            value = tuple(self._encoded(index, groups.column(name)[number].as_py()) for index, name in enumerate(names))
            rows = groups.column("row_list")[number].values
            yield value, batch if len(rows) == batch.num_rows else batch.take(rows)

    def _encoded(self, index: int, value: Any) -> bytes | None:
        if value is None:
            return None
        internal = partition_record_value(self._spec.fields[index], value, self._schema)
        return to_bytes(self._partition_types[index], internal)

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
            use_dictionary=[path for path in self._ids_by_path if path not in distinct] or False,
            store_decimal_as_integer=True,
        )

    def _finish(self, partition: _Partition, data_file: _OpenFile) -> IcebergFile:
        footer = data_file.finish(self._arrow_schema)
        size_bytes = data_file.stream.tell()
        data_file.stream.close()
        statistics = data_file_statistics_from_parquet_metadata(
            footer, self._statistics_plan, self._ids_by_path
        ).to_serialized_dict()
        return IcebergFile(
            path=data_file.path,
            size_bytes=size_bytes,
            rows=statistics["record_count"],
            schema_id=self._schema.schema_id,
            spec_id=self._spec.spec_id,
            partition=tuple(None if value is None else base64.b64encode(value).decode() for value in partition),
            metrics=_metrics(statistics),
            split_offsets=tuple(statistics["split_offsets"] or ()),
        )


def _value_type(field: PartitionField, schema: Schema) -> PrimitiveType:
    result = field.transform.result_type(schema.find_type(field.source_id))
    assert isinstance(result, PrimitiveType)
    return result


def _column(batch: pa.RecordBatch, schema: Schema, field_id: int) -> pa.Array:
    """Return a column, which may lie inside structs."""
    head, *rest = (schema.find_column_name(field_id) or "").split(".")
    if head not in batch.schema.names:  # a name with dots in it
        return batch.column(schema.find_column_name(field_id))
    column = batch.column(head)
    for name in rest:
        column = pa.compute.struct_field(column, name)
    return column


def _metrics(statistics: dict[str, Any]) -> tuple[FieldMetrics, ...]:
    columns = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    field_ids = sorted({field_id for name in columns for field_id in statistics[name]})
    return tuple(
        FieldMetrics(
            field_id=field_id,
            column_size=statistics["column_sizes"].get(field_id),
            value_count=statistics["value_counts"].get(field_id),
            null_count=statistics["null_value_counts"].get(field_id),
            nan_count=statistics["nan_value_counts"].get(field_id),
            lower=_bound(statistics["lower_bounds"].get(field_id)),
            upper=_bound(statistics["upper_bounds"].get(field_id)),
        )
        for field_id in field_ids
    )


def _bound(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
