"""The Iceberg port over pyiceberg: load, compare, one swap. No retry of the library's is in the way.

`catalog.commit_table` is called directly: pyiceberg's own transaction rebases and commits again without looking for the key,
and with its retries off it deletes the manifest list of a commit that was answered 409 though it had landed.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, assert_never

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import (
    ManifestContent,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import (
    Snapshot,
    ancestors_of,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.transforms import parse_transform

from checkpoint_formats.iceberg.file_io import CheckedFileIO, manifests_of, open_file_io, refuse_places_elsewhere
from checkpoint_operator.arrow_schema import decode_schema
from checkpoint_operator.catalogs import CLASS_PROPERTIES, CatalogBook, translate_catalog_error
from checkpoint_operator.commit import iceberg_append
from checkpoint_operator.commit.changes import Change, StagedChange, only
from checkpoint_operator.commit.footers import Footers, parquet_rows
from checkpoint_operator.commit.iceberg import IcebergState
from checkpoint_operator.commit.iceberg_append import IcebergAppend, OwnFiles, StagedFor, staged_for
from checkpoint_operator.commit.metadata_files import MetadataFile, put_all
from checkpoint_operator.commit.outcomes import Landed, Refused, Rejected, RequestOutcome, Unanswered
from checkpoint_operator.commit.presence import Former, Presence
from checkpoint_operator.commit.staged_files import find_missing, remove_files, tail_of
from checkpoint_operator.table_places import check_places
from checkpoint_operator.table_types import iceberg_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.identity import KEY_PROPERTY_PREFIX, EpochKey, new_token
from checkpoint_protocol.records import Append, IcebergFile, IcebergTarget, Operation, StagedFile, Target
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.sink import PARTITION_TRANSFORMS, Sink

_KEY_SUMMARY: Final = f"{KEY_PROPERTY_PREFIX}key"
_NAME_SUMMARY: Final = f"{KEY_PROPERTY_PREFIX}name"
_TOMBSTONE_SUMMARY: Final = f"{KEY_PROPERTY_PREFIX}tombstone"
#: After a write's own property: the highest epoch that a deletion has blocked. Snapshots expire, properties do not.
_BLOCKED_SUFFIX: Final = ".deleted"
#: A table that was loaded so long ago is loaded again before a claim names its head.
_YOUNG_S: Final = 5.0
_CODECS: Final = frozenset({"zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"})


class PyicebergTable:
    """One table of one catalog. Implements IcebergTable, and makes what staging needs to know of it."""

    def __init__(
        self,
        catalog: str,
        table: str,
        settings: Settings,
        catalogs: CatalogBook | None = None,
        clock: Callable[[], float] = time.monotonic,
        written_by: str = "",
    ) -> None:
        self._catalog_name = catalog
        self._name = table
        self._settings = settings
        self._catalogs = catalogs or CatalogBook(settings)
        self._clock = clock
        self._written_by = written_by
        self._unseen: tuple[Table, float] | None = None
        self._loaded: tuple[IcebergState, Table, EpochKey] | None = None

    @property
    def title(self) -> str:
        return f"{self._catalog_name}.{self._name}"

    # --- before staging -----------------------------------------------------------------------------------------------------

    def describe(self) -> IcebergTarget | None:
        """Return the table as staging needs to know it, or None if it does not exist. NeedsChange if it cannot be written."""
        table = self._load_table()
        return None if table is None else self._target(table)

    def create(self, arrow_schema: str, sink: Sink) -> IcebergTarget:
        """Make the table (and its namespace) for rows of an Arrow schema; return it, also if another has made it just now."""
        catalog = self._catalog()
        # What is wrong with the output is none of the catalog's failures: all of it is found before the catalog is asked.
        schema = self._own_schema(catalog, arrow_schema)
        partition_spec = _partition_spec(schema, sink)
        namespace = self._name.rsplit(".", 1)[0]
        try:
            with contextlib.suppress(NamespaceAlreadyExistsError):
                catalog.create_namespace(namespace)
            catalog.create_table(self._name, schema=schema, partition_spec=partition_spec)
        except TableAlreadyExistsError:
            pass
        except (BadRequestError, ValueError, TypeError, NotImplementedError) as error:
            raise self._cannot_be_made(error) from error
        except Exception as error:
            raise translate_catalog_error(error, self._catalog_name, self._settings.place) from error
        target = self.describe()
        if target is None:
            raise Retryable(reasons.TABLE_MISSING, f"the table {self.title} was made and is not there")
        return target

    def _own_schema(self, catalog: Catalog, arrow_schema: str) -> Schema:
        """Return the table's own schema, with fresh ids. NeedsChange if Iceberg has no type for a column."""
        try:
            return assign_fresh_schema_ids(catalog._convert_schema_if_needed(iceberg_schema(decode_schema(arrow_schema))))
        except Exception as error:  # pyiceberg's own for types is a bare Exception
            raise self._cannot_be_made(error) from error

    def _cannot_be_made(self, error: Exception) -> NeedsChange:
        return NeedsChange(
            reasons.OUTPUT_SCHEMA_WRONG, f"no Iceberg table {self.title} can be made of the steps' output: {error}"
        )

    def _target(self, table: Table) -> IcebergTarget:
        metadata = table.metadata
        self._refuse_unsupported(table)
        properties = metadata.properties
        level = properties.get("write.parquet.compression-level")
        return IcebergTarget(
            table=self.title,
            table_uuid=str(metadata.table_uuid),
            data_location=properties.get("write.data.path", f"{metadata.location.rstrip('/')}/data").rstrip("/"),
            table_schema_json=metadata.schema().model_dump_json(),
            partition_spec_json=metadata.spec().model_dump_json(),
            codec=properties.get("write.parquet.compression-codec", "zstd").lower(),
            codec_level=int(level) if level is not None and level.isdigit() else None,
        )

    def _refuse_unsupported(self, table: Table) -> None:
        metadata, problem = table.metadata, None
        refuse_places_elsewhere(metadata, table.metadata_location, self._settings, self.title)
        if metadata.format_version >= 3:
            problem = f"has format version {metadata.format_version}, and versions 1 and 2 can be written"
        elif classes := sorted(CLASS_PROPERTIES & metadata.properties.keys()):
            problem = f"asks for code to be imported by its property {classes[0]!r}"
        elif metadata.properties.get("write.format.default", "parquet") != "parquet":
            problem = f"wants {metadata.properties['write.format.default']} files, and Parquet can be written"
        elif metadata.properties.get("write.parquet.compression-codec", "zstd").lower() not in _CODECS:
            problem = f"wants the codec {metadata.properties['write.parquet.compression-codec']!r}"
        else:
            for field in metadata.spec().fields:
                if str(field.transform) not in (*PARTITION_TRANSFORMS, "void"):
                    problem = f"is partitioned by {field.transform}; supported: {', '.join(PARTITION_TRANSFORMS)}"
        if problem is not None:
            raise NeedsChange(reasons.TABLE_UNSUPPORTED, f"the table {self.title} {problem}")

    def pack(
        self,
        operation: Operation,
        key: EpochKey,
        targets: Sequence[Target],
        files: Iterable[StagedFile],
        footers: Footers | None = None,
    ) -> Change:
        """Make manifest entries of the files as they come, for the table as it is now. The commit's first load takes that one,
        unless it has got old: the base of a claim should not be a head that the table has left, and may expire.

        Where the table no longer fits what was staged, the files stay as they are: the commit says what is wrong.
        """
        table = self._load_table()
        wanted = [target for target in targets if isinstance(target, IcebergTarget)]
        if table is None or _changed(table.metadata, wanted, self.title) is not None:
            return StagedChange(operation, tuple(only(IcebergFile, files, self.title)))
        self._unseen = table, self._clock()
        return self._packed(operation, table.metadata, key, staged_for(wanted), files, footers)

    def _packed(
        self,
        operation: Operation,
        metadata: TableMetadata,
        key: EpochKey,
        wanted: StagedFor | None,
        files: Iterable[StagedFile],
        footers: Footers | None = None,
    ) -> IcebergAppend:
        """Give the form in which this version of the table takes the operation."""
        match operation:
            case Append():
                return iceberg_append.pack(metadata, key, wanted, only(IcebergFile, files, self.title), footers)
            case other:
                assert_never(other)

    # --- the port -------------------------------------------------------------------------------------------------------------

    def load(self, key: EpochKey) -> IcebergState | None:
        unseen, self._unseen = self._unseen, None
        is_young = unseen is not None and self._clock() - unseen[1] <= _YOUNG_S
        table = unseen[0] if unseen is not None and is_young else self._load_table()
        if table is None:
            return None
        metadata = table.metadata
        head = metadata.snapshot_by_name(MAIN_BRANCH)
        ancestry = list(ancestors_of(head, metadata))
        committed = _committed_snapshot(metadata, ancestry, key)
        is_blocked = committed is None and _is_blocked(metadata, ancestry, key)
        state = IcebergState(
            table_uuid=str(metadata.table_uuid),
            head=head.snapshot_id if head else None,
            committed=key.snapshot_id if is_blocked else committed,
            ancestry=tuple(snapshot.snapshot_id for snapshot in ancestry),
            ancestry_is_whole=not ancestry or _is_first(ancestry[-1]),
            is_tombstone=is_blocked,
            is_current=committed is None or _is_current(metadata, ancestry, key, committed),
        )
        self._loaded = (state, table, key)
        return state

    def find_incompatibility(self, state: IcebergState, targets: Sequence[IcebergTarget], change: Change) -> Rejected | None:
        table = self._table_of(state)
        metadata = table.metadata
        self._refuse_what_it_has_become(table)
        if (changed := _changed(metadata, targets, self.title)) is not None:
            return changed
        packed = self._change_for(state, change, targets)
        if packed.incompatibility is not None:
            return packed.incompatibility
        for folder, expected in packed.sizes.items():
            if (missing := find_missing(folder, expected, self._settings)) is not None:
                return missing
        return None

    def references_any(self, state: IcebergState, change: Change) -> bool:
        table = self._table_of(state)
        head = table.metadata.snapshot_by_name(MAIN_BRANCH)
        if head is None:
            return False
        assert isinstance(change, IcebergAppend | StagedChange)
        is_ours = change.names if isinstance(change, IcebergAppend) else change.paths.__contains__
        io = self._io(table)
        return any(
            is_ours(entry.data_file.file_path)
            for manifest in manifests_of(head, io)
            if manifest.content == ManifestContent.DATA
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
        )

    def swap(self, state: IcebergState, key: EpochKey, change: Change) -> RequestOutcome:
        metadata = self._table_of(state).metadata
        packed = self._change_for(state, change)
        if packed.incompatibility is not None:  # without the files that are not fit, rows would be lost
            raise NeedsChange(packed.incompatibility.reason, packed.incompatibility.message)
        properties = {key.property_name: str(max(key.epoch, _recorded_epoch(metadata, key)))}
        # For people, and for `find_former`: no rule of the commit asks for the name.
        return self._request(state, key, packed, properties, {_NAME_SUMMARY: self._written_by} if self._written_by else {})

    def block_commit(self, state: IcebergState, key: EpochKey) -> RequestOutcome:
        self._refuse_what_it_has_become(self._table_of(state))
        # The write's own property stays: it says what is in the table.
        properties = {f"{key.property_name}{_BLOCKED_SUFFIX}": str(key.epoch)}
        return self._request(state, key, IcebergAppend(key), properties, {_TOMBSTONE_SUMMARY: "true"})

    # --- after the commit -----------------------------------------------------------------------------------------------------

    def find_committed(self, key: EpochKey, identity: str, commit_id: int) -> Presence:
        """Return what the table, loaded anew, shows of a recorded commit."""
        table = self._load_table()
        if table is None:
            return Presence.GONE
        metadata = table.metadata
        if str(metadata.table_uuid) != identity:
            return Presence.REPLACED
        ancestry = list(ancestors_of(metadata.snapshot_by_name(MAIN_BRANCH), metadata))
        return Presence.HERE if _is_current(metadata, ancestry, key, commit_id) else Presence.ROLLED_BACK

    def find_former(self, name: str, uid: str | None) -> Former | None:
        """Return the latest commit, among those that are still known, of another write of that name."""
        table = self._load_table()
        if table is None:
            return None
        for snapshot in ancestors_of(table.metadata.snapshot_by_name(MAIN_BRANCH), table.metadata):
            said = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            if said.get(_NAME_SUMMARY) == name and said.get(_KEY_SUMMARY, "").partition("/")[0] != uid:
                return Former(self.title, said.get(_KEY_SUMMARY, ""))
        return None

    def count_rows(self, path: str) -> int:
        """Return the rows of a data file by its footer. NeedsChange if it is gone, or no Parquet file."""
        return parquet_rows(path, lambda most_bytes: tail_of(path, most_bytes, self._settings))

    # --- after a deletion -----------------------------------------------------------------------------------------------------

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        """Remove those of the files that are surely this epoch's own, by folder and name; pass over all others."""
        own = OwnFiles(key, (target.data_location for target in targets if isinstance(target, IcebergTarget)))
        by_folder: dict[str, list[str]] = defaultdict(list)
        for file in files:
            if isinstance(file, IcebergFile):
                folder, _, name = file.path.rpartition("/")
                if own.location_of(folder, name) is not None:
                    by_folder[folder].append(name)
        for folder, names in by_folder.items():
            remove_files(folder, names, self._settings)
        return sum(len(names) for names in by_folder.values())

    # --- inside ---------------------------------------------------------------------------------------------------------------

    def _refuse_what_it_has_become(self, table: Table) -> None:
        """NeedsChange if the table has become one that we do not write; it was not so when the write was launched."""
        metadata = table.metadata
        refuse_places_elsewhere(metadata, table.metadata_location, self._settings, self.title)
        if metadata.format_version >= 3 or CLASS_PROPERTIES & metadata.properties.keys():
            self._refuse_unsupported(table)

    def _request(
        self,
        state: IcebergState,
        key: EpochKey,
        change: IcebergAppend,
        properties: dict[str, str],
        said: Mapping[str, str],
    ) -> RequestOutcome:
        """Ask once for the snapshot of this change after exactly that state. `said` is added to its summary."""
        table = self._table_of(state)
        metadata = table.metadata
        try:
            snapshot = self._write_snapshot(table, state.head, key, change, said)
        except (OSError, ValueError) as error:
            raise Retryable(
                reasons.STORE_UNAVAILABLE, f"writing the manifests of {self.title} failed: {' '.join(str(error).split())[:400]}"
            ) from error
        try:
            self._catalog().commit_table(
                table,
                requirements=(
                    AssertTableUUID(uuid=metadata.table_uuid),
                    AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=state.head),
                    AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
                    AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
                ),
                updates=(
                    AddSnapshotUpdate(snapshot=snapshot),
                    SetSnapshotRefUpdate(  # type: ignore[call-arg]
                        ref_name=MAIN_BRANCH,
                        type=SnapshotRefType.BRANCH,
                        snapshot_id=snapshot.snapshot_id,
                        parent_snapshot_id=state.head,
                    ),
                    SetPropertiesUpdate(updates=properties),
                ),
            )
        except CommitFailedException as error:
            return Refused(f"the catalog refused: {' '.join(str(error).split())[:400]}")
        except Exception as error:
            # Whatever else happened, the request may have been carried out, or may yet be. Only to load it again can tell.
            return Unanswered(str(translate_catalog_error(error, self._catalog_name, self._settings.place)))
        return Landed(snapshot.snapshot_id)

    def _catalog(self) -> Catalog:
        self._settings.check_grant(self._catalog_name, self._name)
        return self._catalogs.open(self._catalog_name)

    def _load_table(self) -> Table | None:
        try:
            table = self._catalog().load_table(self._name)
        except NoSuchTableError:
            return None
        except Exception as error:
            raise translate_catalog_error(error, self._catalog_name, self._settings.place) from error
        check_places(table, self._settings)
        return table

    def _table_of(self, state: IcebergState) -> Table:
        if self._loaded is None or self._loaded[0] is not state:
            raise Corrupt("StaleState", f"{self.title}: not the state that was loaded last")
        return self._loaded[1]

    def _key_of(self, state: IcebergState) -> EpochKey:
        self._table_of(state)
        assert self._loaded is not None
        return self._loaded[2]

    def _change_for(self, state: IcebergState, change: Change, targets: Sequence[IcebergTarget] | None = None) -> IcebergAppend:
        """Return the change as that version of the table takes it. Retryable if it was made for another kind of table."""
        metadata, key = self._table_of(state).metadata, self._key_of(state)
        if isinstance(change, StagedChange):
            return self._packed(change.operation, metadata, key, None if targets is None else staged_for(targets), change.files)
        assert isinstance(change, IcebergAppend)
        if not change.is_made_for(metadata):
            raise Retryable(
                reasons.COMMIT_CONTENDED,
                f"the format or a partition spec of {self.title} changed just now; it is looked at anew",
            )
        return change

    def _io(self, table: Table) -> CheckedFileIO:
        return open_file_io(table.metadata_location, self._settings)

    def _write_snapshot(
        self, table: Table, head: int | None, key: EpochKey, change: IcebergAppend, said: Mapping[str, str]
    ) -> Snapshot:
        """Write one manifest per spec and the manifest list, under fresh names; return the snapshot that names them."""
        metadata = table.metadata
        io = self._io(table)
        token = new_token()
        folder = metadata.properties.get("write.metadata.path", f"{metadata.location.rstrip('/')}/metadata").rstrip("/")
        snapshot_id = key.snapshot_id
        parent = metadata.snapshot_by_id(head) if head is not None else None
        before = manifests_of(parent, io) if parent is not None else ()
        manifests, waiting = change.manifests(folder, metadata, self._settings, before)
        list_file = MetadataFile(f"{folder}/snap-{snapshot_id}-{token}.avro", self._settings)
        with write_manifest_list(
            format_version=metadata.format_version,
            output_file=list_file,
            snapshot_id=snapshot_id,
            parent_snapshot_id=head,
            sequence_number=metadata.next_sequence_number(),
            avro_compression="deflate",
        ) as manifest_list:
            manifest_list.add_manifests(manifests)
        put_all([*waiting, list_file])
        counted = change.summary()
        counted.additional_properties.update({_KEY_SUMMARY: str(key), **said})
        return Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=head,
            manifest_list=list_file.location,
            sequence_number=metadata.next_sequence_number(),
            summary=update_snapshot_summaries(counted, _totals_of(parent)),
            schema_id=metadata.current_schema_id,
        )


