"""The merge of an upsert into an Iceberg table: the keys of the staged rows, and its input.

A merge reads the key columns of data files that may have one of the keys, at one snapshot, without the rows that are deleted
already; where staged rows may be deleted again, those of the staged files too. What is read of them are positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from checkpoint_formats.iceberg.plan import columns_of, find_files
from checkpoint_formats.merging.keys import Keys, Placed, PutPart, Wanted, make_keys
from checkpoint_formats.merging.reading import numbers_of, whole
from checkpoint_formats.port import Reader
from checkpoint_protocol.manifest.where import parse_where
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import (
    IcebergFile,
    IcebergSourceFile,
    Merge,
    MergeKeysRecord,
    PinnedIceberg,
    SourceFile,
    StagedFile,
)
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
        found = find_files(self.table, condition, self.storage, earlier, "Process")
        is_read_again = bool(keys.repeated) and since is None
        again = [as_source(file) for file in staged if isinstance(file, IcebergFile)] if is_read_again else []
        return (*found, *again)


def as_source(file: IcebergFile) -> SourceFile:
    """Return a staged file as one that is read."""
    known = IcebergSourceFile(spec_id=file.spec_id, partition=file.partition, deletes=())
    return SourceFile(path=file.path, etag="", size_bytes=file.size_bytes, unit="rows", end=file.rows, iceberg=known)
