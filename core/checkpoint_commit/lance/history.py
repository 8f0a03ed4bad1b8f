"""Which commits a Lance dataset has, by the properties of its transactions, and the tag of a write.

The transaction of an epoch's commit says its key and, for people, the name of the write. A version that was cleaned up says
nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import lance

from checkpoint_commit.outcomes import Former
from checkpoint_formats.lance.datasets import is_not_found, open_dataset
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable, one_line
from checkpoint_protocol.identity import KEY_PROPERTY_PREFIX, EpochKey, new_token
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.tables.lance import EPOCH_VARIABLE

_IS_GONE: Final = "does not exist"  # so Lance says that the version is not there which a tag is to be on
_KEY: Final = f"{KEY_PROPERTY_PREFIX}key"
_NAME: Final = f"{KEY_PROPERTY_PREFIX}name"
_FENCE: Final = f"{KEY_PROPERTY_PREFIX}fence"
_TOMBSTONE: Final = f"{KEY_PROPERTY_PREFIX}tombstone"
#: How many of the latest versions are read to find one that was restored to before a commit, or a former write's: each is a
#: request.
_LATER_VERSIONS: Final = 64
_SCHEMA_OPERATIONS: Final = (
    lance.LanceOperation.Project,
    lance.LanceOperation.Merge,
    lance.LanceOperation.Overwrite,
    lance.LanceOperation.Restore,
)
#: After these a version has what they say, and nothing of the version before it by that alone.
_REPLACING: Final = (lance.LanceOperation.Overwrite, lance.LanceOperation.Restore)
#: After these a version may lack data files that the version before it had.
_REMOVING: Final = (lance.LanceOperation.Delete, lance.LanceOperation.Update, lance.LanceOperation.Rewrite)


def commit_properties(key: EpochKey, written_by: str) -> dict[str, str]:
    """Return what the transaction of the epoch's commit says. The name is for people, and for `find_former`."""
    return {_KEY: str(key)} | ({_NAME: written_by} if written_by else {})


def fence_properties() -> dict[str, str]:
    """Return what tells the transaction of a fence from one that changes the schema."""
    return {_FENCE: new_token()}


def tombstone_properties(key: EpochKey) -> dict[str, str]:
    """Return what the transaction that blocks an epoch's commit says, beside that it is a fence."""
    return {_KEY: str(key), _TOMBSTONE: "true"}


@dataclass(frozen=True, slots=True)
class Found:
    """The versions that carry a key: by a commit, by a tombstone. `is_whole`: none of the versions in question was cleaned up."""

    committed: int | None
    tombstone: int | None
    is_whole: bool


class LanceHistory:
    """The transactions of one dataset's versions. They never change, so each is read once."""

    def __init__(self, uri: str, storage: StorageSettings) -> None:
        self.uri = uri
        self._storage = storage
        self._summaries: dict[int, Summary] = {}

    def find_commit(self, dataset: Any, key: EpochKey, since: int) -> Found:
        """Look for the key in the versions after `since`, the latest first, up to a commit."""
        tombstone: int | None = None
        is_whole = True
        for version in range(dataset.version, since, -1):
            try:
                found = self.summary_of(dataset, version)
            except VersionGone:
                is_whole = False
                continue
            if found.key == str(key) and found.is_tombstone:
                tombstone = version
            elif found.key == str(key) and (is_part := self._is_part(dataset, version)):
                return Found(version, tombstone, is_whole)
            elif found.key == str(key) and is_part is None:
                is_whole = False
        return Found(None, tombstone, is_whole)

    def find_former(self, dataset: Any, name: str, uid: str | None) -> Former | None:
        """Return the latest commit, among the last versions, of another write of that name."""
        for version in range(dataset.version, max(0, dataset.version - _LATER_VERSIONS), -1):
            try:
                found = self.summary_of(dataset, version)
            except VersionGone:
                return None
            if found.written_by == name and (found.key or "").partition("/")[0] != uid:
                return Former(self.uri, found.key or "")
        return None

    def schema_changes(self, dataset: Any, since: int) -> Iterator[int]:
        """Give the versions after `since`, and before this one, that may have changed the schema, but those cleaned up."""
        for version in range(since + 1, dataset.version):
            try:
                if self.summary_of(dataset, version).changes_schema:
                    yield version
            except VersionGone:
                continue

    def is_current(self, dataset: Any, commit_id: int) -> bool:
        """Whether a version is part of what a later one shows. Only what is sure counts against it: versions are cleaned up."""
        version = dataset.version
        for _ in range(_LATER_VERSIONS):
            if version <= commit_id:
                break
            try:
                restored = self.summary_of(dataset, version).restored
            except VersionGone:
                return True
            version = version - 1 if restored is None else restored
        return bool(version >= commit_id)

    def summary_of(self, dataset: Any, version: int) -> Summary:
        """Return what a version's transaction did; it never changes. Raises VersionGone if it was cleaned up."""
        if version not in self._summaries:
            transaction = self._read_transaction(dataset, version)
            properties = transaction.transaction_properties or {}
            self._summaries[version] = Summary(
                operation=type(transaction.operation),
                key=properties.get(_KEY),
                is_tombstone=_TOMBSTONE in properties,
                restored=transaction.operation.version
                if isinstance(transaction.operation, lance.LanceOperation.Restore)
                else None,
                written_by=properties.get(_NAME),
                changes_schema=_FENCE not in properties and isinstance(transaction.operation, _SCHEMA_OPERATIONS),
            )
        return self._summaries[version]

    def open_version(self, version: int) -> Any:
        """Open the dataset as a version has it. Raises VersionGone if it was cleaned up."""
        dataset = open_dataset(self.uri, self._storage, version)
        if dataset is None:
            raise VersionGone
        return dataset

    def _read_transaction(self, dataset: Any, version: int) -> Any:
        try:
            transaction = dataset.read_transaction(version)
        except (ValueError, OSError) as error:
            if is_not_found(error):
                raise VersionGone from None
            raise Retryable(
                reasons.STORE_UNAVAILABLE, f"version {version} of {self.uri} cannot be read: {one_line(error)}"
            ) from error
        if transaction is None:
            raise VersionGone
        return transaction

    def _is_part(self, dataset: Any, version: int) -> bool | None:
        """Whether the dataset has become what it is by way of a version that carries a key; None if that cannot be told.

        An Overwrite without retries can land in the place of a version that was cleaned up, below the latest one. What was made
        after the version that was there then has its files, and not those of ours.
        """
        if version == dataset.version or self.summary_of(dataset, version).operation is not lance.LanceOperation.Overwrite:
            return True
        try:
            named = files_of(self.open_version(version))
            later = next(number for number in range(version + 1, dataset.version + 1) if self._is_there(dataset, number))
            then = files_of(self.open_version(later))
            operation = self._read_transaction(dataset, later).operation
        except (VersionGone, StopIteration):
            return None
        if named & then:
            return True
        if later > version + 1:
            return None
        if isinstance(operation, _REPLACING):
            return True  # it makes no difference
        return then <= named | _added(operation) and (isinstance(operation, _REMOVING) or named <= then)

    def _is_there(self, dataset: Any, version: int) -> bool:
        try:
            self.summary_of(dataset, version)
        except VersionGone:
            return False
        return True