def _is_first(snapshot: Snapshot) -> bool:
    # pyiceberg takes the parent from a snapshot whose parent it expires; only the number tells then. Format 1 has none.
    return snapshot.parent_snapshot_id is None and (snapshot.sequence_number or 1) == 1


def _totals_of(parent: Snapshot | None) -> Mapping[str, str] | None:
    """Return a snapshot's summary without totals that are no numbers: ours then has none of these, as Iceberg's own Java does."""
    if parent is None or parent.summary is None:
        return None
    known: Mapping[str, str] = parent.summary.additional_properties
    return {name: value for name, value in known.items() if name.startswith("total-") and value.isdecimal()} or {"": ""}


def _committed_snapshot(metadata: TableMetadata, ancestry: Iterable[Snapshot], key: EpochKey) -> int | None:
    """Return the snapshot id of the epoch's commit if it is in the table: by its properties or on the branch."""
    for snapshot in ancestry:
        if _carries(snapshot, key) and not _says_tombstone(snapshot):
            return snapshot.snapshot_id
    return key.snapshot_id if _recorded_epoch(metadata, key) >= key.epoch else None


def _is_current(metadata: TableMetadata, ancestry: Sequence[Snapshot], key: EpochKey, commit_id: int) -> bool:
    """Whether a commit lies below the head of the branch. Only what is sure counts against it: snapshots expire."""
    if any(snapshot.snapshot_id == commit_id or _carries(snapshot, key) for snapshot in ancestry):
        return True
    is_whole = metadata.format_version > 1 and (not ancestry or _is_first(ancestry[-1]))
    return not is_whole and metadata.snapshot_by_id(commit_id) is None


