"""Manifests of format version 3, with the ids of rows and with the data file that a deletion vector is of.

pyiceberg 0.12 reads manifests and their lists as format 2 has them, without these.

Source of the rules: the Iceberg table specification (row lineage, first row id inheritance, deletion vectors).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    _inherit_from_manifest,
)
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import StructProtocol
from pyiceberg.types import LongType, NestedField

from checkpoint_formats.iceberg.deletion_vectors import BlobPlace
from checkpoint_formats.iceberg.file_io import CheckedFileIO

#: The column of a position delete file that names the data file.
FILE_PATH: Final = 2147483546

_OF_LIST: Final = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[3].fields].index("first_row_id")
_OF_FILE: Final = [field.name for field in DATA_FILE_TYPE[3].fields]
_FIRST_ROW_ID: Final = _OF_FILE.index("first_row_id")
_REFERENCED: Final = _OF_FILE.index("referenced_data_file")
_CONTENT_OFFSET: Final = _OF_FILE.index("content_offset")
_CONTENT_SIZE: Final = _OF_FILE.index("content_size_in_bytes")
_BOUNDS: Final = (_OF_FILE.index("lower_bounds"), _OF_FILE.index("upper_bounds"))

# Columns of a data file whose rows were in another one before. Where they have no value, the data file's entry says it.
ROW_ID: Final = NestedField(2147483540, "_row_id", LongType(), required=False)
LAST_UPDATED: Final = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)
LINEAGE: Final = (ROW_ID, LAST_UPDATED)


class Manifest3(ManifestFile):
    """A manifest whose entries have all that format 3 says of them."""

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        """Return the entries; those of deletion vectors have bounds, by which pyiceberg tells the data file that they are of."""
        entries = read_entries(self, io, discard_deleted=discard_deleted)
        for entry in entries:
            if (path := referenced_data_file(entry.data_file)) is not None:
                for place in _BOUNDS:
                    entry.data_file[place] = {FILE_PATH: path.encode()}
        return entries


def read_manifests(snapshot: Snapshot, io: CheckedFileIO) -> Sequence[ManifestFile]:
    """Return a snapshot's manifests with the first row ids that they have."""
    io.check(snapshot.manifest_list)
    types: dict[int, Callable[..., StructProtocol]] = {-1: Manifest3, 508: PartitionFieldSummary}
    with AvroFile[ManifestFile](
        io.new_input(snapshot.manifest_list), MANIFEST_LIST_FILE_SCHEMAS[3], types, {517: ManifestContent}
    ) as file:
        return list(file)


def read_entries(manifest: ManifestFile, io: FileIO, *, discard_deleted: bool = True) -> list[ManifestEntry]:
    """Return the entries as they are written.

    Data files without an id of their rows get the one that readers give them, if the manifest has one: its own, and the rows of
    those before.
    """
    types: dict[int, Callable[..., StructProtocol]] = {-1: ManifestEntry, 2: DataFile}
    enums: dict[int, Callable[..., Enum]] = {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}
    with AvroFile[ManifestEntry](io.new_input(manifest.manifest_path), MANIFEST_ENTRY_SCHEMAS[3], types, enums) as file:
        entries = [_inherit_from_manifest(entry, manifest) for entry in file]
    following = first_row_id_of(manifest)
    live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
    if manifest.content == ManifestContent.DATA and following is not None:
        for entry in live:
            if entry.data_file[_FIRST_ROW_ID] is None:
                entry.data_file[_FIRST_ROW_ID] = following
                following += entry.data_file.record_count
    return live if discard_deleted else entries


def first_row_id_of(manifest: ManifestFile) -> int | None:
    """Return the id that the rows of a manifest begin with, where it has one."""
    found: int | None = manifest[_OF_LIST] if len(manifest) > _OF_LIST else None
    return found


def first_row_id_of_file(file: DataFile) -> int | None:
    """Return the id that the rows of a data file begin with, where it has one."""
    found: int | None = file[_FIRST_ROW_ID] if len(file) > _FIRST_ROW_ID else None
    return found


def referenced_data_file(file: DataFile) -> str | None:
    """Return the data file that a deletion vector is of; None for other files."""
    is_vector = file.file_format == FileFormat.PUFFIN and len(file) > _REFERENCED
    found: str | None = file[_REFERENCED] if is_vector else None
    return found


def blob_place_of(file: DataFile) -> BlobPlace | None:
    """Return where a deletion vector lies in its Puffin file; None for other files."""
    if referenced_data_file(file) is None:
        return None
    return BlobPlace(file[_CONTENT_OFFSET], file[_CONTENT_SIZE])


def with_lineage(schema: Schema) -> Schema:
    """Return the schema of a table with the columns of row lineage. ValueError if it has columns of these names."""
    return Schema(*schema.fields, *LINEAGE, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)
