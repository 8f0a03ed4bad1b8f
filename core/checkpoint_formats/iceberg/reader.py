"""Data files of an Iceberg table by row number, under the columns of the pinned schema, without the rows that are deleted."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.name_mapping import parse_mapping_from_json
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import IdentityTransform

from checkpoint_formats.failures import gone, reading
from checkpoint_formats.files.numbering import empty_chunk
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.iceberg.manifests_3 import LINEAGE, ROW_ID, with_lineage
from checkpoint_formats.iceberg.projection import projected
from checkpoint_formats.port import Chunk, in_chunks
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.parquet_rows import nearest_start, open_parquet, row_batches, row_group_starts
from checkpoint_formats.rows.plain_types import as_plain
from checkpoint_formats.rows.where import Filter
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.where import Condition
from checkpoint_protocol.records import DeleteFile, PinnedIceberg
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

_PROBLEM: Final = "it cannot be read as a data file of the table"
_WAY_OUT: Final = "repair the table, or read another snapshot of it"
_KEEP: Final = "keep the table's snapshots until its writes have committed (expire_snapshots removes files of old ones)"


@dataclass(frozen=True, slots=True)
class _Projection:
    """How the columns of one file become those of the table, by field id.

    `judged`: of the table's columns whose statistics in the file are of the values that are read, their names there.
    """

    file_schema: Schema
    constants: dict[int, Any]
    columns: tuple[str, ...]
    judged: Mapping[str, str]


class IcebergReader:
    """Positions are row numbers in a data file as it lies there: rows that the table has deleted have positions, and give none.

    A column is found by its field id: renamed and promoted ones are right, and one that a file does not have is its identity
    partition value, its initial default, or NULL. The columns of row lineage, in format 3, are asked for by their names.
    """

    def __init__(self, table: PinnedIceberg, files: SourceFiles, condition: Condition | None) -> None:
        self._table = table
        self._files = files
        self._condition = condition
        schema = Schema.model_validate_json(table.table_schema_json)
        has_lineage = table.format_version >= 3 and not {field.name for field in LINEAGE} & set(schema.column_names)
        self._schema = with_lineage(schema) if has_lineage else schema
        specs = [PartitionSpec.model_validate_json(text) for text in table.partition_specs_json]
        self._specs = {spec.spec_id: spec for spec in specs}
        self._mapping = parse_mapping_from_json(table.name_mapping_json) if table.name_mapping_json is not None else None
        self._deleted: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
        self._starts: tuple[str, tuple[int, ...]] = ("", ())

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        """Take the nearest row group, as for Parquet files. Only a file that is cut is opened for that."""
        if self._starts[0] != file.path:
            self.check_unchanged(file)
            with self._reading(file), self._files.open_arrow(file.path) as opened, pq.ParquetFile(opened) as parquet:
                self._starts = (file.path, row_group_starts(parquet.metadata))
        return nearest_start(self._starts[1], file.end or 0, position, slack)

    def check_unchanged(self, file: SourceFile) -> None:
        """A data file is never written again, so that it is the same if it is there with its size."""
        now = self._files.head(file.path)
        if now is None:
            raise self._gone(f"the data file {file.path}")
        if now.size_bytes != file.size_bytes:
            raise NeedsChange(
                reasons.SOURCE_CHANGED,
                f"source: the data file {file.path} of snapshot {self._table.snapshot_id} of the table {self._table.table} has "
                f"{now.size_bytes} bytes, and the table says {file.size_bytes}; restore it, or start a new write",
            )

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        assert file.iceberg is not None
        self.check_unchanged(file)
        if piece.start == piece.end:
            yield empty_chunk(piece, schema)
            return
        deleted = self.deleted_rows(file)
        with (
            self._reading(file),
            self._files.open_arrow(file.path) as opened,
            open_parquet(opened, file, len(schema)) as parquet,
        ):
            if parquet.metadata.num_rows != file.end:
                raise ValueError(f"it has {parquet.metadata.num_rows} rows, and the table says {file.end}")
            end = parquet.metadata.num_rows if piece.end is None else piece.end
            projection = self._projection(file, parquet.schema_arrow, schema)
            rows = None if self._condition is None else Filter(self._condition, schema)

            def may_take(group: pq.RowGroupMetaData) -> bool:
                return rows is None or rows.may_take(group, projection.judged)

            for batch, start, stop in row_batches(parquet, piece.start, end, projection.columns, may_take):
                rows_there = None if batch is None else _with_row_ids(self._project(batch, projection, schema), file, start)
                for chunk in in_chunks(rows_there, start, stop, schema, sizing):
                    yield _without(chunk, deleted)

    # --- columns --------------------------------------------------------------------------------------------------------------

    def _projection(self, file: SourceFile, physical: pa.Schema, schema: pa.Schema) -> _Projection:
        version: Any = self._table.format_version
        file_schema = pyarrow_to_schema(physical, self._mapping, downcast_ns_timestamp_to_us=True, format_version=version)
        by_id = {field.field_id: field.name for field in file_schema.fields}
        wanted = [field for field in self._schema.fields if field.name in schema.names]
        names = {field.name: by_id[field.field_id] for field in wanted if field.field_id in by_id}
        missing = Schema(*wanted).field_ids - file_schema.field_ids
        # Nanoseconds are cut off when rows are read, and are in the statistics.
        judged = {name: there for name, there in names.items() if not _has_nanoseconds(physical.field(there).type)}
        return _Projection(file_schema, self._constants(file, missing), tuple(names.values()), judged)

    def _constants(self, file: SourceFile, missing: set[int]) -> dict[int, Any]:
        """Return the identity partition values of columns that the file does not have (tables that were migrated from Hive)."""
        assert file.iceberg is not None
        found = {}
        for field, value in zip(self._specs[file.iceberg.spec_id].fields, file.iceberg.partition, strict=True):
            if value is not None and field.source_id in missing and isinstance(field.transform, IdentityTransform):
                kind: Any = self._schema.find_type(field.source_id)
                found[field.source_id] = from_bytes(kind, base64.b64decode(value))
        return found

    def _project(self, batch: pa.RecordBatch, projection: _Projection, schema: pa.Schema) -> pa.RecordBatch:
        wanted = Schema(*(field for field in self._schema.fields if field.name in schema.names))
        try:
            return as_plain(projected(batch, wanted, projection.file_schema, projection.constants), schema)
        except ResolveError as error:
            raise ValueError(str(error)) from error

    # --- deletes --------------------------------------------------------------------------------------------------------------

    def deleted_rows(self, file: SourceFile) -> np.ndarray[Any, Any] | None:
        """Return the numbers of the file's deleted rows, rising; None if there are none."""
        assert file.iceberg is not None
        found = [part for delete in file.iceberg.deletes if (part := self._read_deletes(delete).get(file.path)) is not None]
        if not found:
            return None
        # Sorted, and not np.unique: that makes a hash table of integers, which takes ten times as long.
        numbers = np.sort(np.concatenate(found))
        return numbers[np.concatenate(([True], numbers[1:] != numbers[:-1]))] if len(numbers) else numbers

    def _read_deletes(self, delete: DeleteFile) -> dict[str, np.ndarray[Any, Any]]:
        """Read a delete file once for all files of a task: what it says of each data file."""
        if delete.path not in self._deleted:
            if self._files.head(delete.path) is None:
                raise self._gone(f"the delete file {delete.path}")
            with (
                reading(delete.path, "it cannot be read as a delete file", _WAY_OUT, self._files.settings_place),
                self._files.open_arrow(delete.path) as opened,
            ):
                if delete.format == "puffin":
                    vectors = deletion_vectors_from_puffin_file(PuffinFile(opened.read()))
                    self._deleted[delete.path] = {
                        vector.referenced_data_file: vector.to_vector().to_numpy() for vector in vectors
                    }
                else:
                    self._deleted[delete.path] = _positions(pq.read_table(opened, columns=["file_path", "pos"]))
        return self._deleted[delete.path]

    # --- what can go wrong ----------------------------------------------------------------------------------------------------

    def _reading(self, file: SourceFile) -> Any:
        return reading(file.path, _PROBLEM, _WAY_OUT, self._files.settings_place)

    def _gone(self, what: str) -> NeedsChange:
        return gone(what, f"snapshot {self._table.snapshot_id} of the table {self._table.table}", _KEEP)


