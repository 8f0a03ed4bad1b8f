"""Upsert into an Iceberg table: one snapshot with the staged files, and with position deletes of the rows that they replace.

Which rows these are, merges have found: stages of the epoch that read the table at a head of it (`iceberg_merges.py`). A commit
takes what they found if there is no data file in the table that none of them has read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation as SnapshotOperation
from pyiceberg.table.snapshots import Summary
from pyiceberg.typedef import Record as PartitionRecord

from checkpoint_operator.commit.iceberg_append import IcebergAppend, OwnFiles
from checkpoint_operator.commit.iceberg_change import TableVersion
from checkpoint_operator.commit.iceberg_entries import partition_of
from checkpoint_operator.commit.iceberg_manifests import write_deletes
from checkpoint_operator.commit.iceberg_merges import Merged, find_unread
from checkpoint_operator.commit.metadata_files import MetadataFile
from checkpoint_operator.commit.outcomes import Rejected
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.records import IcebergDeletes, IcebergFile, Upsert

#: The column of a position delete file that names the data file.
_FILE_PATH: Final = 2147483546


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a data file lies among the partitions. Deletes of its rows lie there, too."""

    spec_id: int
    partition: PartitionRecord


@dataclass(slots=True)
class IcebergUpsert:
    """An upsert with all staged files of an epoch. An IcebergChange.

    `merged`: what merges have found; None: that is not known, and it cannot be committed.
    """

    operation: Upsert
    staged: IcebergAppend
    places: Mapping[str, _Place]
    locations: Sequence[str]
    merged: Merged | None = None
    _deletes: dict[str, IcebergDeletes] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.staged)

    @property
    def snapshot_id(self) -> int:
        return self.staged.snapshot_id

    @property
    def adds_rows(self) -> bool:
        return self.operation.when_matched != "Delete"

    @property
    def sizes(self) -> Mapping[str, Mapping[str, int]]:
        """Of what the snapshot names: keys alone that are deleted need not be there any more."""
        found = {folder: dict(names) for folder, names in self.staged.sizes.items()} if self.adds_rows else {}
        for deletes in self._found:
            folder, _, name = deletes.path.rpartition("/")
            found.setdefault(folder, {})[name] = deletes.size_bytes
        return found

    @property
    def incompatibility(self) -> Rejected | None:
        if self.staged.incompatibility is not None:
            return self.staged.incompatibility
        own = OwnFiles(self.staged.key, self.locations)
        for deletes in self._found:
            folder, _, name = deletes.path.rpartition("/")
            if own.location_of(folder, name) is None or not deletes.rows or not deletes.size_bytes:
                return Rejected(
                    reasons.STAGED_RESULT_REFUSED,
                    f"a seal names the delete file {deletes.path}, which is not one that epoch {self.staged.key.epoch} of the "
                    "write has staged",
                )
        return None

    @property
    def _found(self) -> Sequence[IcebergDeletes]:
        return self.merged.files if self.merged is not None else ()

    def is_made_for(self, metadata: TableMetadata) -> bool:
        return self.staged.is_made_for(metadata)

    def names(self, path: str) -> bool:
        return (self.adds_rows and self.staged.names(path)) or any(deletes.path == path for deletes in self._found)

    def find_conflict(self, version: TableVersion) -> None:
        """Raise Retryable where the table has data files that no merge has read: another merge is needed."""
        if self.merged is not None and (unread := find_unread(version, self.merged)) is None:
            return
        what = "" if self.merged is None else f": {unread} came meanwhile"
        raise Retryable(
            reasons.COMMIT_CONTENDED,
            f"the table {version.title} has data files whose rows were not matched with those of the upsert{what}; they are "
            "matched next",
        )

    def manifests(self, version: TableVersion) -> tuple[list[ManifestFile], list[MetadataFile]]:
        made, waiting = self.staged.own_manifests(version) if self.adds_rows else ([], [])
        stem = f"{version.metadata_folder}/{self.staged.key.uid}-{self.staged.key.epoch}-{new_token()}"
        places = self._places_in(version)
        by_spec: dict[int, list[ManifestEntry]] = {}
        self._deletes = {}
        for deletes in self._found:
            # Of a file that is gone nothing is left to be deleted.
            if (place := places.get(deletes.data_file)) is not None:
                self._deletes[deletes.path] = deletes
                by_spec.setdefault(place.spec_id, []).append(_entry(deletes, place, self.snapshot_id))
        for spec_id, entries in sorted(by_spec.items()):
            location = f"{stem}-d{spec_id}.avro"
            written = write_deletes(version, spec_id, location, self.snapshot_id, entries)
            written.file.put()
            made.append(written.manifest)
        return [*made, *version.manifests], waiting

    def summary(self) -> Summary:
        counts = dict(self.staged.counts()) if self.adds_rows else {}
        deletes = self._deletes.values()
        if deletes:
            size_bytes = int(counts.get("added-files-size", "0")) + sum(each.size_bytes for each in deletes)
            counts |= {
                "added-files-size": str(size_bytes),
                "added-delete-files": str(len(deletes)),
                "added-position-delete-files": str(len(deletes)),
                "added-position-deletes": str(sum(each.rows for each in deletes)),
            }
        return Summary(operation=self._kind(), **counts)

    def _kind(self) -> SnapshotOperation:
        """Return what Iceberg's own Java calls such a snapshot (BaseRowDelta)."""
        if not self._deletes:
            return SnapshotOperation.APPEND
        return SnapshotOperation.OVERWRITE if self.adds_rows else SnapshotOperation.DELETE

    def _places_in(self, version: TableVersion) -> Mapping[str, _Place]:
        """Return where those data files lie that have rows to be deleted, of the table and of the staged ones."""
        wanted = {deletes.data_file for deletes in self._found}
        found = {path: self.places[path] for path in wanted if self.adds_rows and path in self.places}
        for file in _data_files(version):
            if file.file_path in wanted:
                found[file.file_path] = _Place(file.spec_id, file.partition)
        return found


def pack(
    operation: Upsert, staged: IcebergAppend, metadata: TableMetadata, files: Iterable[IcebergFile], locations: Iterable[str]
) -> IcebergUpsert:
    """Return the upsert of files that were packed as an append is."""
    specs, known = metadata.specs(), dict[tuple[int, tuple[str | None, ...]], _Place]()
    places: dict[str, _Place] = {}
    for file in files:
        value = (file.spec_id, file.partition)
        if file.spec_id in specs and value not in known:
            known[value] = _Place(file.spec_id, partition_of(file, specs[file.spec_id], metadata.schema()))
        if value in known:
            places[file.path] = known[value]
    return IcebergUpsert(operation, staged, places, tuple(dict.fromkeys(locations)))


def _data_files(version: TableVersion) -> Iterator[DataFile]:
    for manifest in version.manifests:
        if manifest.content == ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(version.io, discard_deleted=True):
                yield entry.data_file


def _entry(deletes: IcebergDeletes, place: _Place, snapshot_id: int) -> ManifestEntry:
    # The whole path: cut off, as bounds of texts usually are, readers take the file for one on many data files.
    bound = {_FILE_PATH: deletes.data_file.encode()}
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=deletes.path,
        file_format=FileFormat.PARQUET,
        partition=place.partition,
        record_count=deletes.rows,
        file_size_in_bytes=deletes.size_bytes,
        column_sizes=None,
        value_counts={_FILE_PATH: deletes.rows},
        null_value_counts={_FILE_PATH: 0},
        nan_value_counts=None,
        lower_bounds=bound,
        upper_bounds=bound,
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file)
