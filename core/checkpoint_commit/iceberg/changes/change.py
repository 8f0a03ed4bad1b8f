"""What the adapter to Iceberg tables asks of a change: manifests and a summary for a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, Summary

from checkpoint_commit.iceberg.metadata.metadata_files import MetadataFile
from checkpoint_commit.outcomes import Rejected
from checkpoint_formats.iceberg.file_io import CheckedFileIO, manifests_of
from checkpoint_formats.iceberg.manifests_3 import read_manifests
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import Operation


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One metadata version of the table, with what reads and writes its files. `head`: the branch's; None: no snapshot yet."""

    title: str
    metadata: TableMetadata
    head: Snapshot | None
    io: CheckedFileIO
    storage: StorageSettings

    @property
    def metadata_folder(self) -> str:
        """Where manifests and their lists go."""
        default = f"{self.metadata.location.rstrip('/')}/metadata"
        return self.metadata.properties.get("write.metadata.path", default).rstrip("/")

    @property
    def manifests(self) -> Sequence[ManifestFile]:
        """Those of the head."""
        if self.head is None:
            return ()
        return read_manifests(self.head, self.io) if self.metadata.format_version >= 3 else manifests_of(self.head, self.io)

    def has_any(self, is_wanted: Callable[[str], bool]) -> bool:
        """Whether the head has a data file of which this is true, by its path."""
        return any(
            is_wanted(entry.data_file.file_path)
            for manifest in self.manifests
            if manifest.content == ManifestContent.DATA
            for entry in manifest.fetch_manifest_entry(self.io, discard_deleted=True)
        )


class IcebergChange(Protocol):
    """A change as an Iceberg table takes it, in the snapshot of that id.

    `sizes`: of each folder, the names of the staged files in it with their sizes.
    `incompatibility`: why the staged files must not be committed, as far as it can be told from what the seals say.
    """

    @property
    def operation(self) -> Operation: ...

    @property
    def snapshot_id(self) -> int: ...

    @property
    def sizes(self) -> Mapping[str, Mapping[str, int]]: ...

    @property
    def incompatibility(self) -> Rejected | None: ...

    def __len__(self) -> int: ...

    def is_made_for(self, metadata: TableMetadata) -> bool:
        """Whether it is what it would be if it were made for this version of the table."""

    def names(self, path: str) -> bool:
        """Whether a file is one of the staged ones."""

    def find_conflict(self, version: TableVersion) -> Rejected | None:
        """Say what others have done to the table, up to this version, that the operation does not go with."""

    def manifests(self, version: TableVersion) -> tuple[list[ManifestFile], list[MetadataFile]]:
        """Return the manifests of a snapshot after the head of this version, and the objects that are to be put before one is
        asked for that names them: those that are not put yet.
        """

    def summary(self) -> Summary:
        """Return what the snapshot's summary says of its operation, and of the files that it adds and removes.

        Of those that the last manifests were made with.
        """
