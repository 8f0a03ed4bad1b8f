"""Deletion of a write: first nothing unfinished of it can land any more, then what it has staged and not committed goes.

A write that is forgotten ends as a whole:

    put control/<uid>/deleted.json                from here on no new claim leads to a commit
    each epoch without a commit record:
        no claim                                  nothing was ever sent, and nothing will be
        a claim: block_commit                             landed: it stays; else a tombstone, after which nothing can land
        neither can be told                       nothing is removed; a person must act, or the same call is made later
    the data files that the seals of the blocked and of the never claimed epochs, and of their stages, name
    everything below staged/<uid>/, control/<uid>/code/ and control/<uid>/index-parts/

One that is retained, and has committed something, ends with its last epoch: the others are committed or have ended so before.

    put control/<uid>/<epoch>/deleted.json        from here on no new claim of the epoch leads to a commit
    no claim, or block_commit, as above           landed: nothing else is to be done
    the data files that seals of the epoch name, and everything below staged/<uid>/<epoch>/
    put control/<uid>/<epoch>/commit/done.json    the epoch has ended without a commit: the next one follows

Its control records, and what its committed epochs have staged, stay: whoever comes under its name goes on from them. One that has
committed nothing is forgotten in any case.

The note is put before claims are read, and a committer puts its claim before it reads the note: one of the two sees the other,
however long the committer was paused in between. The rest of `control/<uid>/` stays: it stops committers that wake up later.

It may be cut off anywhere and be called again: each step finds what the one before has left, and seals go after the files that
they name. Zombies may go on staging meanwhile; what they leave is never committed, and the next call removes it.

Called by the cluster's controller, for an object that is deleted, and on one machine for a write that is forgotten.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Final, assert_never

from checkpoint_commit.outcomes import CommitBlocked, Committed, Rejected, TryLater, Unknown
from checkpoint_commit.ports import Sink
from checkpoint_commit.results import target_of
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import EpochIndex
from checkpoint_protocol.records import CommitRecord, Seal, StagedFile, TakenRecord, Target
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.memory import reading
from checkpoint_protocol.store.object_listing import NotListed, shown
from checkpoint_protocol.store.object_store import ObjectStore, StoredObject
from checkpoint_protocol.store.parallel import Mapper, in_threads
from checkpoint_protocol.store.put_once import read

_log = logging.getLogger(__name__)

#: Objects that are read or removed at a time, and bytes of them, which bounds the memory: a seal of many partitions takes
#: megabytes. A larger one is a batch of its own.
_BATCH: Final = 32
_BATCH_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Deleted:
    """Nothing of the write can land any more, and what it had staged is gone.

    `committed_epochs` are in the table, and stay there. So many `data_files` that seals named, and `objects` of the checkpoint
    store, are gone by this call.
    """

    committed_epochs: tuple[int, ...]
    data_files: int
    objects: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A person must act first. Nothing was removed, unless the store took our permission away in the middle."""

    reason: str
    message: str


DeletionOutcome = Deleted | Kept


def delete_write(
    store: ObjectStore,
    uid: str,
    sink: Sink,
    *,
    pause: Callable[[float], None] = time.sleep,
    map_all: Mapper = in_threads,
) -> DeletionOutcome:
    """Forget a write: end it for good, and remove what it has staged. See the module for the steps.

    Idempotent. Raises Retryable where store or table do not answer; then the same call later goes on. Raises Corrupt if a
    record below control/ cannot be read: whether something may land is not known then.

    What stays: data files that no seal names, those of a table that is gone, and those of a Lance dataset, whose names do not
    tell whose they are. A cleaner of orphans takes them (Lance's own `cleanup_old_versions`, after seven days).
    """
    deletion = _Deletion(store, uid, sink, pause, map_all)
    try:
        return deletion.forget()
    except NeedsChange as error:
        return Kept(error.reason, error.message)


def retain_write(
    store: ObjectStore,
    uid: str,
    sink: Sink,
    *,
    confirm: Callable[[], None] = lambda: None,
    pause: Callable[[float], None] = time.sleep,
    map_all: Mapper = in_threads,
) -> DeletionOutcome:
    """End what a write has not committed, and keep its records of what it has; forget one that has committed nothing.

    As `delete_write` else. `confirm` is called once it is known which epoch is the last, and before anything is changed; it
    raises if the object is gone: a later one of its name may have begun the epoch after that one.
    """
    deletion = _Deletion(store, uid, sink, pause, map_all)
    try:
        return deletion.retain(confirm)
    except NeedsChange as error:
        return Kept(error.reason, error.message)


