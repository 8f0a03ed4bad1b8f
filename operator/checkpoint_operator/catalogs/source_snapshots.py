"""The snapshots of a source table that no epoch has taken, as its catalog shows them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from checkpoint_operator.catalogs.source_tables import describe, load_source
from checkpoint_operator.loop.looks import FoundItem
from checkpoint_protocol.manifest.sources.source import IcebergSource
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import PinnedIceberg, PinnedTable

if TYPE_CHECKING:
    from checkpoint_operator.catalogs.named import CatalogBook

#: A snapshot that moves rows, and adds none.
_REPLACE: Final = "replace"


def list_snapshots(
    source: IcebergSource, settings: Settings, catalogs: CatalogBook | None, before: PinnedTable | None
) -> Iterator[FoundItem]:
    """Give the snapshots since the one that was taken, but those that only move rows.

    A history that does not reach back to that one is told as news too: whoever takes them says what is wrong.
    """
    table = load_source(source, settings, catalogs)
    now = describe(source, table)
    at, end = now.snapshot_id, before.snapshot_id if isinstance(before, PinnedIceberg) else None
    while at is not None and at != end:
        snapshot = table.metadata.snapshot_by_id(at)
        if snapshot is None:
            yield FoundItem(now.table, str(at))
            return
        summary = snapshot.summary
        if summary is None or summary.operation.value != _REPLACE:
            told = summary.additional_properties if summary is not None else {}
            yield FoundItem(
                now.table,
                str(at),
                max(1, _number(told.get("added-data-files"))),
                _number(told.get("added-files-size")),
                _moment(snapshot.timestamp_ms),
            )
        at = snapshot.parent_snapshot_id


def _number(text: str | None) -> int:
    """Return what a summary tells, which its writer has made."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 19 else 0


def _moment(milliseconds: int) -> datetime.datetime | None:
    """Return when a snapshot says that it was made; None for what is no time."""
    try:
        return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return None