def files_of(dataset: Any) -> frozenset[str]:
    """Return the names of all data files of a version."""
    return frozenset(file.path for fragment in dataset.get_fragments() for file in fragment.data_files())


def _added(operation: Any) -> frozenset[str]:
    """Return the names of the data files that an operation says it brings."""
    match operation:
        case lance.LanceOperation.Append() | lance.LanceOperation.Merge():
            fragments = [*operation.fragments]
        case lance.LanceOperation.Update():
            fragments = [*operation.new_fragments]
        case lance.LanceOperation.Rewrite():
            fragments = [fragment for group in operation.groups for fragment in group.new_fragments]
        case _:
            fragments = []
    return frozenset(file.path for fragment in fragments for file in fragment.files)


@dataclass(frozen=True, slots=True)
class Summary:
    """What we want to know of a version's transaction."""

    operation: type[Any]
    key: str | None
    is_tombstone: bool
    changes_schema: bool
    restored: int | None
    written_by: str | None


class VersionGone(Exception):
    """A version was cleaned up, and its transaction with it."""


@dataclass(frozen=True, slots=True)
class LanceTag:
    """What a manifest names; it may hold the number of the epoch as a variable."""

    name: str

    def of(self, key: EpochKey) -> str:
        return self.name.replace(EPOCH_VARIABLE, str(key.epoch))

    def refuse(self, dataset: Any, history: LanceHistory, key: EpochKey) -> None:
        """See PylanceTable.refuse_tag."""
        at = self._version(dataset, self.of(key))
        if at is not None and not _is_of(key, at, dataset, history):
            raise self._taken(key, history.uri, at)

    def set(self, dataset: Any, history: LanceHistory, key: EpochKey, version: int) -> None:
        """See PylanceTable.set_tag."""
        name = self.of(key)
        failed: Exception | None = None
        if (at := self._version(dataset, name)) is None:
            try:
                dataset.tags.create(name, version)
            except (ValueError, OSError) as error:
                failed = error  # another committer has made it just now, or the store did not answer: look
            at = self._version(dataset, name)
        if at == version or (at is not None and _is_of(key, at, dataset, history)):
            return
        if at is not None:
            taken = self._taken(key, history.uri, at)
            raise NeedsChange(taken.reason, f"{taken.message}; the rows are in the dataset, in version {version}")
        if failed is not None and f":{version} {_IS_GONE}" in str(failed):
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"version {version} of the Lance dataset {history.uri}, which has the rows, was cleaned up before it could get "
                f"the tag {name!r}; leave sink.lance.tag out, and keep versions for longer",
            )
        raise Retryable(
            reasons.STORE_UNAVAILABLE,
            f"the tag {name!r} could not be set on version {version} of {history.uri}"
            + (f": {one_line(failed)}" if failed is not None else ""),
        )

    def _version(self, dataset: Any, name: str) -> int | None:
        """Return the version that a tag is on; None if there is no such tag."""
        try:
            tag = dataset.tags.list().get(name)
        except (ValueError, OSError) as error:
            raise Retryable(
                reasons.STORE_UNAVAILABLE, f"the tags of {dataset.uri} cannot be listed: {one_line(error)}"
            ) from error
        return None if tag is None else int(tag["version"])

    def _taken(self, key: EpochKey, uri: str, version: int) -> NeedsChange:
        way_out = "" if EPOCH_VARIABLE in self.name else f" ({EPOCH_VARIABLE} in it stands for the epoch)"
        return NeedsChange(
            reasons.TAG_EXISTS,
            f"the Lance dataset {uri} has a tag {self.of(key)!r} already, on version {version}; name another one in "
            f"sink.lance.tag{way_out}, or drop that one",
        )


def _is_of(key: EpochKey, version: int, dataset: Any, history: LanceHistory) -> bool:
    """Whether the epoch's commit has made a version. One that has a tag is not cleaned up."""
    try:
        summary = history.summary_of(dataset, version)
    except VersionGone:
        return False
    return summary.key == str(key) and not summary.is_tombstone
