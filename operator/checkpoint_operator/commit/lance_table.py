"""The Lance port over pylance: load, compare, one append or one fence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

import lance
import pyarrow as pa
from lance.commit import CommitConflictError
from lance.file import LanceFileReader

from checkpoint_operator.arrow_schema import decode_schema, encode_schema
from checkpoint_operator.commit import lance_append
from checkpoint_operator.commit.changes import Change, StagedChange, only
from checkpoint_operator.commit.footers import Footers
from checkpoint_operator.commit.lance import LanceState
from checkpoint_operator.commit.lance_append import LanceAppend
from checkpoint_operator.commit.outcomes import Landed, Refused, Rejected, RequestOutcome, Unanswered
from checkpoint_operator.commit.presence import Former, Presence
from checkpoint_operator.commit.staged_files import find_missing
from checkpoint_operator.table_types import lance_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import KEY_PROPERTY_PREFIX, EpochKey, new_token
from checkpoint_protocol.lance_places import refuse_bases_elsewhere
from checkpoint_protocol.lance_schema import IDENTITY_CONFIG, differences, fields_of
from checkpoint_protocol.records import Append, LanceFragment, LanceTarget, Operation, StagedFile, Target
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.sink import Sink
from checkpoint_protocol.storage import lance_options

_KEY_PROPERTY: Final = f"{KEY_PROPERTY_PREFIX}key"
_NAME_PROPERTY: Final = f"{KEY_PROPERTY_PREFIX}name"
_FENCE_PROPERTY: Final = f"{KEY_PROPERTY_PREFIX}fence"
_TOMBSTONE_PROPERTY: Final = f"{KEY_PROPERTY_PREFIX}tombstone"
_IDENTITY_TRIES: Final = 5
#: How many of the latest versions are looked at for one that was restored to before a commit, or for a former write's: each is a
#: request.
_LATER_VERSIONS: Final = 64
_SCHEMA_OPERATIONS: Final = (
    lance.LanceOperation.Project,
    lance.LanceOperation.Merge,
    lance.LanceOperation.Overwrite,
    lance.LanceOperation.Restore,
)


class PylanceTable:
    """One dataset. Implements LanceTable, and makes what staging needs to know of it."""

    def __init__(self, uri: str, settings: Settings, written_by: str = "") -> None:
        self._uri = uri.rstrip("/")
        self._settings = settings
        self._written_by = written_by
        self._options = lance_options(self._uri, settings)
        self._summaries: dict[int, _Summary] = {}

    @property
    def title(self) -> str:
        return self._uri

    # --- before staging -----------------------------------------------------------------------------------------------------

    def describe(self) -> LanceTarget | None:
        """Return the dataset as staging needs to know it, or None. Gives it an identity at first touch: Lance has no uuid."""
        dataset = self._open()
        if dataset is None:
            return None
        last: Exception | None = None
        for _ in range(_IDENTITY_TRIES):
            identity = dataset.config().get(IDENTITY_CONFIG)
            if identity is not None:
                return LanceTarget(
                    uri=self._uri,
                    identity=identity,
                    at_version=dataset.version,
                    fields=fields_of(dataset),
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
                reasons.TABLE_UNSUPPORTED, f"the Lance dataset {self._uri} has a schema that Arrow cannot read: {_line(error)}"
            ) from error

    def create(self, arrow_schema: str, sink: Sink) -> LanceTarget:
        """Make an empty dataset for rows of an Arrow schema; return it, also if another has made it just now."""
        try:
            schema = lance_schema(decode_schema(arrow_schema))
        except NeedsChange as error:
            raise NeedsChange(error.reason, f"no Lance dataset {self._uri} can be made of the steps' output: {error}") from error
        try:
            lance.write_dataset(
                schema.empty_table(), self._uri, schema=schema, mode="create", storage_options=self._options or None
            )
        except Exception as error:
            if self._open() is None:
                if "LanceError(IO)" in str(error):
                    raise Retryable(reasons.STORE_UNAVAILABLE, f"{self._uri} could not be made: {_line(error)}") from error
                raise NeedsChange(
                    reasons.OUTPUT_SCHEMA_WRONG, f"no Lance dataset {self._uri} can be made of the steps' output: {_line(error)}"
                ) from error
        target = self.describe()
        if target is None:
            raise Retryable(reasons.TABLE_MISSING, f"the Lance dataset {self._uri} was made and is not there")
        return target

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
    ) -> LanceAppend:
        """Give the form in which the dataset takes the operation."""
        match operation:
            case Append():
                return lance_append.pack(self._uri, targets, only(LanceFragment, files, self.title), footers)
            case other:
                assert_never(other)

    def _change_of(self, change: Change, targets: Sequence[LanceTarget] | None = None) -> LanceAppend:
        if isinstance(change, StagedChange):
            return self._packed(change.operation, targets, change.files)
        assert isinstance(change, LanceAppend)
        return change

    # --- the port -------------------------------------------------------------------------------------------------------------

    def latest_version(self) -> int | None:
        dataset = self._open()
        return None if dataset is None else dataset.version

    def load(self, key: EpochKey, since: int, up_to: int | None = None) -> LanceState | None:
        dataset = self._open(up_to)
        if dataset is None:
            return None
        committed: int | None = None
        tombstone: int | None = None
        is_whole = True
        for version in range(dataset.version, since, -1):
            try:
                found = self._summary_of(dataset, version)
            except _VersionGone:
                is_whole = False
                continue
            if found.key == str(key) and found.is_tombstone:
                tombstone = version
            elif found.key == str(key):
                committed = version
                break
        return LanceState(
            identity=dataset.config().get(IDENTITY_CONFIG),
            at_version=dataset.version,
            committed=tombstone if committed is None else committed,
            history_reaches_back=is_whole,
            is_tombstone=committed is None and tombstone is not None,
            is_current=committed is None or self._is_current(dataset, committed),
        )

    def find_incompatibility(self, state: LanceState, targets: Sequence[LanceTarget], change: Change) -> Rejected | None:
        dataset = self._open(state.at_version)
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
        expected = packed.sizes
        for fragment in dataset.get_fragments():
            for data_file in fragment.data_files():
                if data_file.path in expected:
                    return Rejected(
                        reasons.STAGED_RESULT_REFUSED,
                        f"a seal names {data_file.path!r}, which is in {self._uri} already: its rows would be there twice",
                    )
        return find_missing(f"{self._uri}/data", expected, self._settings)

    def find_schema_change(self, at_version: int, targets: Sequence[LanceTarget]) -> str | None:
        return self._schema_change(self._open(at_version), targets)

    def references_any(self, state: LanceState, change: Change) -> bool:
        dataset = self._open(state.at_version)
        if dataset is None:
            return False
        staged = self._change_of(change).sizes
        return any(data_file.path in staged for fragment in dataset.get_fragments() for data_file in fragment.data_files())

    def append(self, read_version: int, key: EpochKey, change: Change) -> RequestOutcome:
        # For people, and for `find_former`: no rule of the commit asks for the name.
        name = {_NAME_PROPERTY: self._written_by} if self._written_by else {}
        packed = self._change_of(change)
        if packed.incompatibility is not None:  # without the fragments that are not fit, rows would be lost
            raise NeedsChange(packed.incompatibility.reason, packed.incompatibility.message)
        return self._request(read_version, packed.lance_operation(), {_KEY_PROPERTY: str(key), **name})

    def fence(self, read_version: int) -> RequestOutcome:
        return self._fence(read_version, {})

    def block_commit(self, read_version: int, key: EpochKey) -> RequestOutcome:
        return self._fence(read_version, {_KEY_PROPERTY: str(key), _TOMBSTONE_PROPERTY: "true"})

    # --- after the commit -----------------------------------------------------------------------------------------------------

    def find_committed(self, key: EpochKey, identity: str, commit_id: int) -> Presence:
        """Return what the latest version, and some before it, show of a recorded commit."""
        dataset = self._open()
        if dataset is None:
            return Presence.GONE
        if dataset.config().get(IDENTITY_CONFIG) != identity:
            return Presence.REPLACED
        return Presence.HERE if self._is_current(dataset, commit_id) else Presence.ROLLED_BACK

    def find_former(self, name: str, uid: str | None) -> Former | None:
        """Return the latest commit, among the last versions, of another write of that name."""
        dataset = self._open()
        if dataset is None:
            return None
        for version in range(dataset.version, max(0, dataset.version - _LATER_VERSIONS), -1):
            try:
                found = self._summary_of(dataset, version)
            except _VersionGone:
                return None
            if found.written_by == name and (found.key or "").partition("/")[0] != uid:
                return Former(self.title, found.key or "")
        return None

    def count_rows(self, path: str) -> int:
        """Return the rows of a data file by its footer. NeedsChange if it is gone, or no file of Lance's."""
        whole = f"{self._uri}/data/{path}"
        try:
            return int(LanceFileReader(whole, storage_options=self._options or None).num_rows())
        except (ValueError, OSError) as error:
            text = _line(error)
            if "not found" in text.lower():
                raise NeedsChange(reasons.STAGED_FILE_MISSING, f"the staged file {whole} is gone") from error
            if "LanceError(IO)" in text:
                raise Retryable(reasons.STORE_UNAVAILABLE, f"the staged file {whole} could not be read: {text}") from error
            raise NeedsChange(
                reasons.STAGED_RESULT_REFUSED, f"the staged file {whole} is no data file of Lance: {text}"
            ) from error

    # --- after a deletion -----------------------------------------------------------------------------------------------------

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        """Remove nothing: the name of a data file of Lance does not tell whose it is.

        Lance's own `cleanup_old_versions` takes files that no version names once they are seven days old.
        """
        return 0

    # --- inside ---------------------------------------------------------------------------------------------------------------

    def _fence(self, read_version: int, properties: dict[str, str]) -> RequestOutcome:
        dataset = self._open(read_version)
        if dataset is None:
            return Refused(f"version {read_version} of {self._uri} is gone")
        return self._request(read_version, fence_operation(dataset), {_FENCE_PROPERTY: new_token(), **properties})

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
        for version in range(since + 1, dataset.version):
            try:
                if not self._summary_of(dataset, version).changes_schema:
                    continue
            except _VersionGone:
                continue
            then = {field.id for field in fields_of(self._open(version))}
            for target in targets:
                for column in target.fields:
                    if target.at_version < version and column.id not in then:
                        return column.path
        return None

    def _request(self, read_version: int, operation: Any, properties: dict[str, str]) -> RequestOutcome:
        transaction = lance.Transaction(read_version, operation, transaction_properties=properties)
        try:
            dataset = lance.LanceDataset.commit(self._uri, transaction, storage_options=self._options or None)
        except CommitConflictError as error:
            return Refused(f"the dataset has moved: {_line(error)}")
        except Exception as error:
            return Unanswered(f"the dataset {self._uri} did not answer: {_line(error)}")
        return Landed(dataset.version)

    def _open(self, version: int | None = None) -> Any | None:
        """Open the dataset; None if there is none. Raises Retryable if that cannot be told."""
        try:
            dataset = lance.dataset(self._uri, version=version, storage_options=self._options or None)
        except (ValueError, OSError) as error:
            text = _line(error)
            if "not found" in text.lower() and version is None:
                return None
            raise Retryable(reasons.STORE_UNAVAILABLE, f"the Lance dataset {self._uri} cannot be opened: {text}") from error
        refuse_bases_elsewhere(dataset, self._uri, self._settings)
        return dataset

    def _is_current(self, dataset: Any, commit_id: int) -> bool:
        """Whether a version is part of what a later one shows. Only what is sure counts against it: versions are cleaned up."""
        version = dataset.version
        for _ in range(_LATER_VERSIONS):
            if version <= commit_id:
                break
            try:
                restored = self._summary_of(dataset, version).restored
            except _VersionGone:
                return True
            version = version - 1 if restored is None else restored
        return bool(version >= commit_id)

    def _summary_of(self, dataset: Any, version: int) -> _Summary:
        """Return what a version's transaction did; it never changes. Raises _VersionGone if it was cleaned up."""
        if version not in self._summaries:
            try:
                transaction = dataset.read_transaction(version)
            except (ValueError, OSError) as error:
                if "not found" in str(error).lower():
                    raise _VersionGone from None
                raise Retryable(
                    reasons.STORE_UNAVAILABLE, f"version {version} of {self._uri} cannot be read: {_line(error)}"
                ) from error
            if transaction is None:
                raise _VersionGone
            properties = transaction.transaction_properties or {}
            self._summaries[version] = _Summary(
                key=properties.get(_KEY_PROPERTY),
                is_tombstone=_TOMBSTONE_PROPERTY in properties,
                restored=transaction.operation.version
                if isinstance(transaction.operation, lance.LanceOperation.Restore)
                else None,
                written_by=properties.get(_NAME_PROPERTY),
                changes_schema=_FENCE_PROPERTY not in properties and isinstance(transaction.operation, _SCHEMA_OPERATIONS),
            )
        return self._summaries[version]


def fence_operation(dataset: Any) -> Any:
    """Return the operation that changes nothing, and after which an append that was based on an earlier version is refused.

    It is refused because the projection does not promise to preserve nullability: said explicitly, for all hangs on it.
    """
    return lance.LanceOperation.Project(dataset.lance_schema, preserves_nullability=False)


@dataclass(frozen=True, slots=True)
class _Summary:
    """What we want to know of a version's transaction."""

    key: str | None
    is_tombstone: bool
    changes_schema: bool
    restored: int | None
    written_by: str | None


class _VersionGone(Exception):
    """A version was cleaned up, and its transaction with it."""


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400]