def keep_from_landing(store: ObjectStore, uid: str, *, retain: bool) -> None:
    """Put the note of a deletion and remove nothing: no committer begins any more then. Idempotent.

    `retain`: of the last epoch only, where the write has committed an earlier one.
    """
    finished = EpochIndex(store, uid).newest()
    epochs = (Ledger(store, EpochKey(uid, epoch)) for epoch in count(finished.epoch + 1))
    ledgers = list(takewhile(_is_begun, epochs))
    if not (retain and (_committed_by(finished) or any(_has_commit(ledger) for ledger in ledgers))):
        writes.put_deleted(store, uid)
    elif ledgers and ledgers[-1].commits.read_commit() is None:
        ledgers[-1].commits.put_deleted()


@dataclass(frozen=True, slots=True)
class _Deletion:
    store: ObjectStore
    uid: str
    sink: Sink
    pause: Callable[[float], None]
    map_all: Mapper

    def forget(self) -> DeletionOutcome:
        writes.put_deleted(self.store, self.uid, self.pause)
        finished = EpochIndex(self.store, self.uid, self.pause).newest()
        committed = _committed_by(finished)
        discardable: dict[EpochKey, tuple[Target, ...]] = {}
        for ledger in (*map(self._ledger, finished.not_committed), *self._ledgers(finished.epoch)):
            match self._end_of(ledger):
                case Committed():
                    committed.append(ledger.key.epoch)
                case Kept() as kept:
                    return kept
                case targets:
                    discardable |= self._with_stages(ledger, targets)
        data_files = self._discard(layout.staged_folder(self.uid), discardable)
        folders = (
            layout.staged_folder(self.uid),
            layout.code_folder(self.uid),
            layout.index_parts(self.uid),
            layout.stream_folder(self.uid),
        )
        return Deleted(tuple(committed), data_files, self._clear(folders, discardable))

    def retain(self, confirm: Callable[[], None]) -> DeletionOutcome:
        finished = EpochIndex(self.store, self.uid, self.pause).newest()
        ledgers = list(self._ledgers(finished.epoch))
        confirm()
        committed = (*_committed_by(finished), *(ledger.key.epoch for ledger in ledgers if _has_commit(ledger)))
        if not ledgers:
            return Deleted(committed, 0, 0) if committed else self.forget()
        last = ledgers[-1]
        if last.commits.read_commit() is not None:
            return Deleted(committed, 0, 0)
        last.commits.put_deleted()
        match self._end_of(last):
            case Committed():
                # Its commit record is for whoever goes on with the write: only they know what is in it.
                return Deleted((*committed, last.key.epoch), 0, 0)
            case Kept() as kept:
                return kept
            case targets:
                pass
        if not committed:
            return self.forget()
        discardable = self._with_stages(last, targets)
        data_files = self._discard(f"{last.at.staged}/", discardable)
        objects = self._clear([f"{last.at.staged}/"], discardable)
        last.commits.put_commit(_without_commit(last, self.sink.title))
        return Deleted(committed, data_files, objects)

    def _ledger(self, epoch: int) -> Ledger:
        return self._ledger_of(EpochKey(self.uid, epoch))

    def _ledger_of(self, key: EpochKey) -> Ledger:
        return Ledger(self.store, key, self.pause, self.map_all)

    def _ledgers(self, finished: int) -> Iterator[Ledger]:
        """Give the ledger of every epoch after this one."""
        return takewhile(_is_begun, map(self._ledger, count(finished + 1)))

    def _end_of(self, ledger: Ledger) -> Committed | Kept | tuple[Target, ...]:
        """See to it that an epoch has ended: with its commit, or so that none can land. Then return the tables whose staged files
        may go. Kept where neither can be told; raises Retryable where the table does not answer.
        """
        commit_record = ledger.commits.read_commit()
        if commit_record is not None and commit_record.was_deleted:
            return _targets_in(ledger)
        if commit_record is not None:
            return Committed(commit_record.table_identity or "", commit_record.commit_id or 0, by_us=False)
        # Asked for by name, not listed. Every committer claims number 0 first.
        if ledger.commits.read_claim(0) is None:
            return _targets_in(ledger)
        match self.sink.block_commit(ledger):
            case Committed() as committed:
                return committed
            case CommitBlocked(table_identity):
                # A claimed table that is gone may come back with the commit in it.
                claimed = table_identity or None
                return tuple(at for at in _targets_in(ledger) if at.identity == claimed)
            case Rejected(reason, message):
                return Kept(reason, message)
            case Unknown(message):
                return Kept(reasons.COMMIT_OUTCOME_UNKNOWN, message)
            case TryLater(reason, message):
                raise Retryable(reason, message)
            case other:
                assert_never(other)

    def _with_stages(self, ledger: Ledger, targets: tuple[Target, ...]) -> dict[EpochKey, tuple[Target, ...]]:
        """Return the tables of an epoch that has ended without a commit, and of its stages, whose files nothing names then."""
        found = {ledger.key: targets}
        for key in writes.list_stages(self.store, ledger.key):
            found[key] = _targets_in(self._ledger_of(key))
        return found

    def _discard(self, folder: str, targets_by_key: Mapping[EpochKey, Sequence[Target]]) -> int:
        """Remove the data files that seals of these epochs and stages name, whether they were counted or not."""
        removed = 0
        for stored in _batched(self._listed(folder, targets_by_key)):
            by_key: dict[EpochKey, list[str]] = {}
            for item in stored:
                key = layout.key_of_seal(item.path, self.uid)
                if key is not None and key in targets_by_key:
                    by_key.setdefault(key, []).append(item.path)
            for key, paths in by_key.items():
                # What a batch of one large seal takes is held while its files are removed.
                with reading():
                    files = [file for named in self._read_all(paths) for file in named]
                    removed += self.sink.discard(key, targets_by_key[key], files)
        return removed

    def _read_all(self, paths: Sequence[str]) -> list[Collection[StagedFile]]:
        return [self._files_named_by(paths[0])] if len(paths) == 1 else self.map_all(self._files_named_by, paths)

    def _files_named_by(self, path: str) -> Collection[StagedFile]:
        """Return the files of a seal. One that cannot be read names none: whoever may put seals must not stop a deletion."""
        try:
            seal = read(self.store, path, Seal)
        except Corrupt:
            return ()
        return seal.files if seal is not None else ()

    def _listed(self, folder: str, keys: Iterable[EpochKey]) -> Iterator[StoredObject]:
        """Give what lies in a folder. What a stranger's object hides there is looked for where attempts of these epochs and
        stages put it; the rest stays, and the log names that object.
        """
        try:
            yield from self.store.list(folder)
        except NotListed:
            for key in keys:
                ledger = self._ledger_of(key)
                for number in ledger.attempts.list_attempts():
                    try:
                        yield from self.store.list(f"{ledger.at.staged}/{number}/")
                    except NotListed:
                        yield from shown(self.store.list(ledger.at.seals(number)))

    def _clear(self, folders: Iterable[str], keys: Collection[EpochKey]) -> int:
        """Remove everything in these folders, as far as it is listed."""
        removed = 0
        for folder in folders:
            for stored in _batched(self._listed(folder, keys)):
                self.map_all(lambda item: self.store.delete([item.path]), stored)
                removed += len(stored)
        return removed


