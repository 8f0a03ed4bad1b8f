"""Upsert into an Iceberg table: one snapshot with the staged files, and without the rows that they replace.

These go by position deletes; or, where the table asks for copy-on-write, the data files that have them are taken out, and files
with what stays of them are put in their place (`iceberg/changes/rewrites.py`).

Which rows these are, merges have found: stages of the epoch that read the table at a head of it (`iceberg/changes/merges.py`).
A commit takes what they found if there is no data file in the table that none of them has read.
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

from checkpoint_commit.iceberg.changes.append import IcebergAppend, OwnFiles
from checkpoint_commit.iceberg.changes.change import TableVersion
from checkpoint_commit.iceberg.changes.merges import Merged, find_unread
from checkpoint_commit.iceberg.changes.rewrites import Place, Rewritten, data_entry, find_outdated, find_problem
from checkpoint_commit.iceberg.changes.vectors import Vector, find_outdated_vectors, staged_vector, vector_entry, vectors_of
from checkpoint_commit.iceberg.metadata.entries import partition_of
from checkpoint_commit.iceberg.metadata.manifests import Removed, without, without_added, write_added
from checkpoint_commit.iceberg.metadata.metadata_files import MetadataFile, put_all
from checkpoint_commit.outcomes import Rejected
from checkpoint_formats.iceberg.manifests_3 import referenced_data_file
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.records import IcebergDeletes, IcebergFile, Upsert

#: The column of a position delete file that names the data file.
_FILE_PATH: Final = 2147483546


@dataclass(slots=True)
class IcebergUpsert:
    """An upsert with all staged files of an epoch. An IcebergChange.

    `merged`: what merges have found; None: that is not known, and it cannot be committed.
    """

    operation: Upsert
    staged: IcebergAppend
    places: Mapping[str, Place]
    locations: Sequence[str]
    merged: Merged | None = None
    _deletes: dict[str, IcebergDeletes] = field(default_factory=dict)
    _vectors: dict[str, Vector] = field(default_factory=dict)
    _added: list[IcebergFile] = field(default_factory=list)
    _removed: Removed = field(default_factory=Removed)
    _left_out: Removed = field(default_factory=Removed)

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
        sizes = {deletes.path: deletes.size_bytes for deletes in self._found}
        sizes |= {file.path: file.size_bytes for each in self._rewritten.values() for file in each.files}
        for path, size_bytes in sizes.items():
            folder, _, name = path.rpartition("/")
            found.setdefault(folder, {})[name] = size_bytes
        return found

    @property
    def incompatibility(self) -> Rejected | None:
        if self.staged.incompatibility is not None:
            return self.staged.incompatibility
        own = OwnFiles(self.staged.key, self.locations)
        for deletes in self._found:
            folder, _, name = deletes.path.rpartition("/")
            vector = staged_vector(deletes)
            is_whole = vector is None or (vector.offset + vector.length <= vector.size_bytes and vector.rows >= deletes.rows)
            if own.location_of(folder, name) is None or not deletes.rows or not deletes.size_bytes or not is_whole:
                return Rejected(
                    reasons.STAGED_RESULT_REFUSED,
                    f"a seal names the delete file {deletes.path}, which is not one that epoch {self.staged.key.epoch} of the "
                    "write has staged",
                )
        return None

    @property
    def _found(self) -> Sequence[IcebergDeletes]:
        return self.merged.files if self.merged is not None else ()

    @property
    def _rewritten(self) -> Mapping[str, Rewritten]:
        return self.merged.rewritten if self.merged is not None else {}

    def is_made_for(self, metadata: TableMetadata) -> bool:
        return self.staged.is_made_for(metadata)

    def names(self, path: str) -> bool:
        return (
            (self.adds_rows and self.staged.names(path))
            or any(deletes.path == path for deletes in self._found)
            or any(file.path == path for each in self._rewritten.values() for file in each.files)
        )

    def find_conflict(self, version: TableVersion) -> Rejected | None:
        """Raise Retryable where the table has data files, or deletes, that no merge has read: another merge is needed."""
        if self._rewritten:
            own = OwnFiles(self.staged.key, self.locations)
            if (problem := find_problem(self._rewritten.values(), version.metadata, own, self.staged.names)) is not None:
                return problem
        unread = None
        if self.merged is not None:
            outdated = find_outdated(version, self._rewritten) or find_outdated_vectors(version, self.merged)
            unread = outdated or find_unread(version, self.merged)
            if unread is None:
                return None
        what = "" if unread is None else f": {unread} came meanwhile"
        raise Retryable(
            reasons.COMMIT_CONTENDED,
            f"the table {version.title} has data files whose rows were not matched with those of the upsert{what}; they are "
            "matched next",
        )

    def manifests(self, version: TableVersion) -> tuple[list[ManifestFile], list[MetadataFile]]:
        stem = f"{version.metadata_folder}/{self.staged.key.uid}-{self.staged.key.epoch}-{new_token()}"
        places = self._places_in(version)
        self._deletes, self._vectors, self._added, self._removed, self._left_out = {}, {}, [], Removed(), Removed()
        made, waiting = self._own_manifests(version, stem) if self.adds_rows else ([], [])
        by_spec: dict[tuple[ManifestContent, int], list[ManifestEntry]] = {}
        if version.metadata.format_version >= 3 and self.merged is not None:
            with_rows = places.keys() - self._rewritten.keys()
            for vector in vectors_of(version, self.merged, with_rows, f"{stem}-deletes.puffin"):
                self._vectors[vector.data_file] = vector
                at = places[vector.data_file]
                entry = vector_entry(vector, at, self.snapshot_id)
                by_spec.setdefault((ManifestContent.DELETES, at.spec_id), []).append(entry)
        for deletes in self._found if version.metadata.format_version < 3 else ():
            # Of a file that is gone nothing is left to be deleted.
            if (place := places.get(deletes.data_file)) is not None and deletes.data_file not in self._rewritten:
                self._deletes[deletes.path] = deletes
                entry = _entry(deletes, place, self.snapshot_id)
                by_spec.setdefault((ManifestContent.DELETES, place.spec_id), []).append(entry)
        for each in self._rewritten.values():
            if (place := places.get(each.data_file)) is not None:
                self._added += each.files
                entries = [data_entry(file, place, self.snapshot_id) for file in each.files]
                by_spec.setdefault((ManifestContent.DATA, place.spec_id), []).extend(entries)
        for number, ((content, spec_id), added) in enumerate(by_spec.items()):
            if added:
                written = write_added(content, version, spec_id, f"{stem}-u{number}.avro", self.snapshot_id, added)
                written.file.put()
                made.append(written.manifest)
        return [*made, *self._kept(version, stem)], waiting

    def _own_manifests(self, version: TableVersion, stem: str) -> tuple[list[ManifestFile], list[MetadataFile]]:
        """Return the manifests of the staged files, but for those that were written anew: others count for rows of them."""
        made, waiting = self.staged.own_manifests(version)
        if not any(self.staged.names(path) for path in self._rewritten):
            return made, waiting
        put_all(waiting)
        kept: list[ManifestFile] = []
        for number, manifest in enumerate(made):
            location = f"{stem}-s{number}.avro"
            rest = without_added(manifest, version, self.snapshot_id, location, self._is_rewritten, self._left_out)
            for written in rest or ():
                written.file.put()
            kept += [manifest] if rest is None else [written.manifest for written in rest]
        return kept, []

    def _kept(self, version: TableVersion, stem: str) -> Iterator[ManifestFile]:
        """Give the manifests of the head, without the data files that were written anew, and the vectors that are replaced."""
        for number, manifest in enumerate(version.manifests):
            kept = manifest
            # Deletes of what is taken out apply to nothing any more: they may stay. Deletion vectors are of that file alone.
            is_data = manifest.content == ManifestContent.DATA
            has_vectors = not is_data and version.metadata.format_version >= 3
            if (is_data and self._rewritten) or (has_vectors and (self._rewritten or self._vectors)):
                location = f"{stem}-r{number}.avro"
                is_out = self._is_rewritten if is_data else self._is_replaced
                rest = without(manifest, version, self.snapshot_id, location, is_out, self._removed)
                if rest is not None:
                    rest.file.put()
                    kept = rest.manifest
            yield kept

    def _is_rewritten(self, file: DataFile) -> bool:
        return file.file_path in self._rewritten

    def _is_replaced(self, file: DataFile) -> bool:
        """Whether a delete file is a vector of a data file that is taken out, or that has another vector now."""
        path = referenced_data_file(file)
        return path is not None and (path in self._rewritten or path in self._vectors)

    def summary(self) -> Summary:
        counts = dict(self.staged.counts()) if self.adds_rows else {}
        deletes = self._deletes.values()
        if self._added or self._left_out.data_files:
            left_out = self._left_out
            counts |= {
                "added-files-size": _sum(
                    counts, "added-files-size", (file.size_bytes for file in self._added), left_out.size_bytes
                ),
                "added-data-files": _sum(counts, "added-data-files", (1 for _ in self._added), left_out.data_files),
                "added-records": _sum(counts, "added-records", (file.rows for file in self._added), left_out.rows),
            }
        counts |= self._removed.summary()
        if deletes:
            counts |= {
                "added-files-size": _sum(counts, "added-files-size", (each.size_bytes for each in deletes)),
                "added-delete-files": str(len(deletes)),
                "added-position-delete-files": str(len(deletes)),
                "added-position-deletes": str(sum(each.rows for each in deletes)),
            }
        if vectors := self._vectors.values():
            counts |= {
                "added-files-size": _sum(counts, "added-files-size", (each.length for each in vectors)),
                "added-delete-files": str(len(vectors)),
                "added-dvs": str(len(vectors)),
                "added-position-deletes": str(sum(each.rows for each in vectors)),
            }
        return Summary(operation=self._kind(), **counts)

    def _kind(self) -> SnapshotOperation:
        """Return what Iceberg's own Java calls such a snapshot (BaseRowDelta, BaseOverwriteFiles)."""
        if not self._deletes and not self._vectors and not self._removed.data_files:
            return SnapshotOperation.APPEND
        return SnapshotOperation.OVERWRITE if self.adds_rows or self._added else SnapshotOperation.DELETE

    def _places_in(self, version: TableVersion) -> Mapping[str, Place]:
        """Return where those data files lie that have rows to be deleted, of the table and of the staged ones."""
        wanted = {deletes.data_file for deletes in self._found} | self._rewritten.keys()
        found = {path: self.places[path] for path in wanted if self.adds_rows and path in self.places}
        for file in _data_files(version):
            if file.file_path in wanted:
                found[file.file_path] = Place(file.spec_id, file.partition)
        return found


def pack(
    operation: Upsert, staged: IcebergAppend, metadata: TableMetadata, files: Iterable[IcebergFile], locations: Iterable[str]
) -> IcebergUpsert:
    """Return the upsert of files that were packed as an append is."""
    specs, known = metadata.specs(), dict[tuple[int, tuple[str | None, ...]], Place]()
    places: dict[str, Place] = {}
    for file in files:
        value = (file.spec_id, file.partition)
        if file.spec_id in specs and value not in known:
            known[value] = Place(file.spec_id, partition_of(file, specs[file.spec_id], metadata.schema()))
        if value in known:
            places[file.path] = known[value]
    return IcebergUpsert(operation, staged, places, tuple(dict.fromkeys(locations)))


def _sum(counts: Mapping[str, str], name: str, more: Iterable[int], less: int = 0) -> str:
    return str(int(counts.get(name, "0")) + sum(more) - less)


def _data_files(version: TableVersion) -> Iterator[DataFile]:
    for manifest in version.manifests:
        if manifest.content == ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(version.io, discard_deleted=True):
                yield entry.data_file


def _entry(deletes: IcebergDeletes, place: Place, snapshot_id: int) -> ManifestEntry:
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
