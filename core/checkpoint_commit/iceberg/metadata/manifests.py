"""Manifests of an Iceberg table without some of their files: these are in the new ones, too, as deleted by the snapshot.

Source of the rules: the Iceberg table specification (manifests: entries of status EXISTING and DELETED keep their sequence
numbers; first row id inheritance: entries of status EXISTING say the ids that their rows begin with). Written by pyiceberg's own
writer, entry by entry: some 100 us for each file of a manifest of which one is taken out.

pyiceberg 0.12 writes manifests as format 2 has them: without ids of rows, and without what says where deletion vectors
are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
    write_manifest,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import TableVersion as FormatVersion

from checkpoint_commit.iceberg.changes.change import TableVersion
from checkpoint_commit.iceberg.metadata.metadata_files import MetadataFile
from checkpoint_formats.iceberg.manifests_3 import blob_place_of, read_entries

_COMPRESSION: Final = "deflate"


@dataclass(slots=True)
class Removed:
    """What was taken out of a table, as the summary of a snapshot counts it."""

    data_files: int = 0
    rows: int = 0
    size_bytes: int = 0
    position_delete_files: int = 0
    deletion_vectors: int = 0
    position_deletes: int = 0
    equality_delete_files: int = 0
    equality_deletes: int = 0

    def add(self, file: DataFile) -> None:
        place = blob_place_of(file)
        self.size_bytes += file.file_size_in_bytes if place is None else place.length
        match file.content:
            case DataFileContent.DATA:
                self.data_files += 1
                self.rows += file.record_count
            case DataFileContent.POSITION_DELETES:
                if file.file_format == FileFormat.PUFFIN:
                    self.deletion_vectors += 1
                else:
                    self.position_delete_files += 1
                self.position_deletes += file.record_count
            case DataFileContent.EQUALITY_DELETES:
                self.equality_delete_files += 1
                self.equality_deletes += file.record_count

    def summary(self) -> dict[str, str]:
        """Return the counts by the names that Iceberg has for them, those of nothing left out."""
        counts = {
            "deleted-data-files": self.data_files,
            "deleted-records": self.rows,
            "removed-files-size": self.size_bytes,
            "removed-delete-files": self.position_delete_files + self.deletion_vectors + self.equality_delete_files,
            "removed-position-delete-files": self.position_delete_files,
            "removed-dvs": self.deletion_vectors,
            "removed-position-deletes": self.position_deletes,
            "removed-equality-delete-files": self.equality_delete_files,
            "removed-equality-deletes": self.equality_deletes,
        }
        return {name: str(count) for name, count in counts.items() if count}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A manifest, as of files or in the place of another one, and the object that it is: to be put before a snapshot names it."""

    manifest: ManifestFile
    file: MetadataFile


def without(
    manifest: ManifestFile,
    version: TableVersion,
    snapshot_id: int,
    location: str,
    is_removed: Callable[[DataFile], bool],
    removed: Removed,
) -> Rewritten | None:
    """Make a manifest without the files that are taken out, and count these; None if it has none of them."""
    entries = entries_of(manifest, version)
    taken_out = [is_removed(entry.data_file) for entry in entries]
    if not any(taken_out):
        return None
    file = MetadataFile(location, version.storage)
    metadata, spec = version.metadata, version.metadata.specs()[manifest.partition_spec_id]
    with _writer(manifest.content, metadata, spec, file, snapshot_id) as writer:
        for entry, is_out in zip(entries, taken_out, strict=True):
            if is_out:
                removed.add(entry.data_file)
                writer.delete(entry)
            else:
                writer.existing(entry)
    return Rewritten(writer.to_manifest_file(), file)


def entries_of(manifest: ManifestFile, version: TableVersion) -> list[ManifestEntry]:
    """Return the entries of files that are not deleted; in format 3 with all that it says of them."""
    if version.metadata.format_version < 3:
        return manifest.fetch_manifest_entry(version.io, discard_deleted=True)
    return read_entries(manifest, version.io)


def write_added(
    content: ManifestContent,
    version: TableVersion,
    spec_id: int,
    location: str,
    snapshot_id: int,
    entries: Iterable[ManifestEntry],
) -> Rewritten:
    """Make a manifest of files of one spec that the snapshot adds."""
    file = MetadataFile(location, version.storage)
    spec = version.metadata.specs()[spec_id]
    with _writer(content, version.metadata, spec, file, snapshot_id) as writer:
        for entry in entries:
            writer.add(entry)
    return Rewritten(writer.to_manifest_file(), file)


def without_added(
    manifest: ManifestFile,
    version: TableVersion,
    snapshot_id: int,
    location: str,
    is_left_out: Callable[[DataFile], bool],
    left_out: Removed,
) -> tuple[Rewritten, ...] | None:
    """Make a manifest of the files that the snapshot adds by another one, which nobody has seen yet, without some; count these.

    None if that has none of them; no manifest if it has no others.
    """
    entries = entries_of(manifest, version)
    kept = [entry for entry in entries if not is_left_out(entry.data_file)]
    if len(kept) == len(entries):
        return None
    for entry in entries:
        if is_left_out(entry.data_file):
            left_out.add(entry.data_file)
    if not kept:
        return ()
    return (write_added(ManifestContent.DATA, version, manifest.partition_spec_id, location, snapshot_id, kept),)


def added_files(manifest: ManifestFile, snapshot_id: int, version: TableVersion) -> list[ManifestEntry]:
    """Return the entries of the files that a snapshot has added by a manifest of its own."""
    if manifest.added_snapshot_id != snapshot_id:
        return []
    entries = manifest.fetch_manifest_entry(version.io, discard_deleted=True)
    return [entry for entry in entries if entry.snapshot_id == snapshot_id and entry.status == ManifestEntryStatus.ADDED]


def _writer(
    content: ManifestContent, metadata: TableMetadata, spec: PartitionSpec, file: MetadataFile, snapshot_id: int
) -> ManifestWriter:
    schema = _schema_of(spec, metadata)
    if metadata.format_version == 3:
        return _WriterV3(content, spec, schema, file, snapshot_id)
    if content == ManifestContent.DELETES:
        return DeletesWriter(spec, schema, file, snapshot_id, _COMPRESSION)
    return write_manifest(metadata.format_version, spec, schema, file, snapshot_id, _COMPRESSION)


def _schema_of(spec: PartitionSpec, metadata: TableMetadata) -> Schema:
    """Return the current schema, or the latest one that still has each column which the spec partitions by."""
    wanted = {field.source_id for field in spec.fields}
    latest_first = sorted(metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)
    for schema in (metadata.schema(), *latest_first):
        if wanted <= set(schema._lazy_id_to_field):
            return schema
    return metadata.schema()


class _WriterV3(ManifestWriterV2):
    """pyiceberg 0.12 writes no manifests of format 3."""

    def __init__(
        self, content: ManifestContent, spec: PartitionSpec, schema: Schema, output_file: MetadataFile, snapshot_id: int
    ) -> None:
        super().__init__(spec, schema, output_file, snapshot_id, _COMPRESSION)
        self._content = content

    def content(self) -> ManifestContent:
        return self._content

    @property
    def version(self) -> FormatVersion:
        return 3

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes" if self._content == ManifestContent.DELETES else "data"}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        return AvroOutputFile(self._output_file, self._with_partition(3), "manifest_entry", metadata=self._meta)


class DeletesWriter(ManifestWriterV2):
    """pyiceberg 0.12 writes manifests of data files only."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}
