"""The merge of an upsert into an Iceberg table: its input, the deletes it stages, and the files it writes anew.

A merge reads the key columns of data files that may have one of the keys, at one snapshot, without the rows that are deleted
already; where staged rows may be deleted again, those of the staged files too. What is read of them are positions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema

from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.iceberg.deletion_vectors import as_bitmap, puffin_of
from checkpoint_formats.iceberg.file_io import open_file_io
from checkpoint_formats.iceberg.manifests_3 import LINEAGE, with_lineage
from checkpoint_formats.iceberg.plan import columns_of, find_files
from checkpoint_formats.iceberg.reader import IcebergReader
from checkpoint_formats.iceberg.stager import IcebergStager
from checkpoint_formats.merging.keys import Keys, Placed, PutPart, Wanted, make_keys
from checkpoint_formats.merging.reading import DELETED_ROWS, Positions, by_path, numbers_of, whole
from checkpoint_formats.merging.rewriting import Rest, RewritingReader, path_of
from checkpoint_formats.port import Chunk, Reader, WrappingReader
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol.identity import STAGED_FOLDER_PREFIX, EpochKey, new_token
from checkpoint_protocol.manifest.where import parse_where
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import (
    DeleteFile,
    IcebergDeletes,
    IcebergFile,
    IcebergRewrite,
    IcebergSourceFile,
    IcebergTarget,
    Merge,
    MergeKeysRecord,
    PinnedIceberg,
    StagedFile,
)
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range


@dataclass(frozen=True, slots=True)
class IcebergMerge:
    """What a merge reads of an Iceberg table. A MergeSource."""

    table: PinnedIceberg
    merge: Merge
    reader: Reader
    storage: StorageSettings

    @property
    def schema(self) -> pa.Schema:
        known = columns_of(self.table)
        return pa.schema([known.field(name) for name in Wanted.of(self.merge).columns])

    def staged_of(self, files: Iterable[StagedFile]) -> list[StagedFile]:
        return sorted((file for file in files if isinstance(file, IcebergFile)), key=lambda file: file.paths)

    def put_keys(self, staged: Sequence[StagedFile], put: PutPart) -> Keys:
        return make_keys(Wanted.of(self.merge), self.schema, self._rows_of(staged), put)

    def _rows_of(self, staged: Sequence[StagedFile]) -> Iterator[Placed]:
        for number, file in enumerate(staged):
            assert isinstance(file, IcebergFile)
            for chunk in whole(self.reader, as_source(file), Range(file=number, start=0, end=file.rows), self.schema):
                yield Placed(chunk.batch, number, numbers_of(chunk))

    def files_to_merge(self, keys: MergeKeysRecord, staged: Sequence[StagedFile]) -> tuple[SourceFile, ...]:
        """Data files of the table that may have one of the keys, and staged ones with rows to delete.

        Of the table only those that came after the snapshot that an earlier merge has read.
        """
        since = self.merge.since
        condition = parse_where(keys.where) if keys.where is not None else None
        earlier = self.table.model_copy(update={"snapshot_id": since}) if since is not None else None
        found = find_files(self.table, condition, self.storage, earlier, "Process", with_row_ids=self.merge.rewrites)
        is_read_again = bool(keys.repeated) and since is None
        again = [as_source(file) for file in staged if isinstance(file, IcebergFile)] if is_read_again else []
        return (*found, *again)

    def files_to_rewrite(
        self, staged: Sequence[StagedFile], left_out: Mapping[str, Sequence[StagedFile]]
    ) -> tuple[SourceFile, ...]:
        """Return those of the staged files that have rows to leave out: as data files with deletes."""
        of_table = (file for file in staged if isinstance(file, IcebergFile) and file.path in left_out)
        return tuple(as_source(file, tuple(map(_delete_file, left_out[file.path]))) for file in of_table)


def _delete_file(file: StagedFile) -> DeleteFile:
    assert isinstance(file, IcebergDeletes)
    return DeleteFile(path=file.path, format="parquet" if file.content_offset is None else "puffin")


def as_source(file: IcebergFile, deletes: tuple[DeleteFile, ...] = ()) -> SourceFile:
    """Return a staged file as one that is read."""
    known = IcebergSourceFile(spec_id=file.spec_id, partition=file.partition, deletes=deletes)
    return SourceFile(path=file.path, etag="", size_bytes=file.size_bytes, unit="rows", end=file.rows, iceberg=known)


# Stage deletes of rows of an Iceberg table: position delete files, or deletion vectors in format 3, each of one data file.
#
# Source of the rules: the Iceberg table specification (position delete files): reserved field ids, rows by path and position.


_FIELD_ID: Final = "PARQUET:field_id"
_STORED: Final = pa.schema(
    [
        pa.field("file_path", pa.dictionary(pa.int32(), pa.string()), nullable=False, metadata={_FIELD_ID: "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={_FIELD_ID: "2147483545"}),
    ]
)
#: Of positions that wait for the end of the segment.
_MOST_ROWS: Final = 1 << 23
_ROW_GROUP_ROWS: Final = 1 << 20


class PositionDeletesStager:
    """Writes one file for each data file that a segment deletes rows of. A Stager.

    Nothing can be staged before `begin` has told what is read.
    """

    def __init__(self, target: IcebergTarget, key: EpochKey, label: str, storage: StorageSettings) -> None:
        self._folder = f"{target.data_location.rstrip('/')}/{STAGED_FOLDER_PREFIX}{key.uid}"
        self._label = f"{key.epoch}-{label}"
        self._io = open_file_io(target.data_location, storage, most_metadata_bytes=None)
        self._storage = storage
        self._reader: IcebergReader | None = None
        self._files: dict[str, SourceFile] = {}

    @property
    def arrow_schema(self) -> pa.Schema:
        return DELETED_ROWS

    def begin(self, table: PinnedIceberg, files: Iterable[SourceFile]) -> None:
        """Take down the table as it is read, and the files that are: a deletion vector has their deletes, too."""
        if table.format_version >= 3:
            self._reader = IcebergReader(table, SourceFiles(self._storage), None)
            self._files = {file.path: file for file in files}

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[IcebergDeletes, ...]:
        """Write what the batches name; files are whole in the store when this returns."""
        held: dict[str, list[Positions]] = defaultdict(list)
        held_rows = 0
        finished: list[IcebergDeletes] = []

        def write_all() -> None:
            finished.extend(self._write(path, held.pop(path)) for path in sorted(held))

        for batch in batches:
            for path, positions in by_path(batch):
                held[path].append(positions)
            held_rows += batch.num_rows
            if held_rows >= _MOST_ROWS:
                write_all()
                held_rows = 0
        write_all()
        return tuple(finished)

    def _write(self, data_file: str, parts: list[Positions]) -> IcebergDeletes:
        positions = np.concatenate(parts)
        if self._reader is not None:
            return self._write_vector(data_file, positions, self._reader)
        positions.sort()
        paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(positions), np.int32)), pa.array([data_file]))
        rows = pa.table([paths, pa.array(positions)], schema=_STORED)
        path = f"{self._folder}/{self._label}-{new_token()}-deletes.parquet"
        with self._io.new_output(path).create() as stream:
            pq.write_table(
                rows, stream, row_group_size=_ROW_GROUP_ROWS, compression="zstd", use_dictionary=["file_path"], store_schema=False
            )
            size_bytes = stream.tell()
        return IcebergDeletes(path=path, size_bytes=size_bytes, rows=len(positions), data_file=data_file)

    def _write_vector(self, data_file: str, positions: Positions, reader: IcebergReader) -> IcebergDeletes:
        rows = as_bitmap(positions)
        known = self._files.get(data_file)  # None: a staged file, which has no deletes
        if known is not None and (deleted := reader.deleted_rows(known)) is not None:
            rows |= as_bitmap(deleted)
        data, places = puffin_of({data_file: rows})
        path = f"{self._folder}/{self._label}-{new_token()}-deletes.puffin"
        with self._io.new_output(path).create() as stream:
            stream.write(data)
        return IcebergDeletes(
            path=path,
            size_bytes=len(data),
            rows=len(positions),
            data_file=data_file,
            content_offset=places[data_file].offset,
            content_size_bytes=places[data_file].length,
            cardinality=len(rows),
        )


# Stage data files of an Iceberg table that take the place of old ones: with the rows of these that stay (copy-on-write).
#
# They are written under the schema that the old ones were read by, and say that they lie in the same partition of the same spec.
# In format 3 their rows have the ids, and the sequence numbers of their last update, that they had before.


@dataclass(frozen=True, slots=True)
class _WithDeletedRows(WrappingReader):
    """Reads data files with the rows that are deleted."""

    inner: Reader

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        assert file.iceberg is not None
        bare = replace(file, iceberg=file.iceberg.model_copy(update={"deletes": ()}))
        return self.inner.read(bare, piece, schema, sizing)


def rest_reader(table: PinnedIceberg, storage: StorageSettings) -> RewritingReader:
    """Return the reader of staged files that are written anew without the rows that their deletes name."""
    reader = IcebergReader(table, SourceFiles(storage), None)

    def rows_to_delete(file: SourceFile, _: Range) -> Positions:
        deleted = reader.deleted_rows(file)
        return np.empty(0, np.int64) if deleted is None else deleted.astype(np.int64)

    return RewritingReader(_WithDeletedRows(reader), rows_to_delete, columns_of_rewrites(table))


def columns_of_rewrites(table: PinnedIceberg) -> pa.Schema:
    """Return all columns of a row, in the types in which they are written."""
    return schema_to_pyarrow(_schema_of_rewrites(table), include_field_ids=True)


def _schema_of_rewrites(table: PinnedIceberg) -> Schema:
    schema = Schema.model_validate_json(table.table_schema_json)
    return with_lineage(schema) if table.format_version >= 3 else schema


@dataclass(slots=True)
class RewritesStager:
    """Writes the rows that stay of each data file that a segment has rows of. A Stager.

    Takes what a RewritingReader gives. Nothing can be staged before `begin` has told what is read.
    """

    target: IcebergTarget
    key: EpochKey
    label: str
    target_bytes: int
    storage: StorageSettings
    _inner: IcebergStager | None = None
    _files: dict[str, SourceFile] | None = None

    @property
    def arrow_schema(self) -> None:
        return None

    def begin(self, table: PinnedIceberg, files: Iterable[SourceFile]) -> None:
        """Take down the table as it is read, and the files that are."""
        read = {
            "table_schema_json": _schema_of_rewrites(table).model_dump_json(),
            "partition_spec_json": UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
            "sort_order_json": None,
        }
        target = self.target.model_copy(update=read)
        self._inner = IcebergStager(target, self.key, self.label, self.target_bytes, self.storage)
        self._files = {file.path: file for file in files}

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[IcebergRewrite, ...]:
        """Write what stays; files are whole in the store when this returns."""
        return tuple(self._rewrite(path, given) for path, given in groupby(batches, path_of))

    def _rewrite(self, path: str, batches: Iterator[pa.RecordBatch]) -> IcebergRewrite:
        assert self._inner is not None
        rest = Rest(batches, self._inner.stored_schema)
        files = tuple(self._placed(path, file) for file in self._inner.stage(iter(rest)))
        return IcebergRewrite(data_file=path, rows=rest.rows, files=files)

    def _placed(self, path: str, file: IcebergFile) -> IcebergFile:
        assert self._files is not None
        known = self._files[path].iceberg
        assert known is not None
        # Of row lineage, which is in no schema of the table, nothing is said.
        metrics = tuple(each for each in file.metrics if each[0] not in _LINEAGE_IDS)
        return file.model_copy(update={"spec_id": known.spec_id, "partition": known.partition, "metrics": metrics})


_LINEAGE_IDS: Final = frozenset(field.field_id for field in LINEAGE)
