"""What an Iceberg table says of itself, checked before anything is read or written by it: where it lies, and its history.

A catalog's grant of a table is none of a place: who may register a table can make one that lies in somebody else's folder. Nor is
its metadata what a catalog would write, if others can write where it lies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import entry_of

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

_PLACES: Final = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")


def check_table(table: Table, settings: Settings, title: str) -> None:
    """Refuse a table that lies, or has its files written, where those for whom the settings are used may not, or whose history
    has no beginning: NeedsChange.
    """
    _refuse_endless_history(table.metadata, title)
    if settings.tenant is None:
        return
    metadata = table.metadata
    named = (metadata.properties[name] for name in _PLACES if name in metadata.properties)
    heads = (metadata.snapshot_by_id(ref.snapshot_id) for ref in metadata.refs.values())
    of_heads = (head.manifest_list for head in heads if head is not None)
    for uri in (table.metadata_location, metadata.location, *named, *of_heads):
        entry_of(uri, settings)


def _refuse_endless_history(metadata: TableMetadata, title: str) -> None:
    """NeedsChange for a snapshot that comes after itself: whoever follows it to the first one would never end."""
    before = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in metadata.snapshots}
    ended: set[int] = set()
    for start in before:
        passed: set[int] = set()
        at: int | None = start
        while at is not None and at in before and at not in ended:
            if at in passed:
                raise NeedsChange(
                    reasons.TABLE_UNSUPPORTED,
                    f"the metadata of the table {title} say that its snapshot {at} comes after itself; set the table back to "
                    "metadata that its catalog has written",
                )
            passed.add(at)
            at = before[at]
        ended |= passed
