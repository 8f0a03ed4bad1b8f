"""Metadata files of format version 3, in catalogs whose clients write them. pyiceberg 0.12 reads such files and writes none.

What a file says that pyiceberg does not know would be missing in the next one, so that nothing is committed to such a table.
"""

from __future__ import annotations

import json
from typing import Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO, InputFile
from pyiceberg.serializers import Compressor, ToOutputFile
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import IcebergBaseModel, Identifier


class _Written(TableMetadataV3):
    def model_dump_json(self, exclude_none: bool = True, **how: Any) -> str:  # type: ignore[override]  # as pyiceberg's own
        return IcebergBaseModel.model_dump_json(self, exclude_none, **how)


def _as_written(metadata: TableMetadata) -> TableMetadata:
    return _Written.model_construct(**dict(metadata)) if isinstance(metadata, TableMetadataV3) else metadata


class WritesFormat3(MetastoreCatalog):
    """A catalog that can write metadata of each format version."""

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        ToOutputFile.table_metadata(_as_written(metadata), io.new_output(metadata_path))

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        # Of another branch than that of the requirements there may be a snapshot since. pyiceberg looks at that in format 2 only.
        if current_table is not None and isinstance(current_table.metadata, TableMetadataV3):
            last = current_table.metadata.last_sequence_number
            for update in updates:
                if isinstance(update, AddSnapshotUpdate) and (update.snapshot.sequence_number or 0) <= last:
                    raise CommitFailedException(f"the table has a snapshot of sequence number {last} since it was loaded")
        return super()._update_and_stage_table(current_table, table_identifier, requirements, updates)


def find_unknown(metadata: TableMetadata, file: InputFile) -> str | None:
    """Return the path of a member of a table's metadata file that would be missing in the next one; None if there is none."""
    with file.open() as stream, Compressor.get_compressor(file.location).stream_decompressor(stream) as plain:
        said = json.load(plain)
    return _missing(said, json.loads(_as_written(metadata).model_dump_json()), "")


def _missing(said: Any, kept: Any, path: str) -> str | None:
    if isinstance(said, dict) and isinstance(kept, dict):
        for name, value in said.items():
            below = f"{path}.{name}".lstrip(".")
            if name in kept:
                if (found := _missing(value, kept[name], below)) is not None:
                    return found
            # Empty ones say nothing, and -1 that there is no current snapshot.
            elif value not in (None, [], {}) and (below, value) != ("current-snapshot-id", -1):
                return below
    elif isinstance(said, list) and isinstance(kept, list):
        if len(said) != len(kept):
            return path
        for number, pair in enumerate(zip(said, kept, strict=True)):
            if (found := _missing(*pair, f"{path}[{number}]")) is not None:
                return found
    return None