def _committed_by(finished: TakenRecord) -> list[int]:
    """Return the epochs that an index says are committed: all that it covers have ended."""
    return sorted({*range(1, finished.epoch + 1)} - {*finished.not_committed})


def _is_begun(ledger: Ledger) -> bool:
    """Whether an epoch has its first launch record, or its first claim: both are numbered without gaps.

    Or a stage that has begun: of a pipeline, only the last stage has its launch records in the epoch itself.

    A launch record that is somebody else's, or gone, may have been one of ours, written over or removed since. What has no claim
    either cannot land.
    """
    try:
        if ledger.attempts.read_launch(1) is not None:
            return True
    except Corrupt as error:
        if error.reason != reasons.RECORD_FORGED:
            raise
        _log.warning("the deletion passes over an object: %s", error.message)
    return ledger.commits.read_claim(0) is not None or bool(writes.list_stages(ledger.store, ledger.key))


def _has_commit(ledger: Ledger) -> bool:
    commit_record = ledger.commits.read_commit()
    return commit_record is not None and not commit_record.was_deleted


def _without_commit(ledger: Ledger, target: str) -> CommitRecord:
    """Return the record that an epoch has ended without a commit."""
    return CommitRecord(
        token=new_token(),
        key=str(ledger.key),
        target=target,
        table_identity=None,
        commit_id=None,
        rows_read=0,
        rows_written=0,
        files=0,
        attempts=max(ledger.attempts.list_attempts(), default=1),
        code_digests=(),
        was_deleted=True,
    )


def _targets_in(ledger: Ledger) -> tuple[Target, ...]:
    """Return the tables that the epoch's attempts staged for, each as it was seen then.

    What nobody of this write has put is no record of an attempt: it is named in the log, and passed over.
    """
    targets = []
    for number in ledger.attempts.list_attempts():
        try:
            target = target_of(ledger, number)
        except Corrupt as error:
            if error.reason != reasons.RECORD_FORGED:
                raise
            _log.warning("the deletion passes over an object: %s", error.message)
            continue
        if target is not None:
            targets.append(target)
    return tuple({target.model_dump_json(): target for target in targets}.values())


def _batched(items: Iterable[StoredObject]) -> Iterator[list[StoredObject]]:
    batch: list[StoredObject] = []
    size_bytes = 0
    for item in items:
        if batch and (len(batch) == _BATCH or size_bytes + item.size_bytes > _BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(item)
        size_bytes += item.size_bytes
    if batch:
        yield batch
