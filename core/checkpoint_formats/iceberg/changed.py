"""Which rows of an Iceberg table of format version 3 are new or were changed since an earlier epoch, by its row lineage.

Source of the rules: the Iceberg table specification (row lineage). A row that is moved unchanged keeps the sequence number of the
snapshot that has last updated it, if its writer keeps row lineage. A writer that does not gives a new one to each row it moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from checkpoint_formats.iceberg.manifests_3 import LAST_UPDATED, LINEAGE
from checkpoint_formats.iceberg.plan import find_files
from checkpoint_formats.port import Chunk, Reader, WrappingReader
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.where import Condition
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import PinnedIceberg
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

_LINEAGE: Final = tuple(pa.field(field.name, pa.int64()) for field in LINEAGE)


def find_changed(
    table: PinnedIceberg, condition: Condition | None, storage: StorageSettings, earlier: PinnedIceberg | None
) -> tuple[tuple[SourceFile, ...], PinnedIceberg]:
    """Return the data files that may have new or changed rows, sorted by path, and the table with what tells them from others.

    `earlier` is the table as the epoch before this one had it. What snapshots in between have done does not matter; rows that
    they have deleted are passed over. NeedsChange(TableUnsupported) where rows have no lineage; NeedsChange(SourceChanged) where
    the earlier snapshot is not one that the table comes from.
    """
    _refuse_rows_without_lineage(table)
    if earlier is None or earlier.snapshot_id is None:
        return find_files(table, condition, storage, None, "Fail"), table
    after = earlier.sequence_number or 0
    files = find_files(table, condition, storage, earlier, "Process", with_row_ids=True)
    # A compaction may keep the sequence number of its input, so that it has moved no row that is newer.
    newer = tuple(file for file in files if file.iceberg is None or (file.iceberg.sequence_number or after + 1) > after)
    return newer, table.model_copy(update={"changed_after": after})


def _refuse_rows_without_lineage(table: PinnedIceberg) -> None:
    if table.format_version < 3:
        raise NeedsChange(
            reasons.TABLE_UNSUPPORTED,
            f"source.changes: Upserts tells changed rows by row lineage, which the table {table.table} does not have in format "
            f"version {table.format_version}: upgrade it (set its property format-version to 3), or start a write under another "
            "name without it",
        )
    names = Schema.model_validate_json(table.table_schema_json).column_names
    if taken := [field.name for field in LINEAGE if field.name in names]:
        raise NeedsChange(
            reasons.TABLE_UNSUPPORTED,
            f"source.changes: Upserts reads the column {taken[0]} of row lineage, and the table {table.table} has one of its own "
            "by that name: rename that, or start a write under another name without it",
        )


@dataclass(frozen=True, slots=True)
class ChangedRowsReader(WrappingReader):
    """Gives the rows that snapshots after this sequence number have added or changed."""

    inner: Reader
    after: int

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        asked = pa.schema([*schema, *_LINEAGE])
        for chunk in self.inner.read(file, piece, asked, sizing):
            yield self._changed(chunk, schema)

    def _changed(self, chunk: Chunk, schema: pa.Schema) -> Chunk:
        rows, updated = chunk.batch.select(schema.names), chunk.batch.column(LAST_UPDATED.name)
        numbers = pc.indices_nonzero(pc.fill_null(pc.greater(updated, self.after), True))
        if len(numbers) == rows.num_rows:
            return replace(chunk, batch=rows)
        kept = numbers if chunk.kept is None else chunk.kept.take(numbers)
        return replace(chunk, batch=rows.take(numbers), kept=kept)
