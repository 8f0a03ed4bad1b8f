"""The Iceberg port over pyiceberg: load, compare, one swap. No retry of the library's is in the way.

`catalog.commit_table` is called directly: pyiceberg's own transaction rebases and commits again without looking for the key,
and with its retries off it deletes the manifest list of a commit that was answered 409 though it had landed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, assert_never

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import TableUpdate

from checkpoint_commit.catalogs.named import CatalogBook, location_of_new_table, refuse_unknown_type, translate_catalog_error
from checkpoint_commit.catalogs.source_tables import check_table, describe
from checkpoint_commit.catalogs.vended import keys_of_table
from checkpoint_commit.changes import Change, StagedChange, only
from checkpoint_commit.footers import Footers, columns_of, parquet_rows
from checkpoint_commit.iceberg import history as iceberg_history
from checkpoint_commit.iceberg.changes import append as iceberg_append
from checkpoint_commit.iceberg.changes import upsert as iceberg_upsert
from checkpoint_commit.iceberg.changes.append import IcebergAppend, StagedFor, own_files, staged_for
from checkpoint_commit.iceberg.changes.change import IcebergChange, TableVersion
from checkpoint_commit.iceberg.changes.merges import SeenMerges, see_merges
from checkpoint_commit.iceberg.changes.overwrite import IcebergOverwrite, find_partial, replaced_by
from checkpoint_commit.iceberg.changes.upsert import IcebergUpsert
from checkpoint_commit.iceberg.commit import IcebergState
from checkpoint_commit.iceberg.metadata import snapshot as iceberg_snapshot
from checkpoint_commit.iceberg.metadata.snapshot import Said
from checkpoint_commit.iceberg.refs import Refs
from checkpoint_commit.iceberg.support import property_of_rewrites
from checkpoint_commit.iceberg.target import (
    cannot_be_made,
    find_change,
    new_table,
    refuse_operation,
    refuse_what_it_has_become,
    target_of,
)
from checkpoint_commit.outcomes import Former, Landed, Presence, Refused, Rejected, RequestOutcome, Unanswered
from checkpoint_commit.staged_files import Tails, find_missing, remove_files
from checkpoint_formats.iceberg.file_io import CheckedFileIO, open_file_io
from checkpoint_formats.rows.plain_types import decode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable, one_line
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.manifest.sources.source import IcebergSource
from checkpoint_protocol.places.handed_keys import HandedKeys, RenewedKeys
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import entry_of
from checkpoint_protocol.records import (
    Append,
    IcebergDeletes,
    IcebergFile,
    IcebergRewrite,
    IcebergTarget,
    Merge,
    Operation,
    OverwriteAll,
    OverwritePartitions,
    OverwriteWhere,
    PinnedIceberg,
    StagedFile,
    Target,
    Upsert,
)
from checkpoint_protocol.records.formats.operations import AddColumns
from checkpoint_protocol.store.parallel import in_threads
from checkpoint_protocol.tables.iceberg import title_of

#: A table that was loaded so long ago is loaded again before a claim names its head.
_YOUNG_S: Final = 5.0


class PyicebergTable:
    """One table of one catalog. Implements IcebergTable, and makes what staging needs to know of it."""

    #: Whether what is checked is the next snapshot of the table.
    _writes_ahead = True

    def __init__(
        self,
        catalog: str,
        table: str,
        settings: Settings,
        catalogs: CatalogBook | None = None,
        clock: Callable[[], float] = time.monotonic,
        written_by: str = "",
        *,
        overwrites: bool = False,
        replaces_others: bool = False,
        refs: Refs = Refs(),  # noqa: B008 - frozen
        snapshot_properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._catalog_name = catalog
        self._name = table
        #: Those that the table came with when it was loaded last.
        self._keys = RenewedKeys(self._load_keys)
        self._settings = settings.with_keys(self._keys)
        self._tails = Tails(self._settings)
        self._catalogs = catalogs or CatalogBook(settings)
        self._clock = clock
        self._written_by = written_by
        self._overwrites = overwrites
        self._replaces_others = replaces_others
        self._refs = refs
        self._snapshot_properties = snapshot_properties
        self._unseen: tuple[Table, float] | None = None
        #: What the footers of staged files may say of their columns.
        self._columns: tuple[Any, ...] = ()
        self._loaded: tuple[IcebergState, Table, EpochKey] | None = None
        self._ahead: tuple[IcebergState, IcebergChange, Snapshot] | None = None

    @property
    def title(self) -> str:
        return title_of(self._catalog_name, self._name, self._refs.branch)

    # --- before staging -----------------------------------------------------------------------------------------------------

    def describe(self) -> IcebergTarget | None:
        """Return the table as staging needs to know it, or None if it does not exist. NeedsChange if it cannot be written."""
        table = self._load_table()
        if table is None:
            return None
        self._refuse_branch(table)
        return target_of(table, self._settings, self.title, self._refs.head(table.metadata))

    def list_refs(self) -> frozenset[str]:
        """Return the names of the table's branches and tags."""
        table = self._load_table()
        return frozenset(table.metadata.refs) if table is not None else frozenset()

    def refuse_operation(self, operation: Operation, key: EpochKey | None = None) -> None:
        """NeedsChange if an epoch's operation cannot be done on the table as it is now. A table that is missing takes any.

        `key`: None where it is not known yet which epoch comes: then nothing is said of its tag.
        """
        asks_nothing = isinstance(operation, Append) and (key is None or self._refs.tag is None)
        if asks_nothing or (table := self._load_table()) is None:
            return
        if key is not None and (taken := self._taken_tag(table, key)) is not None:
            raise NeedsChange(taken.reason, taken.message)
        if isinstance(operation, Append):
            return
        if isinstance(operation, AddColumns):
            raise self._adds_no_columns()
        refuse_operation(operation, table.metadata, self.title)
        if isinstance(operation, Upsert | Merge):
            return
        version = self._version_of(table)
        partial = find_partial(version, operation, replaced_by(operation, table.metadata, None))
        if partial is not None:
            raise NeedsChange(partial.reason, partial.message)

    def create(self, arrow_schema: str, sink: Sink) -> IcebergTarget:
        """Make the table (and its namespace) for rows of an Arrow schema; return it, also if another has made it just now."""
        catalog = self._catalog()
        # What is wrong with the output is none of the catalog's failures: all of it is found before the catalog is asked.
        try:
            schema, partition_spec = new_table(decode_schema(arrow_schema), sink)
        except NeedsChange as error:
            raise error if error.reason == reasons.MANIFEST_INVALID else cannot_be_made(self.title, error) from error
        namespace = self._name.rsplit(".", 1)[0]
        try:
            # Before anything is made: the catalog is one for all namespaces, and what it has made would stay.
            if self._settings.tenant is not None and (location := location_of_new_table(catalog, self._name)) is not None:
                entry_of(location, self._settings)
            with contextlib.suppress(NamespaceAlreadyExistsError):
                catalog.create_namespace(namespace)
            catalog.create_table(self._name, schema=schema, partition_spec=partition_spec)
        except TableAlreadyExistsError:
            pass
        except (BadRequestError, ValueError, TypeError, NotImplementedError) as error:
            raise cannot_be_made(self.title, error) from error
        except Exception as error:
            raise translate_catalog_error(error, self._catalog_name, self._settings.place) from error
        target = self.describe()
        if target is None:
            raise Retryable(reasons.TABLE_MISSING, f"the table {self.title} was made and is not there")
        return target

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
        if table is None or find_change(table.metadata, wanted, self.title) is not None:
            return StagedChange(operation, tuple(only(IcebergFile, files, self.title)))
        self._unseen = table, self._clock()
        self._columns = tuple(
            columns_of(schema_to_pyarrow(Schema.model_validate_json(target.table_schema_json), include_field_ids=True))
            for target in wanted
        )
        return self._packed(operation, table.metadata, key, staged_for(wanted), files, footers)

    def _packed(
        self,
        operation: Operation,
        metadata: TableMetadata,
        key: EpochKey,
        wanted: StagedFor | None,
        files: Iterable[StagedFile],
        footers: Footers | None = None,
    ) -> IcebergChange:
        """Give the form in which this version of the table takes the operation. NeedsChange if it cannot."""
        refuse_operation(operation, metadata, self.title)
        kept: list[IcebergFile] = []
        of_table = only(IcebergFile, files, self.title)
        if isinstance(operation, Upsert):
            of_table = _noted(of_table, kept)
        staged = iceberg_append.pack(metadata, key, self._snapshot_id(metadata, key), wanted, of_table, footers)
        locations = [location for location, _ in wanted.specs] if wanted is not None else []
        match operation:
            case Append():
                return staged
            case OverwriteAll() | OverwriteWhere() | OverwritePartitions():
                return IcebergOverwrite(operation, staged, self._replaces_others)
            case Upsert():
                return iceberg_upsert.pack(operation, staged, metadata, kept, locations)
            case Merge():
                raise AssertionError("what a merge has staged is committed with the rows of its epoch")
            case AddColumns():
                raise self._adds_no_columns()
            case other:
                assert_never(other)

    def _adds_no_columns(self) -> NeedsChange:
        return NeedsChange(
            reasons.TABLE_UNSUPPORTED,
            f"{self.title}: AddColumns is done to Lance datasets; columns of Iceberg tables are not added",
        )

    # --- the port -------------------------------------------------------------------------------------------------------------

    def load(self, key: EpochKey) -> IcebergState | None:
        unseen, self._unseen = self._unseen, None
        is_young = unseen is not None and self._clock() - unseen[1] <= _YOUNG_S
        table = unseen[0] if unseen is not None and is_young else self._load_table()
        if table is None:
            return None
        metadata = table.metadata
        head, ancestry = self._refs.head(metadata), self._refs.ancestry(metadata)
        committed = iceberg_history.committed_snapshot(metadata, ancestry, key)
        is_blocked = committed is None and iceberg_history.is_blocked(metadata, ancestry, key)
        state = IcebergState(
            table_uuid=str(metadata.table_uuid),
            head=head.snapshot_id if head else None,
            committed=key.snapshot_id if is_blocked else committed,
            ancestry=tuple(snapshot.snapshot_id for snapshot in ancestry),
            ancestry_is_whole=not ancestry or iceberg_history.is_first(ancestry[-1]),
            is_tombstone=is_blocked,
            is_current=committed is None or iceberg_history.is_current(metadata, ancestry, key, committed),
            missing_branch=None if self._refs.has_branch(metadata) else self._refs.branch,
            audit=iceberg_history.on_audit_branch(metadata, key, ancestry),
        )
        self._loaded = (state, table, key)
        return state

    def find_change(self, state: IcebergState, targets: Sequence[IcebergTarget]) -> Rejected | None:
        table = self._table_of(state)
        self._refuse_what_it_has_become(table)
        return find_change(table.metadata, targets, self.title)

    def find_incompatibility(self, state: IcebergState, targets: Sequence[IcebergTarget], change: Change) -> Rejected | None:
        if (changed := self.find_change(state, targets)) is not None:
            return changed
        table = self._table_of(state)
        if (taken := self._taken_tag(table, self._key_of(state))) is not None:
            return taken
        packed = self._change_for(state, change, targets)
        if packed.incompatibility is not None:
            return packed.incompatibility
        asked: list[Callable[[], Rejected | None]] = [
            partial(find_missing, folder, expected, self._settings) for folder, expected in packed.sizes.items()
        ]
        if isinstance(packed, IcebergAppend) and state.missing_branch is None and self._writes_ahead:
            asked.append(partial(self._write_ahead, state, packed))
        for missing in in_threads(lambda ask: ask(), asked):
            if missing is not None:
                return missing
        return packed.find_conflict(self._version_of(table))

    def _write_ahead(self, state: IcebergState, change: IcebergAppend) -> None:
        """Write the snapshot of the request that comes next, if no check refuses it: nobody is asked for it before.

        What goes wrong here is left to that request.
        """
        with contextlib.suppress(CheckpointError, OSError, ValueError):
            version = self._version_of(self._table_of(state))
            snapshot = iceberg_snapshot.write_snapshot(version, change, self._summary(change.key))
            self._ahead = state, change, snapshot

    def references_any(self, state: IcebergState, change: Change) -> bool:
        table = self._table_of(state)
        is_ours = change.paths.__contains__ if isinstance(change, StagedChange) else self._change_for(state, change).names
        return self._version_of(table).has_any(is_ours)

    def swap(self, state: IcebergState, key: EpochKey, change: Change) -> RequestOutcome:
        properties = iceberg_history.commit_properties(self._table_of(state).metadata, key)
        said = Said(properties, self._summary(key), self._refs.tag_of(key))
        return self._request(state, self._whole_change_for(state, change), said)

    def block_commit(self, state: IcebergState, key: EpochKey) -> RequestOutcome:
        table = self._table_of(state)
        self._refuse_what_it_has_become(table)
        iceberg_history.refuse_others_with(table.metadata, key, self.title)
        said = Said(iceberg_history.tombstone_properties(key), iceberg_history.tombstone_summary(key))
        return self._request(state, IcebergAppend(key, key.snapshot_id), said)

    # --- merges -------------------------------------------------------------------------------------------------------------

    def see_merges(self, state: IcebergState, ledger: Ledger) -> SeenMerges:
        """Return what merges of the epoch have found of that state of the table."""
        return see_merges(self._version_of(self._table_of(state)), ledger)

    def rewrites(self, state: IcebergState, operation: Upsert) -> bool:
        """Whether that state of the table asks for data files to be written anew (copy-on-write)."""
        return property_of_rewrites(operation, self._table_of(state).metadata) is not None

    def pin(self, snapshot_id: int | None) -> PinnedIceberg | None:
        """Return the table at a snapshot as a merge reads it: under the names that its columns have now.

        None: the table is gone, or has not this snapshot any more.
        """
        table = self._load_table()
        if table is None or (snapshot_id is not None and table.metadata.snapshot_by_id(snapshot_id) is None):
            return None
        pinned = describe(IcebergSource(catalog=self._catalog_name, table=self._name), table)
        return pinned.model_copy(update={"snapshot_id": snapshot_id})

    # --- after the commit -----------------------------------------------------------------------------------------------------

    def find_committed(self, key: EpochKey, identity: str, commit_id: int) -> Presence:
        """Return what the table, loaded anew, shows of a recorded commit."""
        table = self._load_table()
        return (
            Presence.GONE if table is None else iceberg_history.presence_of(table.metadata, self._refs, key, identity, commit_id)
        )

    def find_former(self, name: str, uid: str | None) -> Former | None:
        """Return the latest commit, among those that are still known, of another write of that name."""
        table = self._load_table()
        return None if table is None else iceberg_history.find_former(self._refs.ancestry(table.metadata), name, uid, self.title)

    def count_rows(self, path: str, fields: Sequence[int]) -> int:
        """Return the rows of a data file by its footer. NeedsChange if it is gone, or no Parquet file, or has other columns than
        the table. No seal says its fields.
        """
        return parquet_rows(path, lambda most_bytes: self._tails.read(path, most_bytes), self._columns)

    # --- after a deletion -----------------------------------------------------------------------------------------------------

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        """Remove those of the files that are surely this epoch's own, by folder and name; pass over all others."""
        locations = [target.data_location for target in targets if isinstance(target, IcebergTarget)]
        kinds = IcebergFile | IcebergDeletes | IcebergRewrite
        named = [path for file in files if isinstance(file, kinds) for path in file.paths]
        own = own_files(key, locations, named)
        for folder, names in own.items():
            remove_files(folder, names, self._settings)
        return sum(len(names) for names in own.values())

    # --- inside ---------------------------------------------------------------------------------------------------------------

    def _request(self, state: IcebergState, change: IcebergChange, said: Said, aside: str | None = None) -> RequestOutcome:
        """Ask once for the snapshot of this change after exactly that state; `aside`: on this branch, and the target stays."""
        table = self._table_of(state)
        version = self._version_of(table)
        before: tuple[TableUpdate, ...] = ()
        try:
            if version.head is None and state.missing_branch is not None:
                version, before = iceberg_snapshot.begin_main(version)
            known = version.metadata.snapshot_by_id(change.snapshot_id) if aside is not None else None
            ahead = self._ahead
            if ahead is not None and ahead[0] is state and ahead[1] is change:
                known = ahead[2]
            snapshot = known or iceberg_snapshot.write_snapshot(version, change, said.summary)
        except (OSError, ValueError) as error:
            raise Retryable(
                reasons.STORE_UNAVAILABLE, f"writing the manifests of {self.title} failed: {one_line(error)}"
            ) from error
        if aside is not None:
            return self._ask(
                lambda catalog: iceberg_snapshot.request_snapshot(
                    catalog, table, aside, snapshot, said, before, self._target_refs(state), is_known=known is not None
                ),
                snapshot.snapshot_id,
            )
        audit = state.audit.name if state.audit is not None and state.audit.is_of_write else None
        return self._ask(
            lambda catalog: iceberg_snapshot.request_snapshot(
                catalog, table, self._refs.branch, snapshot, said, before, dropped=audit
            ),
            snapshot.snapshot_id,
        )

    def _target_refs(self, state: IcebergState) -> tuple[str, ...]:
        """Return what the head of the target depends on: where a commit is yet to make the branch, that is main's."""
        return (self._refs.branch,) if state.missing_branch is None else (self._refs.branch, MAIN_BRANCH)

    def _ask(self, send: Callable[[Catalog], None], commit_id: int) -> RequestOutcome:
        try:
            send(self._catalog())
        except CommitFailedException as error:
            return Refused(f"the catalog refused: {one_line(error)}")
        except Exception as error:
            # Whatever else happened, the request may have been carried out, or may yet be. Only to load it again can tell.
            return Unanswered(str(translate_catalog_error(error, self._catalog_name, self._settings.place)))
        return Landed(commit_id)

    def _summary(self, key: EpochKey) -> dict[str, str]:
        return {**self._snapshot_properties, **iceberg_history.commit_summary(key, self._written_by)}

    def _snapshot_id(self, metadata: TableMetadata, key: EpochKey) -> int:
        """Return the id of the snapshot that the epoch's files are packed for."""
        return key.snapshot_id

    def _catalog(self) -> Catalog:
        self._settings.check_grant(self._catalog_name, self._name, overwrites=self._overwrites)
        return self._catalogs.open(self._catalog_name)

    def _load_table(self) -> Table | None:
        try:
            table = self._catalog().load_table(self._name)
        except NoSuchTableError:
            return None
        except Exception as error:
            refuse_unknown_type(error, self.title)
            raise translate_catalog_error(error, self._catalog_name, self._settings.place) from error
        check_table(table, self._settings, self.title)
        self._keys.take(keys_of_table(table))
        return table

    def _load_keys(self) -> tuple[Sequence[HandedKeys], bool]:
        table = self._load_table()
        return ((), False) if table is None else (keys_of_table(table), True)

    def _table_of(self, state: IcebergState) -> Table:
        if self._loaded is None or self._loaded[0] is not state:
            raise Corrupt("StaleState", f"{self.title}: not the state that was loaded last")
        return self._loaded[1]

    def _key_of(self, state: IcebergState) -> EpochKey:
        self._table_of(state)
        assert self._loaded is not None
        return self._loaded[2]

    def _change_for(self, state: IcebergState, change: Change, targets: Sequence[IcebergTarget] | None = None) -> IcebergChange:
        """Return the change as that version of the table takes it. Retryable if it was made for another kind of table."""
        metadata, key = self._table_of(state).metadata, self._key_of(state)
        if isinstance(change, StagedChange):
            return self._packed(change.operation, metadata, key, None if targets is None else staged_for(targets), change.files)
        assert isinstance(change, IcebergAppend | IcebergOverwrite | IcebergUpsert)
        if not change.is_made_for(metadata):
            raise Retryable(
                reasons.COMMIT_CONTENDED,
                f"the format or a partition spec of {self.title} changed just now; it is loaded again",
            )
        return change

    def _whole_change_for(self, state: IcebergState, change: Change) -> IcebergChange:
        """Return the same to be asked for: without the files that are not fit, rows would be lost."""
        packed = self._change_for(state, change)
        if packed.incompatibility is not None:
            raise NeedsChange(packed.incompatibility.reason, packed.incompatibility.message)
        return packed

    def _io(self, table: Table) -> CheckedFileIO:
        return open_file_io(table.metadata_location, self._settings, self._catalogs.most_metadata_bytes)

    def _version_of(self, table: Table) -> TableVersion:
        head = self._refs.head(table.metadata)
        return TableVersion(self.title, table.metadata, head, self._io(table), self._settings)

    def _refuse_what_it_has_become(self, table: Table) -> None:
        refuse_what_it_has_become(table, self._settings, self.title)
        self._refuse_branch(table)

    def _refuse_branch(self, table: Table) -> None:
        if (why := self._refs.why_no_branch(table.metadata)) is not None:
            raise NeedsChange(reasons.TABLE_UNSUPPORTED, f"the table {self._catalog_name}.{self._name} {why}")

    def _taken_tag(self, table: Table, key: EpochKey) -> Rejected | None:
        why = self._refs.why_no_tag(table.metadata, key)
        return Rejected(reasons.TAG_EXISTS, f"the table {self.title} {why}") if why is not None else None


def _noted(files: Iterator[IcebergFile], kept: list[IcebergFile]) -> Iterator[IcebergFile]:
    for file in files:
        kept.append(file)
        yield file
