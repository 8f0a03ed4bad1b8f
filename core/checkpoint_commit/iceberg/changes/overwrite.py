"""Overwrite of an Iceberg table, or of a part of it: one snapshot without the data files of that part, and with the staged ones.

What the part was is known from when the epoch began. Rows that others have put there since are nobody's to throw away unasked:
the commit is refused then, unless the manifest says otherwise (`sink.onConcurrent`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation as SnapshotOperation
from pyiceberg.table.snapshots import Snapshot, Summary, ancestors_of

from checkpoint_commit.iceberg.changes.append import IcebergAppend
from checkpoint_commit.iceberg.changes.change import TableVersion
from checkpoint_commit.iceberg.changes.replaced import Everything, Extent, InPartitions, Replaced, replaced_by_where
from checkpoint_commit.iceberg.metadata.manifests import Removed, added_files, without
from checkpoint_commit.iceberg.metadata.metadata_files import MetadataFile
from checkpoint_commit.outcomes import Rejected
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.records import IcebergBase, Overwrite, OverwriteAll, OverwritePartitions, OverwriteWhere

#: Snapshots that bring no rows which the table had not before.
_BRING_NOTHING: Final = frozenset({SnapshotOperation.REPLACE, SnapshotOperation.DELETE})


@dataclass(slots=True)
class IcebergOverwrite:
    """An overwrite with all staged files of an epoch. An IcebergChange.

    `replaces_others`: what others have put there since the epoch began is replaced, too.
    """

    operation: Overwrite
    staged: IcebergAppend
    replaces_others: bool
    _removed: Removed = field(default_factory=Removed)

    def __len__(self) -> int:
        return len(self.staged)

    @property
    def sizes(self) -> Mapping[str, Mapping[str, int]]:
        return self.staged.sizes

    @property
    def incompatibility(self) -> Rejected | None:
        return self.staged.incompatibility

    @property
    def snapshot_id(self) -> int:
        return self.staged.snapshot_id

    def is_made_for(self, metadata: TableMetadata) -> bool:
        return self.staged.is_made_for(metadata)

    def names(self, path: str) -> bool:
        return self.staged.names(path)

    def find_conflict(self, version: TableVersion) -> Rejected | None:
        """Say what keeps the part from being replaced: files that are in it by some of their rows, or rows of others."""
        replaced = self._replaced(version.metadata)
        if (partial := find_partial(version, self.operation, replaced)) is not None:
            return partial
        return None if self.replaces_others else self._others_since(version, replaced)

    def manifests(self, version: TableVersion) -> tuple[list[ManifestFile], list[MetadataFile]]:
        made, waiting = self.staged.own_manifests(version)
        replaced, removed = self._replaced(version.metadata), Removed()
        kept: list[ManifestFile] = []
        stem = f"{version.metadata_folder}/{self.staged.key.uid}-{self.staged.key.epoch}-{new_token()}"

        def is_removed(file: DataFile) -> bool:
            return replaced.extent(file) is Extent.ALL

        for number, manifest in enumerate(version.manifests):
            # Deletes of what is taken out apply to nothing any more: where files stay, they may stay.
            if manifest.content == ManifestContent.DELETES and not replaced.is_everything:
                kept.append(manifest)
                continue
            location = f"{stem}-r{number}.avro"
            rewritten = without(manifest, version, self.snapshot_id, location, is_removed, removed)
            if rewritten is None:
                kept.append(manifest)
                continue
            rewritten.file.put()
            kept.append(rewritten.manifest)
        self._removed = removed
        return [*made, *kept], waiting

    def summary(self) -> Summary:
        return Summary(operation=SnapshotOperation.OVERWRITE, **self.staged.counts(), **self._removed.summary())

    def _replaced(self, metadata: TableMetadata) -> Replaced:
        return replaced_by(self.operation, metadata, self.staged)

    def _others_since(self, version: TableVersion, replaced: Replaced) -> Rejected | None:
        base = self.operation.base
        assert base is None or isinstance(base, IcebergBase)
        since = base.snapshot_id if base is not None else None
        ways_out = (
            "look whether they are to stay; then either take them out of the way, or set sink.onConcurrent: Replace to have them "
            "replaced, too"
        )
        reached = False
        for snapshot in ancestors_of(version.head, version.metadata):
            if snapshot.snapshot_id == since:
                reached = True
                break
            if (found := next(_brought(snapshot, version, replaced), None)) is not None:
                return Rejected(
                    reasons.TABLE_WRITTEN_MEANWHILE,
                    f"since the epoch began, snapshot {snapshot.snapshot_id} of the table {version.title} has put rows where "
                    f"{_named(self.operation)} is to put its own ({found.file_path}): {ways_out}",
                )
        if since is not None and not reached:
            return Rejected(
                reasons.TABLE_WRITTEN_MEANWHILE,
                f"the history of the table {version.title} no longer reaches back to snapshot {since}, which it had when the "
                "epoch began (snapshots were expired, or the table was rolled back), so that rows of others cannot be told: "
                f"{ways_out}",
            )
        return None


def replaced_by(operation: Overwrite, metadata: TableMetadata, staged: IcebergAppend | None) -> Replaced:
    """Return which files of a version of the table the operation takes out. `staged`: None where nothing is known of it yet."""
    match operation:
        case OverwriteAll():
            return Everything()
        case OverwriteWhere(where=where):
            return replaced_by_where(metadata, where)
        case OverwritePartitions():
            if staged is None:
                return InPartitions(metadata, {metadata.default_spec_id: ()})
            return InPartitions(metadata, {number: entries.partitions for number, entries in staged.by_spec.items()})
        case other:
            assert_never(other)


def find_partial(version: TableVersion, operation: Overwrite, replaced: Replaced) -> Rejected | None:
    """Say which data file has rows that the operation replaces, and perhaps others: files are replaced as a whole."""
    if replaced.is_everything:
        return None
    for manifest in version.manifests:
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in manifest.fetch_manifest_entry(version.io, discard_deleted=True):
            if replaced.extent(entry.data_file) is Extent.SOME:
                return Rejected(
                    reasons.TABLE_UNSUPPORTED,
                    f"the data file {entry.data_file.file_path} of the table {version.title} {_why_partial(operation)}",
                )
    return None


def _why_partial(operation: Overwrite) -> str:
    if isinstance(operation, OverwritePartitions):
        return (
            "is of another partition spec than the rows that are to be put, so that it cannot be told whether it is in their "
            "partitions, and data files are replaced as a whole; rewrite the table's files (rewrite_data_files with "
            "rewrite-all), or use OverwriteWhere or OverwriteAll"
        )
    return (
        "has rows for which sink.where is true, and perhaps others, as far as its partition and its statistics tell; data files "
        "are replaced as a whole: let sink.where be on columns by which the table is partitioned, or rewrite the table's files "
        "sorted by its columns"
    )


def _brought(snapshot: Snapshot, version: TableVersion, replaced: Replaced) -> Iterator[DataFile]:
    """Give the files that a snapshot has added in the part that is replaced. One that brings nothing new has none."""
    if snapshot.summary is not None and snapshot.summary.operation in _BRING_NOTHING:
        return
    then = replace(version, head=snapshot)
    for manifest in then.manifests:
        if manifest.content == ManifestContent.DATA:
            for entry in added_files(manifest, snapshot.snapshot_id, then):
                if replaced.extent(entry.data_file) is not Extent.NONE:
                    yield entry.data_file


def _named(operation: Overwrite) -> str:
    return f"sink.mode: {operation.kind}"
