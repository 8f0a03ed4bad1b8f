"""What a source has that no epoch has taken: files by their listings, tables by their snapshots, datasets by their fragments."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, assert_never

from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_operator.loop.looks import FoundItem, Known, ListNews
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.manifest.sources.source import FilesSource, IcebergSource, LanceSource
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import PinnedIceberg, PinnedLance, PinnedTable, TakenRecord

if TYPE_CHECKING:
    from checkpoint_operator.catalogs.named import CatalogBook

#: A snapshot that moves rows, and adds none.
_REPLACE: Final = "replace"


def open_news(spec: Spec, settings: Settings, catalogs: CatalogBook | None = None) -> ListNews:
    """Return what lists the new input of a manifest's source."""

    def list_news(taken: TakenRecord, known: Known) -> Iterator[FoundItem] | None:
        if spec.source.keyed is not None or any(isinstance(member, KafkaSource) for member in spec.source.members):
            return None
        found: list[Iterator[FoundItem]] = []
        for number, member in enumerate(spec.source.members):
            table = taken.tables[number] if taken.tables else None
            match member:
                case FilesSource():
                    found.append(_files(member, settings, known, takes_replaced=spec.on_replaced != "Skip"))
                case IcebergSource():
                    found.append(_snapshots(member, settings, catalogs, table))
                case LanceSource():
                    found.append(_fragments(member, settings, known, table))
                case KafkaSource():
                    raise AssertionError("of Kafka only a driver has the client")
                case other:
                    assert_never(other)
        return chain.from_iterable(found)

    return list_news


def _files(source: FilesSource, settings: Settings, known: Known, *, takes_replaced: bool) -> Iterator[FoundItem]:
    """Give the files that were not taken as they are now. A file that was replaced is one; whoever takes it says what it is."""
    files = SourceFiles(settings)
    for path in source.paths:
        for file in files.find(path):
            if known.has(file.path, file.etag) or (known.has_name(file.path) and not takes_replaced):
                continue
            made_at = datetime.datetime.fromtimestamp(file.modified_us / 1e6, datetime.UTC)
            yield FoundItem(file.path, file.etag, size_bytes=file.size_bytes, made_at=made_at)


def _snapshots(
    source: IcebergSource, settings: Settings, catalogs: CatalogBook | None, before: PinnedTable | None
) -> Iterator[FoundItem]:
    """Give the snapshots since the one that was taken, but those that only move rows.

    A history that does not reach back to that one is told as news too: whoever takes them says what is wrong.
    """
    from checkpoint_operator.catalogs.source_tables import describe, load_source

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


def _fragments(source: LanceSource, settings: Settings, known: Known, before: PinnedTable | None) -> Iterator[FoundItem]:
    """Give the fragments that were not taken as they are now; none while the version is the one that was taken."""
    from checkpoint_formats.lance.reader import list_fragments

    for file in list_fragments(source, settings, before if isinstance(before, PinnedLance) else None):
        if not known.has(file.path, file.etag):
            yield FoundItem(file.path, file.etag, size_bytes=file.size_bytes)
