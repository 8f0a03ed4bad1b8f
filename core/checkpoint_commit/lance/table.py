"""The Lance port over pylance: load, compare, one append or one fence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, assert_never

import lance
import pyarrow as pa
from lance.commit import CommitConflictError

from checkpoint_commit.changes import Change, StagedChange, only
from checkpoint_commit.footers import Footers
from checkpoint_commit.lance.changes import append as lance_append
from checkpoint_commit.lance.changes.append import LanceAppend
from checkpoint_commit.lance.changes.change import LanceChange
from checkpoint_commit.lance.changes.overwrite import LanceOverwriteAll, LanceOverwriteWhere
from checkpoint_commit.lance.changes.upsert import LanceUpsert
from checkpoint_commit.lance.changes.where import WhereRows
from checkpoint_commit.lance.columns import refuse_blobs_beside, refuse_keys, schema_of_new
from checkpoint_commit.lance.files.footers import LanceFooters
from checkpoint_commit.lance.history import (
    LanceHistory,
    LanceTag,
    VersionGone,
    commit_properties,
    fence_properties,
    tombstone_properties,
)
from checkpoint_commit.lance.port import LanceState
from checkpoint_commit.outcomes import Former, Landed, Presence, Refused, Rejected, RequestOutcome, Unanswered
from checkpoint_commit.staged_files import Tails, find_missing
from checkpoint_formats.lance.access import access
from checkpoint_formats.lance.datasets import STORE_FAILED, open_dataset
from checkpoint_formats.rows.plain_types import decode_schema, encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable, one_line
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.lance_schema import IDENTITY_CONFIG, differences, fields_of
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import lance_options
from checkpoint_protocol.records import (
    Append,
    LanceFragment,
    LanceTarget,
    Merge,
    Operation,
    OverwriteAll,
    OverwritePartitions,
    OverwriteWhere,
    StagedFile,
    Target,
    Upsert,
)
from checkpoint_protocol.records.formats.operations import AddColumns

_IDENTITY_TRIES: Final = 5
#: Lance's own default. None for what must not be based on another version than it says: see `lance.commit`.
RETRIES, NO_RETRIES = 20, 0
#: How Lance begins what it says of a request that no version of the dataset can follow from, whoever else commits.
_NEVER_TAKEN: Final = ("Invalid user input: ", "Not supported: ", "LanceError(Schema): ")


class PylanceTable:
    """One dataset. Implements LanceTable, and makes what staging needs to know of it."""

    def __init__(
        self,
        uri: str,
        settings: Settings,
        written_by: str = "",
        *,
        replaces_others: bool = False,
        tag: str | None = None,
        why_elsewhere: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`why_elsewhere`: says why the name that has led to the URI does not any more; None while it does."""
        self._uri = uri.rstrip("/")
        self._settings = settings
        self._written_by = written_by
        self._replaces_others = replaces_others
        self._history = LanceHistory(self._uri, settings)
        self._footers = LanceFooters(self._uri, settings, Tails(settings))
        self._tag = LanceTag(tag) if tag is not None else None
        self._why_elsewhere = why_elsewhere
        self._latest: Any | None = None
        self._loaded: Any | None = None

    @property
    def title(self) -> str:
        return self._uri

    # --- before staging -----------------------------------------------------------------------------------------------------

    def describe(self) -> LanceTarget | None:
        """Return the dataset as staging needs to know it, or None. Gives it an identity at first touch: Lance has no uuid."""
        if (why := self._why_elsewhere()) is not None:
            raise NeedsChange(reasons.TABLE_REPLACED, why)
        dataset = self._open()
        if dataset is None:
            return None
        last: Exception | None = None
        for _ in range(_IDENTITY_TRIES):
            identity = dataset.config().get(IDENTITY_CONFIG)
            if identity is not None:
                fields = fields_of(dataset)
                refuse_blobs_beside(f"the Lance dataset {self._uri}", fields)
                return LanceTarget(
                    uri=self._uri,
                    identity=identity,
                    at_version=dataset.version,
                    fields=fields,
                    arrow_schema=encode_schema(self._schema_of(dataset)),
                    storage_version=dataset.data_storage_version,
                )
            try:
                dataset.update_config({IDENTITY_CONFIG: new_token()})
            except Exception as error:
                last = error  # another has given it one in the meantime, or the store did not answer: look again
            dataset = self._open()
            if dataset is None:
                return None
        raise Retryable(reasons.STORE_UNAVAILABLE, f"the Lance dataset {self._uri} could not be given an identity: {last}")

    def _schema_of(self, dataset: Any) -> pa.Schema:
        try:
            return dataset.schema
        except (pa.ArrowException, OSError) as error:
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"the Lance dataset {self._uri} has a schema that Arrow cannot read: {one_line(error)}",
            ) from error

    def create(self, arrow_schema: str, sink: Sink) -> LanceTarget:
        """Make an empty dataset for rows of an Arrow schema; return it, also if another has made it just now."""
        new = sink.lance.layout if sink.lance is not None else None
        try:
            schema = schema_of_new(decode_schema(arrow_schema), new)
            refuse_keys("it", schema, sink.upsert_keys or ())
        except NeedsChange as error:
            raise NeedsChange(error.reason, f"no Lance dataset {self._uri} can be made of the steps' output: {error}") from error
        try:
            lance.write_dataset(
                schema.empty_table(),
                self._uri,
                schema=schema,
                mode="create",
                storage_options=lance_options(self._uri, self._settings) or None,
                data_storage_version=new.data_storage_version if new is not None else None,
                enable_stable_row_ids=new is not None and new.enable_stable_row_ids,
            )
        except Exception as error:
            if self._open() is None:
                if STORE_FAILED in str(error):
                    raise Retryable(reasons.STORE_UNAVAILABLE, f"{self._uri} could not be made: {one_line(error)}") from error
                raise NeedsChange(
                    reasons.OUTPUT_SCHEMA_WRONG,
                    f"no Lance dataset {self._uri} can be made of the steps' output: {one_line(error)}",
                ) from error
        target = self.describe()
        if target is None:
            raise Retryable(reasons.TABLE_MISSING, f"the Lance dataset {self._uri} was made and is not there")
        return target

    def refuse_operation(self, operation: Operation, key: EpochKey | None = None) -> None:
        """NeedsChange if the operation cannot be done on the dataset as it is now. A dataset that is missing takes any."""
        if key is not None:
            self.refuse_tag(key)
        match operation:
            case Append() | OverwriteAll():
                return
            case Upsert(keys=keys):
                if (dataset := self._open()) is not None:
                    refuse_keys(f"the Lance dataset {self._uri}", self._schema_of(dataset), keys)
            case OverwriteWhere(where=where):
                if (dataset := self._open()) is not None:
                    WhereRows.of(self._uri, where, self._schema_of(dataset))
            case OverwritePartitions() | Merge() | AddColumns():
                raise self._not_done(operation)
            case other:
                assert_never(other)

    def _not_done(self, operation: Operation) -> NeedsChange:
        return NeedsChange(reasons.TABLE_UNSUPPORTED, f"the Lance dataset {self._uri}: {operation.kind} is not done to datasets")

    def pack(
        self,
        operation: Operation,
        key: EpochKey,
        targets: Sequence[Target],
        files: Iterable[StagedFile],
        footers: Footers | None = None,
    ) -> Change:
        """Make Lance's form of the fragments as they come."""
        wanted = [target for target in targets if isinstance(target, LanceTarget)]
        return self._packed(operation, wanted, files, footers)

    def _packed(
        self,
        operation: Operation,
        targets: Sequence[LanceTarget] | None,
        files: Iterable[StagedFile],
        footers: Footers | None = None,
    ) -> LanceChange:
        """Give the form in which the dataset takes the operation."""
        match operation:
            case Append():
                return self._staged(targets, files, footers)
            case OverwriteAll():
                return LanceOverwriteAll(operation, self._staged(targets, files, footers), self._replaces_others)
            case OverwriteWhere():
                return LanceOverwriteWhere(operation, self._staged(targets, files, footers), self._replaces_others)
            case Upsert():
                return LanceUpsert(operation, self._staged(targets, files, footers), self._settings)
            case OverwritePartitions() | Merge() | AddColumns():
                raise self._not_done(operation)
            case other:
                assert_never(other)

    def _staged(self, targets: Sequence[LanceTarget] | None, files: Iterable[StagedFile], footers: Footers | None) -> LanceAppend:
        if targets and footers is not None:
            self._footers.expect(targets)
        return lance_append.pack(self._uri, targets, only(LanceFragment, files, self.title), footers)

    def _change_of(self, change: Change, targets: Sequence[LanceTarget] | None = None) -> LanceChange:
        if isinstance(change, StagedChange):
            return self._packed(change.operation, targets, change.files)
        assert isinstance(change, LanceAppend | LanceOverwriteAll | LanceOverwriteWhere | LanceUpsert)
        return change

    # --- the port -------------------------------------------------------------------------------------------------------------

    def latest_version(self) -> int | None:
        self._latest = self._open()
        return None if self._latest is None else self._latest.version

    def load(self, key: EpochKey, since: int, up_to: int | None = None) -> LanceState | None:
        # Where only what comes after the latest version is in question, that one was opened just now.
        latest, self._latest = self._latest, None
        dataset = self._loaded = latest if latest is not None and since == latest.version else self._open(up_to)
        if dataset is None:
            return None
        found = self._history.find_commit(dataset, key, since)
        return LanceState(
            identity=dataset.config().get(IDENTITY_CONFIG),
            at_version=dataset.version,
            committed=found.tombstone if found.committed is None else found.committed,
            history_reaches_back=found.is_whole,
            is_tombstone=found.committed is None and found.tombstone is not None,
            is_current=found.committed is None or self._history.is_current(dataset, found.committed),
        )

    def find_incompatibility(self, state: LanceState, targets: Sequence[LanceTarget], change: Change) -> Rejected | None:
        dataset = self._open_loaded(state.at_version)
        if (why := self._why_elsewhere()) is not None:
            return Rejected(reasons.TABLE_REPLACED, why)
        if dataset is None:
            return Rejected(reasons.TABLE_MISSING, f"the Lance dataset {self._uri} does not exist any more")
        for target in targets:
            if target.identity != state.identity:
                return Rejected(
                    reasons.TABLE_REPLACED,
                    f"the Lance dataset {self._uri} was made again (or restored to before this write) while the write was "
                    "running; start a new write under another name",
                )
        if (what := self._schema_change(dataset, targets)) is not None:
            return Rejected(
                reasons.SCHEMA_CHANGED,
                f"the Lance dataset {self._uri} changed while the write was running: {what}; undo that, or start a new write "
                "under another name",
            )
        packed = self._change_of(change, targets)
        if packed.incompatibility is not None:
            return packed.incompatibility
        if (conflict := packed.find_conflict(dataset, self._history)) is not None:
            return conflict
        expected = packed.sizes
        for fragment in dataset.get_fragments():
            for data_file in fragment.data_files():
                if data_file.path in expected:
                    return Rejected(
                        reasons.STAGED_RESULT_REFUSED,
                        f"a seal names {data_file.path!r}, which is in {self._uri} already: its rows would be there twice",
                    )
        return find_missing(f"{self._uri}/data", expected, self._settings)

    def has_version(self, version: int) -> bool:
        """Whether a version of the dataset is there, and was not cleaned up."""
        return open_dataset(self._uri, self._settings, version) is not None

    def find_schema_change(self, at_version: int, targets: Sequence[LanceTarget]) -> str | None:
        return self._schema_change(self._open(at_version), targets)

    def references_any(self, state: LanceState, change: Change) -> bool:
        dataset = self._open_loaded(state.at_version)
        if dataset is None:
            return False
        staged = self._change_of(change).sizes
        return any(data_file.path in staged for fragment in dataset.get_fragments() for data_file in fragment.data_files())

    def append(self, read_version: int, key: EpochKey, change: Change) -> RequestOutcome:
        return self._commit(read_version, key, change, RETRIES)

    def update(self, read_version: int, key: EpochKey, change: Change) -> RequestOutcome:
        return self._commit(read_version, key, change, RETRIES)

    def swap(self, read_version: int, key: EpochKey, change: Change) -> RequestOutcome:
        return self._commit(read_version, key, change, NO_RETRIES)

    def fence(self, read_version: int) -> RequestOutcome:
        return self._fence(read_version, fence_properties())

    def block_commit(self, read_version: int, key: EpochKey) -> RequestOutcome:
        return self._fence(read_version, fence_properties() | tombstone_properties(key))

    @property
    def has_tag(self) -> bool:
        """Whether versions of commits have a tag."""
        return self._tag is not None

    def refuse_tag(self, key: EpochKey) -> None:
        """NeedsChange(TagExists) if a version that is not the epoch's own has the tag that the sink may name."""
        if self._tag is not None and (dataset := self._open()) is not None:
            self._tag.refuse(dataset, self._history, key)

    def set_tag(self, key: EpochKey, version: int) -> None:
        """See to it that the version has the tag. NeedsChange if it cannot."""
        if self._tag is not None and (dataset := self._open()) is not None:
            self._tag.set(dataset, self._history, key, version)

    # --- after the commit -----------------------------------------------------------------------------------------------------

    def find_committed(self, key: EpochKey, identity: str, commit_id: int) -> Presence:
        """Return what the latest version, and some before it, show of a recorded commit."""
        dataset = self._open()
        if dataset is None:
            return Presence.GONE
        if dataset.config().get(IDENTITY_CONFIG) != identity:
            return Presence.REPLACED
        return Presence.HERE if self._history.is_current(dataset, commit_id) else Presence.ROLLED_BACK

    def find_former(self, name: str, uid: str | None) -> Former | None:
        """Return the latest commit, among the last versions, of another write of that name."""
        dataset = self._open()
        return None if dataset is None else self._history.find_former(dataset, name, uid)

    def count_rows(self, path: str, fields: Sequence[int]) -> int:
        """Return the rows of a data file by its footer. NeedsChange if it is gone, or no file of Lance's with these fields."""
        return self._footers.count_rows(path, fields)

    # --- after a deletion -----------------------------------------------------------------------------------------------------

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        """Remove nothing: the name of a data file of Lance does not tell whose it is.

        Lance's own `cleanup_old_versions` takes files that no version names once they are seven days old.
        """
        return 0

    # --- inside ---------------------------------------------------------------------------------------------------------------

    def _commit(self, read_version: int, key: EpochKey, change: Change, retries: int) -> RequestOutcome:
        packed = self._change_of(change)
        if packed.incompatibility is not None:  # without the fragments that are not fit, rows would be lost
            raise NeedsChange(packed.incompatibility.reason, packed.incompatibility.message)
        try:
            operation = packed.lance_operation(lambda: self._history.open_version(read_version))
        except VersionGone:
            return self._cleaned(read_version)
        return self._request(read_version, operation, commit_properties(key, self._written_by), retries)

    def _fence(self, read_version: int, properties: dict[str, str]) -> RequestOutcome:
        try:
            dataset = self._history.open_version(read_version)
        except VersionGone:
            return self._cleaned(read_version)
        return self._request(read_version, fence_operation(dataset), properties)

    def _cleaned(self, version: int) -> Refused:
        return Refused(f"version {version} of {self._uri} is gone")

    def _schema_change(self, dataset: Any, targets: Sequence[LanceTarget]) -> str | None:
        now = fields_of(dataset)
        for target in targets:
            if changed := differences(target.fields, now):
                return changed[0]
        dropped = self._dropped_meanwhile(dataset, targets)
        return None if dropped is None else f"the column {dropped!r} was dropped and made again"

    def _dropped_meanwhile(self, dataset: Any, targets: Sequence[LanceTarget]) -> str | None:
        """Return a staged column that was missing at some version since staging.

        Lance gives the id of a dropped column to the next one if no fragment holds it, so ids alone cannot tell. Versions that
        were cleaned up are passed over: what cannot be seen is not held against the write.
        """
        since = min((target.at_version for target in targets), default=dataset.version)
        for version in self._history.schema_changes(dataset, since):
            then = {field.id for field in fields_of(self._open(version))}
            for target in targets:
                for column in target.fields:
                    if target.at_version < version and column.id not in then:
                        return column.path
        return None

    def _request(self, read_version: int, operation: Any, properties: dict[str, str], retries: int = RETRIES) -> RequestOutcome:
        transaction = lance.Transaction(read_version, operation, transaction_properties=properties)
        try:
            dataset = lance.LanceDataset.commit(self._uri, transaction, **access(self._uri, self._settings), max_retries=retries)
        except CommitConflictError as error:
            return Refused(f"the dataset has moved: {one_line(error)}")
        except Exception as error:
            text = one_line(error)
            if str(error).startswith(_NEVER_TAKEN):
                raise NeedsChange(
                    reasons.STAGED_RESULT_REFUSED, f"Lance does not take the commit into the dataset {self._uri}: {text}"
                ) from error
            return Unanswered(f"the dataset {self._uri} did not answer: {text}")
        return Landed(dataset.version)

    def _open_loaded(self, version: int) -> Any | None:
        """Open a version, unless it is the one that was loaded last."""
        return self._loaded if self._loaded is not None and self._loaded.version == version else self._open(version)

    def _open(self, version: int | None = None) -> Any | None:
        """Open the dataset; None if there is none. Raises Retryable if that cannot be told."""
        dataset = open_dataset(self._uri, self._settings, version)
        if dataset is None and version is not None:
            raise Retryable(reasons.STORE_UNAVAILABLE, f"version {version} of the Lance dataset {self._uri} cannot be opened")
        return dataset


def fence_operation(dataset: Any) -> Any:
    """Return the operation that changes nothing, and after which an append that was based on an earlier version is refused.

    It is refused because the projection does not promise to preserve nullability: said explicitly, for all hangs on it.
    """
    return lance.LanceOperation.Project(dataset.lance_schema, preserves_nullability=False)
