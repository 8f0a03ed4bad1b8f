"""Metadata files that pyiceberg writes, each put by one request; and the list of a snapshot's manifests.

pyiceberg 0.12 writes lists as format 2 has them: the ids of rows that are there already would be lost.

Source of the rules: the Iceberg table specification (snapshots, row lineage, first row id assignment), and ManifestListWriter of
its Java library: a manifest of data that has no first row id gets the next one that is free, as many as its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import obstore
import obstore.exceptions as obstore_errors
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestFile,
    ManifestListWriter,
    ManifestListWriterV2,
    write_manifest_list,
)
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3

from checkpoint_formats.iceberg.object_files import WholeStream
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.store.object_store import open_raw_store, translate_store_error
from checkpoint_protocol.store.parallel import in_threads

# Metadata files as pyiceberg's writers want to write them, put by one request each.
#
# The library's own output opens a multipart upload for each file, however small, and asks for its length afterwards: five
# requests where one does.


class MetadataFile(OutputFile):
    """A file that is whole when its stream was closed, and there when it was put after that. Its name must be fresh."""

    def __init__(self, location: str, storage: StorageSettings) -> None:
        super().__init__(location)
        self._storage = storage
        self._size_bytes = 0
        self._data: bytes | None = None

    def __len__(self) -> int:
        return self._size_bytes

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        raise NotImplementedError

    def create(self, overwrite: bool = False) -> OutputStream:
        return WholeStream(self.keep)

    def keep(self, data: bytes) -> None:
        """Take what the file is to hold."""
        self._data, self._size_bytes = data, len(data)

    def put(self) -> None:
        """Store the file, unless that was seen to be done before. Raises Retryable where the store does not answer."""
        if self._data is None:
            return
        folder, _, name = self.location.rpartition("/")
        try:
            obstore.put(open_raw_store(folder, self._storage), name, self._data, use_multipart=False)
        except (obstore_errors.BaseError, OSError) as error:
            raise translate_store_error(error, self.location, self._storage.place) from error
        self._data = None


def put_all(files: Sequence[MetadataFile]) -> None:
    """Store the files side by side. When this returns they are all there; when it raises, it may be called again."""
    in_threads(MetadataFile.put, files, at_once=len(files))


_COMPRESSION: Final = "deflate"
_FIELDS: Final = tuple(field.name for field in MANIFEST_LIST_FILE_SCHEMAS[3].fields)
_FIRST_ROW_ID: Final = _FIELDS.index("first_row_id")


def write(
    metadata: TableMetadata, file: MetadataFile, snapshot_id: int, parent_id: int | None, manifests: Sequence[ManifestFile]
) -> tuple[int | None, int | None]:
    """Write the list of the next snapshot; return its first row id and how many ids it takes: None where rows have none."""
    number = metadata.next_sequence_number()
    if not isinstance(metadata, TableMetadataV3):
        with write_manifest_list(metadata.format_version, file, snapshot_id, parent_id, number, _COMPRESSION) as writer:
            writer.add_manifests(list(manifests))
        return None, None
    first = metadata.next_row_id or 0
    numbered, following = _numbered(manifests, first)
    with _WriterV3(file, snapshot_id, parent_id, number, first) as writer:
        writer.add_manifests(numbered)
    return first, following - first


def _numbered(manifests: Sequence[ManifestFile], following: int) -> tuple[list[ManifestFile], int]:
    numbered = []
    for manifest in manifests:
        values = [manifest[place] if place < len(manifest) else None for place in range(len(_FIELDS))]
        if manifest.content == ManifestContent.DATA and values[_FIRST_ROW_ID] is None:
            values[_FIRST_ROW_ID] = following
            following += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        numbered.append(ManifestFile.from_args(_table_format_version=3, **dict(zip(_FIELDS, values, strict=True))))
    return numbered, following


class _WriterV3(ManifestListWriterV2):
    def __init__(
        self, file: MetadataFile, snapshot_id: int, parent_id: int | None, sequence_number: int, first_row_id: int
    ) -> None:
        super().__init__(file, snapshot_id, parent_id, sequence_number, _COMPRESSION)
        self._meta |= {"format-version": "3", "first-row-id": str(first_row_id)}

    def __enter__(self) -> ManifestListWriter:
        self._writer = AvroOutputFile(self._output_file, MANIFEST_LIST_FILE_SCHEMAS[3], "manifest_file", metadata=self._meta)
        self._writer.__enter__()
        return self
