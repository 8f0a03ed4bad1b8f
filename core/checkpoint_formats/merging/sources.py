"""What a merge reads, for each format of tables: the keys, and the files that it writes anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, assert_never

import numpy as np
import pyarrow as pa

from checkpoint_formats.merging.keys import Keys, PutPart
from checkpoint_formats.merging.reading import Positions, numbers_of
from checkpoint_formats.port import Chunk, Reader, WrappingReader
from checkpoint_formats.readers import reader_for
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.nested import no_rows
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.manifest.sources.source import FilesSource, IcebergSource, LanceSource, Source
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import Merge, MergeKeysRecord, PinnedIceberg, PinnedTable, StagedFile
from checkpoint_protocol.records.formats.lance import PinnedLance
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

_PATH: Final = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True)
class RewritingReader(WrappingReader):
    """Gives the rows of files that have rows to be deleted, as `file_path`, `stays` and `row`, and none of other files.

    `rows`: the columns of a row, all that the table has. Rows that are deleted already are not given. `rows_to_delete` returns
    the numbers of the rows of a file that are to be deleted, rising.
    """

    inner: Reader
    rows_to_delete: Callable[[SourceFile, Range], Positions]
    rows: pa.Schema

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        # Matched as a whole, also where only the rest is left to be read: all its segments write it anew, or none does.
        gone = self.rows_to_delete(file, Range(file=piece.file, start=0, end=file.end))
        if not len(gone):
            yield Chunk(_batch(file.path, no_rows(self.rows), pa.array([], pa.bool_())), *_ends(piece))
            return
        for chunk in self.inner.read(file, piece, self.rows, sizing):
            stays = pa.array(~_are_in(numbers_of(chunk).to_numpy(), gone))
            yield Chunk(_batch(file.path, chunk.batch, stays), chunk.start, chunk.end, chunk.kept)


def _ends(piece: Range) -> tuple[int, int | None]:
    return piece.start, piece.end


def _batch(path: str, rows: pa.RecordBatch, stays: pa.Array) -> pa.RecordBatch:
    paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows.num_rows, np.int32)), pa.array([path]))
    row = rows.to_struct_array()
    return pa.RecordBatch.from_arrays([paths.cast(_PATH), stays, row], names=["file_path", "stays", "row"])


def _are_in(numbers: Positions, rising: Positions) -> np.ndarray[Any, np.dtype[np.bool_]]:
    at = np.searchsorted(rising, numbers)
    found: np.ndarray[Any, np.dtype[np.bool_]] = rising[np.minimum(at, len(rising) - 1)] == numbers
    return found


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
