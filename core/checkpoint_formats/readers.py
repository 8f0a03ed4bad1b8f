"""The readers of the sources whose rows are identified by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, assert_never

from checkpoint_formats.files.binary.reader import BinaryReader
from checkpoint_formats.files.csv.reader import CsvReader
from checkpoint_formats.files.json.reader import JsonReader
from checkpoint_formats.files.parquet.reader import ParquetReader
from checkpoint_formats.files.partitioned import PartitionedReader
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.port import FileReader, Reader, WrappingReader
from checkpoint_formats.rows.selecting import SelectingReader, Selection, selection_of
from checkpoint_formats.stage_results.reader import StageResultReader
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.manifest.sources.source import FilesSource, IcebergSource, LanceSource, Positional, Source
from checkpoint_protocol.manifest.where import Condition
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import PinnedIceberg, PinnedKafka, PinnedTable
from checkpoint_protocol.records.formats.lance import PinnedLance
from checkpoint_protocol.records.inputs import SourceFile

_Pinned = TypeVar("_Pinned", PinnedIceberg, PinnedLance)


def reader_for(
    source: Source, storage: StorageSettings, tables: Sequence[PinnedTable | None] = (), *, sets_apart: bool = False
) -> SelectingReader:
    """Return the reader of an input, of which `tables` are recorded. Nothing is asked of a store yet.

    `sets_apart`: of text, a line that cannot be read is a row that failed, and does not end the reading.
    NeedsChange(ManifestInvalid) if its options, or `where`, cannot be.
    """
    selection = selection_of(source)
    pinned = tables or (None,) * len(source.members)
    readers = [_reader_of(*member, selection, storage, sets_apart) for member in zip(source.members, pinned, strict=True)]
    return SelectingReader(selection, readers[0] if len(readers) == 1 else UnionReader(readers))


def reader_of_stage(storage: StorageSettings) -> SelectingReader:
    """Return the reader of the result of a stage, all of which is read."""
    return SelectingReader(Selection(), StageResultReader(storage))


def file_reader_for(
    source: FilesSource, selection: Selection, storage: StorageSettings, *, sets_apart: bool = False
) -> FileReader:
    """Return the reader of a source of files."""
    files, columns = SourceFiles(storage), selection.columns_to_read

    def make(source: FilesSource, condition: Condition | None) -> FileReader:
        match source.format:
            case "parquet":
                return ParquetReader(source, columns, files, condition)
            case "csv":
                return CsvReader(source, columns, files, sets_apart=sets_apart)
            case "json":
                return JsonReader(source, columns, files, sets_apart=sets_apart)
            case "binary":
                return BinaryReader(columns, files, condition)
            case other:
                assert_never(other)

    if source.partitions == "Ignore":
        return make(source, selection.condition)
    return PartitionedReader(source, columns, selection.condition, make)


def _reader_of(
    source: Positional, table: PinnedTable | None, selection: Selection, storage: StorageSettings, sets_apart: bool
) -> Reader:
    match source:
        case FilesSource():
            return file_reader_for(source, selection, storage, sets_apart=sets_apart)
        case IcebergSource():
            from checkpoint_formats.iceberg.changed import ChangedRowsReader
            from checkpoint_formats.iceberg.reader import IcebergReader

            pinned = _pinned(PinnedIceberg, table)
            reader = IcebergReader(pinned, SourceFiles(storage), selection.condition)
            return reader if pinned.changed_after is None else ChangedRowsReader(reader, pinned.changed_after)
        case LanceSource():
            from checkpoint_formats.lance import open_reader

            return open_reader(_pinned(PinnedLance, table), storage)
        case KafkaSource():
            from checkpoint_formats.kafka.reader import KafkaReader

            schemas = table.schemas if isinstance(table, PinnedKafka) else ()
            return KafkaReader(source, selection.columns_to_read, storage, schemas=schemas, sets_apart=sets_apart)
        case other:
            assert_never(other)


def _pinned(kind: type[_Pinned], table: PinnedTable | None) -> _Pinned:
    if not isinstance(table, kind):
        raise Corrupt(reasons.RECORD_UNREADABLE, "the input record does not have the table of its source")
    return table


class UnionReader(WrappingReader):
    """Reads each file by the reader of the source that it is of."""

    def __init__(self, members: Sequence[Reader]) -> None:
        self._members = members

    def inner_of(self, file: SourceFile) -> Reader:
        return self._members[file.source]
