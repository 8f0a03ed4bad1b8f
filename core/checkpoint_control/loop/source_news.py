"""What a source has that no epoch has taken: files by their listings, tables by their snapshots, datasets by their fragments."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, assert_never

from checkpoint_commit.catalogs.source_tables import list_snapshots
from checkpoint_commit.ports import FoundItem
from checkpoint_control.loop.looks import Known, ListNews
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.manifest.sources.source import FilesSource, IcebergSource, LanceSource
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import PinnedLance, PinnedTable, TakenRecord

if TYPE_CHECKING:
    from checkpoint_commit.catalogs.named import CatalogBook


def open_news(spec: Spec, settings: Settings, catalogs: CatalogBook | None = None) -> ListNews:
    """Return what lists the new input of a manifest's source."""

    def list_news(taken: TakenRecord, known: Known) -> Iterator[FoundItem] | None:
        if spec.source.keyed is not None:
            return None
        found: list[Iterator[FoundItem]] = []
        for number, member in enumerate(spec.source.members):
            table = taken.tables[number] if taken.tables else None
            match member:
                case FilesSource():
                    found.append(_files(member, settings, known, takes_replaced=spec.on_replaced != "Skip"))
                case IcebergSource():
                    found.append(list_snapshots(member, settings, catalogs, table))
                case LanceSource():
                    found.append(_fragments(member, settings, known, table, adds_columns=spec.sink.mode == "AddColumns"))
                case KafkaSource():
                    return None  # only a driver has the client
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


def _fragments(
    source: LanceSource, settings: Settings, known: Known, before: PinnedTable | None, *, adds_columns: bool
) -> Iterator[FoundItem]:
    """Give the fragments that were not taken as they are now; none while the version is the one that was taken.

    Of a write that adds columns, whose own commit changes each fragment: those that its driver would take.
    """
    from checkpoint_formats.lance.reader import is_known, list_fragments

    for file in list_fragments(source, settings, before if isinstance(before, PinnedLance) else None):
        is_taken = is_known(file, known.fragments.get(file.path)) if adds_columns else known.has(file.path, file.etag)
        if not is_taken:
            yield FoundItem(file.path, file.etag, size_bytes=file.size_bytes)
