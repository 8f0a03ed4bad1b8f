"""Clean the checkpoint store of one write: remove what its ended epochs have staged and nobody needs any more.

An epoch has ended once its commit was seen in the table, or once a deletion has ended it. Of one that has not, nothing is
touched: an attempt, a commit or a deletion may need whatever it has staged. In this order, so that it may be cut off anywhere and
be done again, also by two at once:

    data files below the table's own folder of the write that no counted seal of the epoch names: tries that died or lost
    put control/<uid>/<epoch>/cleaned.json        from here on a seal that is not there is not taken for lost
    the objects below staged/<uid>/<epoch>/ but for those that `Needed` names

What is below control/ stays: it stops committers that wake up later, and tells what was committed. What counts is read from the
records; a time only keeps what is younger, for people who want to look at it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from checkpoint_commit.iceberg.changes.append import OwnFiles
from checkpoint_commit.results import target_of
from checkpoint_commit.staged_files import ListedFile, list_files, remove_files
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import CheckpointError, Corrupt
from checkpoint_protocol.identity import STAGED_FOLDER_PREFIX, EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import of_the_source
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import CommitRecord, IcebergTarget
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.object_store import ObjectStore, StoredObject


@dataclass(frozen=True, slots=True)
class Needed:
    """What later epochs of a write read of a committed one.

    `input_since`: the input that was committed; its files are not taken again. `attempts`: those whose seals count, where later
    epochs read them: for the keys of rows that have a result, or for the rows that are quarantined. Empty where none do. `at`: of
    the epoch, or of its stage that has read the source.
    """

    at: EpochLayout
    input_since: int
    attempts: tuple[int, ...] = ()

    def has(self, path: str) -> bool:
        """Whether an object of the epoch must stay."""
        at = self.at
        if path == at.input_since(self.input_since) or layout.is_part(path, at.input_parts):
            return True
        return any(path.startswith(folder) for number in self.attempts for folder in _folders(at, number)) or path in {
            at.plan(number) for number in self.attempts
        }


def _folders(at: EpochLayout, attempt: int) -> tuple[str, ...]:
    return (at.seals(attempt), at.keys(attempt), at.quarantines(attempt), at.plan_parts(attempt))


@dataclass(frozen=True, slots=True)
class CleanedEpoch:
    """What was removed of an epoch, or would be."""

    key: EpochKey
    objects: int
    object_bytes: int
    data_files: int
    data_bytes: int


@dataclass(frozen=True, slots=True)
class KeptEpoch:
    """Nothing of the epoch was removed. `problem`: its reason, where something is wrong; None where it is as it should be."""

    key: EpochKey
    why: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Ended:
    """An epoch that has ended. `commit`: None where it has ended without one. `at`: when, by the store's clock."""

    ledger: Ledger
    commit: CommitRecord | None
    at: datetime.datetime | None
    needed: Needed | None
    counted: tuple[int, ...] = ()
    may_have_data_files: bool = True


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Cleans writes of one store. `before`: epochs that have ended later are kept, and data files that are younger."""

    store: ObjectStore
    storage: StorageSettings
    before: datetime.datetime
    dry_run: bool = False

    def clean(self, uid: str) -> Iterator[CleanedEpoch | KeptEpoch]:
        """Clean each epoch of a write, in order; what cannot be told of one is told, and it is kept."""
        folder = layout.control_folder(uid)
        modified = {stored.path: stored.modified for stored in self.store.list(folder)}
        epochs = sorted({epoch for path in modified if (epoch := layout.epoch_of(path, folder)) is not None})
        for epoch in epochs:
            key = EpochKey(uid, epoch)
            try:
                yield self._clean_epoch(Ledger(self.store, key), modified)
            except CheckpointError as error:
                yield KeptEpoch(key, error.message, error.reason)

    def _clean_epoch(self, ledger: Ledger, modified: dict[str, datetime.datetime | None]) -> CleanedEpoch | KeptEpoch:
        key = ledger.key
        ended = _end_of(ledger, modified)
        if isinstance(ended, str):
            return KeptEpoch(key, ended)
        if ended.at is None or ended.at >= self.before:
            return KeptEpoch(key, "it has ended too short a time ago")
        is_new = ledger.commits.read_cleaned() is None
        # Which seals count is not known any more once they are gone.
        files = list(self._abandoned(ended)) if is_new and ended.may_have_data_files else []
        if not self.dry_run:
            for folder, name in files:
                remove_files(folder, [name.name], self.storage)
        objects = [
            stored
            for stored in self.store.list(f"{ledger.at.staged}/")
            if ended.needed is None or not ended.needed.has(stored.path)
        ]
        if objects and not self.dry_run:
            ledger.commits.put_cleaned()
            self._remove(objects)
        return CleanedEpoch(
            key,
            objects=len(objects),
            object_bytes=sum(stored.size_bytes for stored in objects),
            data_files=len(files),
            data_bytes=sum(file.size_bytes for _, file in files),
        )

    def _remove(self, objects: Iterable[StoredObject]) -> None:
        """Seals last: should this be cut off, the files that a seal names are still told from others."""
        ordered = sorted(objects, key=lambda stored: "/seals/" in stored.path)
        self.store.delete(stored.path for stored in ordered)

    def _abandoned(self, ended: _Ended) -> Iterator[tuple[str, ListedFile]]:
        """Give (folder, file) of the data files that are surely the epoch's own, and that no counted seal names."""
        key = ended.ledger.key
        locations = {
            target.data_location
            for number in ended.ledger.attempts.list_attempts()
            if isinstance(target := target_of(ended.ledger, number), IcebergTarget)
        }
        if not locations:
            return
        own = OwnFiles(key, locations)
        named = set(_named_by(ended.ledger, ended.counted))
        for stage in writes.list_stages(self.store, key):
            ledger = Ledger(self.store, stage)
            done = ledger.commits.read_commit()
            named |= set(_named_by(ledger, _counted(ledger, done))) if done is not None else set()
        for location in sorted(locations):
            folder = f"{location}/{STAGED_FOLDER_PREFIX}{key.uid}"
            for file in list_files(folder, self.storage):
                is_old = file.modified is not None and file.modified < self.before
                if is_old and own.location_of(folder, file.name) is not None and f"{folder}/{file.name}" not in named:
                    yield folder, file