def _is_blocked(metadata: TableMetadata, ancestry: Iterable[Snapshot], key: EpochKey) -> bool:
    """Whether a deletion's tombstone is in the table. It outlives its snapshot by a property, as a commit does."""
    if any(_carries(snapshot, key) and _says_tombstone(snapshot) for snapshot in ancestry):
        return True
    return _recorded_epoch(metadata, key, _BLOCKED_SUFFIX) >= key.epoch


def _carries(snapshot: Snapshot, key: EpochKey) -> bool:
    if snapshot.snapshot_id == key.snapshot_id:
        return True
    return snapshot.summary is not None and snapshot.summary.additional_properties.get(_KEY_SUMMARY) == str(key)


def _says_tombstone(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and _TOMBSTONE_SUMMARY in snapshot.summary.additional_properties


def _recorded_epoch(metadata: TableMetadata, key: EpochKey, suffix: str = "") -> int:
    recorded = metadata.properties.get(f"{key.property_name}{suffix}", "0")
    return int(recorded) if recorded.isdecimal() else 0


def _partition_spec(schema: Schema, sink: Sink) -> PartitionSpec:
    fields = []
    for number, wanted in enumerate(sink.partition_by):
        try:
            source = schema.find_field(wanted.column)
        except ValueError:
            names = ", ".join(schema.column_names)
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"sink.partitionBy.{number}: the steps' output has no column {wanted.column!r} (it has {names})",
            ) from None
        transform = parse_transform(wanted.transform)
        if not transform.can_transform(source.field_type):
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"sink.partitionBy.{number}: {wanted.transform} does not apply to {source.field_type} of {wanted.column!r}",
            )
        name = wanted.column if wanted.transform == "identity" else f"{wanted.column}_{wanted.transform}"
        fields.append(PartitionField(source_id=source.field_id, field_id=1000 + number, transform=transform, name=name))
    return PartitionSpec(*fields)


