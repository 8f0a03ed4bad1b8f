"""The reader of a source's format."""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint_formats.files.csv.reader import CsvReader
from checkpoint_formats.files.json.reader import JsonReader
from checkpoint_formats.files.parquet.reader import ParquetReader
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.port import FileReader
from checkpoint_formats.selecting import SelectingFileReader, SelectingReader, as_read, condition_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.manifest import Source
from checkpoint_protocol.outputs import Output
from checkpoint_protocol.records import PinnedIceberg, PinnedLance, PinnedTable
from checkpoint_protocol.storage import StorageSettings


def reader_for(
    source: Source, storage: StorageSettings, table: PinnedTable | None = None, *, sets_apart: bool = False
) -> SelectingReader:
    """Return the reader of an input, of which `table` is recorded where it is a table. Nothing is asked of a store yet.

    `sets_apart`: of text, a line that cannot be read is a row that failed, and does not end the reading.
    NeedsChange(ManifestInvalid) if its options, or `where`, cannot be.
    """
    match table:
        case PinnedIceberg():
            from checkpoint_formats.iceberg.reader import IcebergReader

            return SelectingReader(source, IcebergReader(table, SourceFiles(storage), condition_of(source)))
        case PinnedLance():
            from checkpoint_formats.lance.reader import LanceReader

            return SelectingReader(source, LanceReader(table, storage))
        case None:
            return file_reader_for(source, storage, sets_apart=sets_apart)


def file_reader_for(
    source: Source, storage: StorageSettings, *, outputs: Sequence[Output] = (), sets_apart: bool = False
) -> SelectingFileReader:
    """Return the reader of a source of files, which finds them too, but none in these outputs of the write."""
    return SelectingFileReader(source, _files_of(as_read(source), SourceFiles(storage, outputs), sets_apart))


def _files_of(source: Source, files: SourceFiles, sets_apart: bool) -> FileReader:
    match source.format:
        case "parquet":
            return ParquetReader(source, files, condition_of(source))
        case "csv":
            return CsvReader(source, files, sets_apart=sets_apart)
        case "json":
            return JsonReader(source, files, sets_apart=sets_apart)
        case _:
            if source.is_dataframe:
                raise NeedsChange(reasons.MANIFEST_INVALID, f"the format {source.format!r} cannot be read in splits")
            raise Corrupt(reasons.RECORD_UNREADABLE, f"the input record of a {source.format} source does not name its table")
