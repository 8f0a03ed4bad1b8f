"""The reader of a source's format."""

from __future__ import annotations

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest import Source
from checkpoint_protocol.storage import StorageSettings
from checkpoint_spark.sources.chunks import Reader
from checkpoint_spark.sources.csv import CsvReader
from checkpoint_spark.sources.files import SourceFiles
from checkpoint_spark.sources.json import JsonReader
from checkpoint_spark.sources.parquet import ParquetReader


def reader_for(source: Source, storage: StorageSettings) -> Reader:
    """Return the reader. NeedsChange(ManifestInvalid) if its options cannot be; nothing is asked of a store yet."""
    files = SourceFiles(storage)
    match source.format:
        case "parquet":
            return ParquetReader(source, files)
        case "csv":
            return CsvReader(source, files)
        case "json":
            return JsonReader(source, files)
        case _:
            raise NeedsChange(reasons.MANIFEST_INVALID, f"the format {source.format!r} cannot be read in splits")