def _schema_differences(staged: Schema, current: Schema) -> list[str]:
    """Return what has changed so that staged files no longer read as what they are. A new optional column is fine."""
    found: list[str] = []
    now = {field_id: current.find_field(field_id) for field_id in current._lazy_id_to_field}
    before = {field_id: staged.find_field(field_id) for field_id in staged._lazy_id_to_field}
    for field_id, field in before.items():
        name = staged.find_column_name(field_id)
        if field_id not in now:
            again = name in {current.find_column_name(other) for other in now}
            found.append(f"the column {name!r} was dropped{' and made again' if again else ''}")
        elif field.field_type.is_primitive and now[field_id].field_type != field.field_type:
            found.append(f"the column {name!r} was {field.field_type} and is {now[field_id].field_type}")
        elif now[field_id].required and not field.required:
            found.append(f"the column {name!r} is now required")
    found += [
        f"the required column {current.find_column_name(field_id)!r} is new"
        for field_id, field in now.items()
        if field_id not in before and field.required
    ]
    return found


def _changed(metadata: TableMetadata, targets: Sequence[IcebergTarget], title: str) -> Rejected | None:
    """Return why a version of the table is not the table that was staged for."""
    for target in targets:
        if target.table_uuid != str(metadata.table_uuid):
            return Rejected(
                reasons.TABLE_REPLACED,
                f"the table {title} was dropped and made again while the write was running (its uuid was "
                f"{target.table_uuid} and is {metadata.table_uuid}); start a new write under another name",
            )
        if changed := _schema_differences(Schema.model_validate_json(target.table_schema_json), metadata.schema()):
            return Rejected(
                reasons.SCHEMA_CHANGED,
                f"the table {title} changed while the write was running: {changed[0]}; undo that, or start a new "
                "write under another name",
            )
    return None


def _spec_id(target: IcebergTarget) -> int:
    return PartitionSpec.model_validate_json(target.partition_spec_json).spec_id
