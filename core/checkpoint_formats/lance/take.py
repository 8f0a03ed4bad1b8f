"""What an epoch takes of a Lance dataset: the fragments that were not taken, and rows that were made since."""

from __future__ import annotations

from dataclasses import replace

from checkpoint_formats.lance.changed import changes_of, with_changed
from checkpoint_formats.lance.reader import find_fragments, is_known
from checkpoint_formats.port import Described
from checkpoint_formats.taking import Taking, choose
from checkpoint_protocol.manifest.sources.source import LanceSource
from checkpoint_protocol.records.formats.lance import PinnedLance
from checkpoint_protocol.records.formats.operations import AddColumns
from checkpoint_protocol.records.inputs import SourceFile


def take(source: LanceSource, of: Taking) -> tuple[Described, PinnedLance]:
    """Return what the epoch takes of the dataset's fragments, and the version that they are of."""
    launch, earlier = of.launch, of.earlier
    added = launch.operation if isinstance(launch.operation, AddColumns) else None
    is_upserted = launch.source.changes == "Upserts"
    before = earlier.table if isinstance(earlier.table, PinnedLance) else None
    described, table = find_fragments(
        source, of.selection.columns_to_read, of.storage, earlier.taken, launch.on_replaced, added, before, is_upserted
    )
    known = earlier.files
    changes = None
    if added is not None and added.only == "Changed":
        table = with_changed(table, described.schema.names, before, earlier.committed_at, "sink.only: Changed")
        changes = changes_of(table, of.storage)
    if is_upserted:
        # A row that has changed is a new one of its key: whether the last one has come to the table does not matter.
        table = with_changed(table, described.schema.names, before, None, "source.changes: Upserts")
        changes = changes_of(table, of.storage)

    def is_new(file: SourceFile) -> bool:
        if changes is not None and file.fragment is not None:
            return changes.may_have(file.fragment)
        return file.path not in known if added is None else not is_known(file, known.get(file.path))

    return replace(described, files=choose(described.files, is_new, of)), table
