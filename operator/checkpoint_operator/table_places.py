"""Where an Iceberg table says that it lies: checked against the storage settings before anything is read or written there.

A catalog's grant of a table is none of a place: who may register a table can make one that lies in somebody else's folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from checkpoint_protocol.settings import Settings
from checkpoint_protocol.storage import entry_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

_PLACES: Final = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")


def check_places(table: Table, settings: Settings) -> None:
    """Refuse a table that lies, or has its files written, where those for whom the settings are used may not: NeedsChange."""
    if settings.tenant is None:
        return
    metadata = table.metadata
    named = (metadata.properties[name] for name in _PLACES if name in metadata.properties)
    snapshot = metadata.current_snapshot()
    of_snapshot = (snapshot.manifest_list,) if snapshot is not None else ()
    for uri in (table.metadata_location, metadata.location, *named, *of_snapshot):
        entry_of(uri, settings)