def _positions(table: pa.Table) -> dict[str, np.ndarray[Any, Any]]:
    paths = table.column("file_path").combine_chunks().dictionary_encode()
    if isinstance(paths, pa.ChunkedArray):
        paths = paths.combine_chunks()
    numbers, positions = paths.indices.to_numpy(), table.column("pos").to_numpy()
    return {path: positions[numbers == number] for number, path in enumerate(paths.dictionary.to_pylist())}


def _with_row_ids(rows: pa.RecordBatch, file: SourceFile, start: int) -> pa.RecordBatch:
    """Give rows the id, and the sequence number, that they inherit from their data file, where they have none of their own."""
    if ROW_ID.name not in rows.schema.names:
        return rows
    known = file.iceberg
    assert known is not None
    if known.first_row_id is None or known.sequence_number is None:  # staged just now, or from before the table had format 3
        return rows
    first = known.first_row_id + start
    inherited = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64)), pa.scalar(known.sequence_number, pa.int64())
    for field, values in zip(LINEAGE, inherited, strict=True):
        number = rows.schema.get_field_index(field.name)
        rows = rows.set_column(number, rows.schema.field(number), pc.coalesce(rows.column(number), values))
    return rows


def _has_nanoseconds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _without(chunk: Chunk, deleted: np.ndarray[Any, Any] | None) -> Chunk:
    """Return the chunk without its deleted rows. What it covers stays."""
    if deleted is None or chunk.end is None or chunk.batch.num_rows == 0:
        return chunk
    first, after = np.searchsorted(deleted, (chunk.start, chunk.end))
    if first == after:
        return chunk
    alive = np.ones(chunk.batch.num_rows, dtype=bool)
    alive[deleted[first:after] - chunk.start] = False
    kept = pc.indices_nonzero(pa.array(alive))
    return Chunk(chunk.batch.take(kept), chunk.start, chunk.end, kept)
