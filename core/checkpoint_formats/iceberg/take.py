"""What an epoch takes of an Iceberg table: the data files that came since the snapshot that was taken."""

from __future__ import annotations

import pyarrow as pa

from checkpoint_formats.iceberg.changed import find_changed
from checkpoint_formats.iceberg.plan import columns_of, described, find_files
from checkpoint_formats.port import Described
from checkpoint_formats.rows.where import Filter
from checkpoint_formats.taking import Taking, choose
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.manifest.sources.source import IcebergSource
from checkpoint_protocol.manifest.where import Condition
from checkpoint_protocol.records import PinnedIceberg
from checkpoint_protocol.records.inputs import SourceFile


def take(_source: IcebergSource, of: Taking) -> tuple[Described, PinnedIceberg]:
    """Return what the epoch takes of the table at the snapshot that the launch record names, and that table."""
    launch, storage = of.launch, of.storage
    table = launch.source_tables[of.number] if launch.source_tables else None
    if table is None:
        raise Corrupt(
            reasons.RECORD_UNREADABLE,
            f"the launch record of attempt {launch.attempt} does not name a snapshot of its source table; it was written by "
            "another release: use that one, or start a new write",
        )
    before = of.earlier.table if isinstance(of.earlier.table, PinnedIceberg) else None
    condition = of.selection.condition
    if launch.source.union is not None and condition is not None and not _applies(condition, columns_of(table)):
        condition = None
    new: tuple[SourceFile, ...] = ()
    if not of.takes_new:
        # The next epoch takes what came after this one's snapshot, so that must be the one up to which all was taken.
        table = before or table.model_copy(update={"snapshot_id": None})
    elif launch.source.changes == "Upserts":
        new, table = find_changed(table, condition, storage, before)
    else:
        new = find_files(table, condition, storage, before, launch.on_replaced)
    present: tuple[SourceFile, ...] = ()
    if of.earlier.again:
        try:
            present = find_files(table, condition, storage, None, launch.on_replaced)
        except Retryable as error:
            if of.takes_new or error.reason != reasons.SOURCE_CHANGED:
                raise
            raise NeedsChange(
                error.reason,
                f"{error.message}; quarantine.retry: Only reads the snapshot of the epoch before, which the table no longer has: "
                "set quarantine.retry: Also, which reads the one of now, or Never",
            ) from error
    files = {file.path: file for file in (*present, *new)}
    names = {file.path for file in new}
    taken = choose([files[path] for path in sorted(files)], lambda file: file.path in names, of)
    return described(table, taken, of.selection.columns_to_read), table


def _applies(condition: Condition, schema: pa.Schema) -> bool:
    """Whether files of a member can be left out by a condition, which is one on the columns of all members together."""
    try:
        Filter(condition, schema)
    except NeedsChange:
        return False
    return True