def _end_of(ledger: Ledger, modified: dict[str, datetime.datetime | None]) -> _Ended | str:
    """Return how and when an epoch has ended; in words why it is kept where it has not."""
    commit = ledger.commits.read_commit()
    if commit is not None and not commit.was_deleted:
        launch = ledger.attempts.read_launch(commit.attempts)
        if launch is None:
            raise _gone(ledger, ledger.at.launch(commit.attempts))
        counted = (*launch.counted, commit.attempts)
        return _Ended(ledger, commit, modified.get(ledger.at.commit_record), _needed(ledger, commit), counted)
    # What was claimed may be in a table that comes back: its data files are not for us to judge.
    is_claimed = ledger.commits.read_claim(0) is not None
    if commit is not None:
        return _Ended(ledger, None, modified.get(ledger.at.commit_record), None, may_have_data_files=not is_claimed)
    if not ledger.commits.is_deleted():
        return "it is not committed yet"
    if is_claimed:
        return "its commit was claimed, and its deletion has not ended; to finish it, forget the write, or delete its object"
    deleted = [modified.get(path) for path in (layout.deleted_path(ledger.key.uid), ledger.at.deleted) if path in modified]
    return _Ended(ledger, None, min((at for at in deleted if at is not None), default=None), None)


def _needed(ledger: Ledger, commit: CommitRecord) -> Needed:
    """Return what later epochs read of a committed one. Of one with stages in place of steps, the first has read the source."""
    source = of_the_source(ledger)
    if source.key != ledger.key:
        first = source.commits.read_commit()
        if first is None:
            raise _gone(ledger, source.at.commit_record)
        commit = first
    launch = source.attempts.read_launch(commit.attempts)
    if launch is None:
        raise _gone(ledger, source.at.launch(commit.attempts))
    is_read_later = launch.reads_by_key or commit.rows_quarantined > 0
    return Needed(source.at, commit.input_since, (*launch.counted, commit.attempts) if is_read_later else ())


def _counted(ledger: Ledger, commit: CommitRecord) -> tuple[int, ...]:
    launch = ledger.attempts.read_launch(commit.attempts)
    if launch is None:
        raise _gone(ledger, ledger.at.launch(commit.attempts))
    return (*launch.counted, commit.attempts)


def _named_by(ledger: Ledger, attempts: Iterable[int]) -> Iterator[str]:
    for seal in ledger.chains.counted_seals(attempts):
        for file in seal.files:
            yield from file.paths


def _gone(ledger: Ledger, path: str) -> Corrupt:
    return Corrupt(
        reasons.RECORD_UNREADABLE,
        f"{ledger.store.uri}/{path} is gone, so which files of epoch {ledger.key.epoch} count is unknown; restore it, or remove "
        f"{ledger.at.staged}/ yourself",
    )
