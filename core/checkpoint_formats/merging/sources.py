"""What a merge reads, for each format of tables: the keys, and the files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, assert_never

import pyarrow as pa

from checkpoint_formats.merging.keys import Keys, PutPart
from checkpoint_formats.readers import reader_for
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.manifest.sources.source import FilesSource, IcebergSource, LanceSource, Source
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import Merge, MergeKeysRecord, PinnedIceberg, PinnedTable, StagedFile
from checkpoint_protocol.records.formats.lance import PinnedLance
from checkpoint_protocol.records.inputs import SourceFile


class MergeSource(Protocol):
    """A table at the version that one merge reads."""

    @property
    def table(self) -> PinnedTable: ...

    @property
    def schema(self) -> pa.Schema:
        """The columns that are read of it and of staged rows: the keys come first."""

    def staged_of(self, files: Iterable[StagedFile]) -> list[StagedFile]:
        """Return the staged files, sorted: they have numbers in the keys."""

    def put_keys(self, staged: Sequence[StagedFile], put: PutPart) -> Keys:
        """Read the key columns of the staged rows, and put the keys. NeedsChange(OutputKeyRepeated) as `make_keys` says."""

    def files_to_merge(self, keys: MergeKeysRecord, staged: Sequence[StagedFile]) -> tuple[SourceFile, ...]:
        """Return the files that are read."""

    def files_to_rewrite(
        self, staged: Sequence[StagedFile], left_out: Mapping[str, Sequence[StagedFile]]
    ) -> tuple[SourceFile, ...]:
        """Return those of the staged files that have rows to leave out. `left_out`: by their paths, the files that name these."""


def merge_source_for(source: Source, tables: Sequence[PinnedTable | None], merge: Merge, storage: StorageSettings) -> MergeSource:
    """Return what a merge reads, by the source and the pinned tables of its launch record. Corrupt if that is no table."""
    (member,) = source.members
    match member:
        case LanceSource():
            from checkpoint_formats.lance.merge import LanceMerge

            assert member.version is not None
            return LanceMerge(PinnedLance(uri=member.location, at_version=member.version), merge, storage)
        case IcebergSource():
            from checkpoint_formats.iceberg.merge import IcebergMerge

            (table,) = tables
            if not isinstance(table, PinnedIceberg):
                raise Corrupt(reasons.RECORD_UNREADABLE, f"the launch record of a merge does not pin {member.title}")
            return IcebergMerge(table, merge, reader_for(source, storage, (table,)), storage)
        case FilesSource() | KafkaSource():
            raise Corrupt(
                reasons.RECORD_UNREADABLE, f"the launch record of a merge has source.{member.kind}; only a table is merged with"
            )
        case other:
            assert_never(other)
