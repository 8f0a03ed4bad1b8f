"""pyiceberg's files by our own settings only: never by a class, a credential or a scheme that a catalog or a table hands out.

The metadata of a table name everything else by URIs: older metadata, manifest lists, manifests, data files. Each is checked when
it is opened, and reached with the credentials of its own storage entry. Used by both programs wherever pyiceberg opens files.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.manifest import ManifestFile, read_manifest_list
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from checkpoint_formats.iceberg.bounded.files import BoundedFile
from checkpoint_formats.iceberg.object_files import ObjectFileIO
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.handed_keys import HandedOut
from checkpoint_protocol.places.storage import (
    StorageEntry,
    StorageSettings,
    disk_path,
    entry_of,
    iceberg_options,
    is_read_by_pyarrow,
)
from checkpoint_protocol.places.uris import PLACES_OF_TABLES, why_not_parsed


class CheckedFileIO(FileIO):
    """Opens what the settings let it open. NeedsChange for everything else, before anything is asked of anybody.

    `most_metadata_bytes`: of a file, where only metadata of tables are read, each as a whole. None: as many as there are, for
    data files, and for drivers, whose memory is their write's own.
    """

    def __init__(self, storage: StorageSettings, most_metadata_bytes: int | None) -> None:
        super().__init__({})
        self._storage = storage
        self._most_metadata_bytes = most_metadata_bytes
        self._by_entry: dict[tuple[str, str | None], FileIO] = {}

    @property
    def handed(self) -> HandedOut | None:
        """The keys that its catalog hands out for the table, if it does."""
        return self._storage.handed

    def with_keys(self, handed: HandedOut) -> CheckedFileIO:
        """Return the same for a table that came with keys."""
        return CheckedFileIO(self._storage.with_keys(handed), self._most_metadata_bytes)

    def new_input(self, location: str) -> InputFile:
        opened = self._for(location).new_input(location)
        return opened if self._most_metadata_bytes is None else BoundedFile(opened, self._most_metadata_bytes)

    def new_output(self, location: str) -> OutputFile:
        return self._for(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        self._for(path).delete(path)

    def check(self, location: str) -> StorageEntry | None:
        """Refuse a location that is not to be opened: NeedsChange. Return the entry to reach it by."""
        try:
            disk_path(location, self._storage)
        except NeedsChange as error:
            raise NeedsChange(reasons.TABLE_UNSUPPORTED, f"the metadata of a table lead elsewhere: {error.message}") from error
        return entry_of(location, self._storage)

    def _for(self, location: str) -> FileIO:
        entry = self.check(location)
        if (why := why_not_parsed(location)) is not None:
            raise NeedsChange(reasons.TABLE_UNSUPPORTED, f"the metadata of a table lead elsewhere: {why}")
        # With the bucket, as in Azure the URI may say which account it is in.
        key = ("/".join(location.split("/", 3)[:3]), entry.prefix) if entry is not None else ("file", None)
        if key not in self._by_entry:
            reads_metadata = self._most_metadata_bytes is not None
            if entry is None or (is_read_by_pyarrow(location, self._storage) and not reads_metadata):
                self._by_entry[key] = load_file_io(dict(iceberg_options(location, self._storage)), location)
            else:
                self._by_entry[key] = ObjectFileIO(self._storage, is_whole=reads_metadata)
        return self._by_entry[key]


def open_file_io(location: str, storage: StorageSettings, most_metadata_bytes: int | None) -> CheckedFileIO:
    """Return what opens the files of a table that lies there; those of a table in a bucket are in buckets."""
    found = CheckedFileIO(storage.beside(location), most_metadata_bytes)
    found.check(location)
    return found


def manifests_of(snapshot: Snapshot, io: CheckedFileIO) -> Sequence[ManifestFile]:
    """Return a snapshot's manifests, as its own list has them.

    `Snapshot.manifests` keeps manifests by their paths for the whole process: the list of one tenant, which may name a manifest
    of another one's table, would say what is in that table.
    """
    return list(read_manifest_list(io.new_input(snapshot.manifest_list)))


def refuse_places_elsewhere(metadata: TableMetadata, metadata_location: str, storage: StorageSettings, title: str) -> None:
    """Refuse a table whose metadata lead elsewhere: NeedsChange(TableUnsupported). `metadata_location`: the catalog's word.

    Asks nobody, and for no credentials: those are found, or missed, when something is opened.
    """
    beside = storage.beside(metadata_location)
    named = [(name, metadata.properties[name]) for name in PLACES_OF_TABLES if name in metadata.properties]
    for name, uri in [("location", metadata.location), *named]:
        try:
            disk_path(uri, beside)
        except NeedsChange as error:
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"the table {title} leads elsewhere by its {name!r}: {error.message}; correct the table",
            ) from error
