"""The source table as its catalog shows it, checked before it is read, for the record of an attempt and for looks.

Drivers have no catalog, and must not need one. Only Iceberg has catalogs. A Lance dataset is opened by the driver, with its
storage settings.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, assert_never

from checkpoint_commit.lance.namespaces import why_led_elsewhere
from checkpoint_commit.ports import FoundItem, PinSource
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.manifest.sources.source import FilesSource, IcebergSource, LanceSource, Positional, Source
from checkpoint_protocol.manifest.where import parse_where
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import entry_of
from checkpoint_protocol.places.uris import PLACES_OF_TABLES
from checkpoint_protocol.records import PinnedIceberg, PinnedTable

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from checkpoint_commit.catalogs.named import CatalogBook

# What an Iceberg table says of itself, checked before anything is read or written by it: where it lies, and its history.
#
# A catalog's grant of a table is none of a place: who may register a table can make one that lies in somebody else's folder. Nor
# is its metadata what a catalog would write, if others can write where it lies.


def check_table(table: Table, settings: Settings, title: str) -> None:
    """Refuse a table that lies, or has its files written, where those for whom the settings are used may not, or whose history
    has no beginning: NeedsChange.
    """
    _refuse_endless_history(table.metadata, title)
    if settings.tenant is None:
        return
    metadata = table.metadata
    named = (metadata.properties[name] for name in PLACES_OF_TABLES if name in metadata.properties)
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


#: A snapshot that moves rows, and adds none.
_REPLACE: Final = "replace"
_DELETE: Final = "delete"


def open_source(source: Source, settings: Settings, catalogs: CatalogBook | None = None) -> PinSource:
    """Return what pins the tables of a manifest's source. The table library is imported only where it is needed.

    It raises NeedsChange if `where` cannot be understood, or the table or its snapshot does not exist; Retryable where the
    catalog does not answer.
    """

    def pin_all() -> tuple[PinnedIceberg | None, ...]:
        if source.where is not None:
            parse_where(source.where)
        pinned = [_pinned(member, settings, catalogs) for member in source.members]
        return tuple(pinned) if any(pinned) else ()

    return pin_all


def _pinned(source: Positional, settings: Settings, catalogs: CatalogBook | None) -> PinnedIceberg | None:
    match source:
        case IcebergSource():
            return pin(source, settings, catalogs)
        case LanceSource():
            if (why := why_led_elsewhere(source, settings)) is not None:
                raise NeedsChange(reasons.SOURCE_CHANGED, f"source: {why}")
            return None
        case FilesSource() | KafkaSource():
            return None
        case other:
            assert_never(other)


def pin(source: IcebergSource, settings: Settings, catalogs: CatalogBook | None = None) -> PinnedIceberg:
    """Return the table at the snapshot that the manifest means, as readers without a catalog need to know it."""
    return describe(source, load_source(source, settings, catalogs))


def load_source(source: IcebergSource, settings: Settings, catalogs: CatalogBook | None = None) -> Table:
    """Load the source table anew. NeedsChange(SourceMissing) if it does not exist."""
    from pyiceberg.exceptions import NoSuchTableError

    from checkpoint_commit.catalogs.named import CatalogBook, refuse_unknown_type, translate_catalog_error

    settings.check_grant(source.catalog, source.table)
    catalog = (catalogs or CatalogBook(settings)).open(source.catalog)
    try:
        table = catalog.load_table(source.table)
    except NoSuchTableError as error:
        raise NeedsChange(
            reasons.SOURCE_MISSING,
            f"source: the catalog {source.catalog!r} has no table {source.table}; correct source.iceberg, or make the table",
        ) from error
    except Exception as error:
        refuse_unknown_type(error, f"{source.catalog}.{source.table}")
        raise translate_catalog_error(error, source.catalog, settings.place) from error
    check_table(table, settings, f"{source.catalog}.{source.table}")
    return table


def describe(source: IcebergSource, table: Table) -> PinnedIceberg:
    """Return what readers need to know of a loaded table. NeedsChange(SourceMissing) if it has not that snapshot or branch."""
    metadata = table.metadata
    snapshot = _snapshot(source, table)
    is_old = source.snapshot_id is not None or _is_tag(source, table)
    schemas = {schema.schema_id: schema for schema in metadata.schemas}
    # A snapshot that is named is read as it was; a branch moves, and is read under the table's current names and types.
    schema = schemas.get(snapshot.schema_id) if is_old and snapshot is not None and snapshot.schema_id is not None else None
    mapping = metadata.properties.get("schema.name-mapping.default")
    return PinnedIceberg(
        table=f"{source.catalog}.{source.table}",
        table_uuid=str(metadata.table_uuid),
        location=metadata.location,
        metadata_location=table.metadata_location,
        snapshot_id=snapshot.snapshot_id if snapshot is not None else None,
        format_version=metadata.format_version,
        table_schema_json=(schema or metadata.schema()).model_dump_json(),
        partition_specs_json=tuple(spec.model_dump_json() for spec in metadata.partition_specs),
        name_mapping_json=mapping,
        sequence_number=snapshot.sequence_number if snapshot is not None else None,
    )


def _is_tag(source: IcebergSource, table: Table) -> bool:
    ref = table.metadata.refs.get(source.branch) if source.branch is not None else None
    return ref is not None and ref.snapshot_ref_type == "tag"


def _snapshot(source: IcebergSource, table: Table) -> Snapshot | None:
    metadata, title = table.metadata, f"{source.catalog}.{source.table}"
    if source.snapshot_id is not None:
        if (found := metadata.snapshot_by_id(source.snapshot_id)) is None:
            raise NeedsChange(
                reasons.SOURCE_MISSING,
                f"source: the table {title} has no snapshot {source.snapshot_id} (any more); correct source.iceberg.snapshotId",
            )
        return found
    if source.branch is None or source.branch == "main":
        return metadata.current_snapshot()
    if (found := metadata.snapshot_by_name(source.branch)) is None:
        known = ", ".join(sorted(metadata.refs)) or "none"
        raise NeedsChange(
            reasons.SOURCE_MISSING,
            f"source: the table {title} has no branch or tag {source.branch!r} (it has: {known}); correct source.iceberg.branch",
        )
    return found


def list_snapshots(
    source: IcebergSource,
    settings: Settings,
    catalogs: CatalogBook | None,
    before: PinnedTable | None,
    *,
    takes_changes: bool = False,
) -> Iterator[FoundItem]:
    """Give the snapshots since the one that was taken, but those that only move rows.

    With `takes_changes`, which passes over rows that are gone, those that only delete rows neither.

    A history that does not reach back to that one is told as news too: whoever takes them says what is wrong.
    """
    table = load_source(source, settings, catalogs)
    now = describe(source, table)
    passed_over = (_REPLACE, _DELETE) if takes_changes else (_REPLACE,)
    at, end = now.snapshot_id, before.snapshot_id if isinstance(before, PinnedIceberg) else None
    while at is not None and at != end:
        snapshot = table.metadata.snapshot_by_id(at)
        if snapshot is None:
            yield FoundItem(now.table, str(at))
            return
        summary = snapshot.summary
        if summary is None or summary.operation.value not in passed_over:
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
