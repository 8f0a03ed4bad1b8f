"""Deletion of a write: first nothing of it can land any more, then what it has staged goes.

    put control/<uid>/deleted.json                from here on no new claim leads to a commit
    each epoch without a mark:
        no claim                                  nothing was ever sent, and nothing will be
        a claim: bury                             landed: it stays; else a tombstone, after which nothing can land
        neither can be told                       nothing is removed; a person must act, or the same call is made later
    the data files that the seals of the buried and of the never claimed epochs name
    everything below staged/<uid>/ and control/<uid>/code/

The note comes before the look at the claims, and a committer's claim before its look for the note: one of the two sees the other,
however long the committer was paused in between. The rest of `control/<uid>/` stays: it stops committers that wake up later.

It may be cut off anywhere and be called again: each step finds what the one before has left, and seals go after the files that
they name. Zombies may go on staging meanwhile; what they leave is never committed, and the next call removes it.

Called by the cluster's controller, for an object that is deleted, and on one machine for a write that is forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar, assert_never

from checkpoint_operator.commit.outcomes import Buried, Committed, Rejected, TryLater, Unknown
from checkpoint_operator.commit.results import target_of
from checkpoint_operator.reconcile import Sink
from checkpoint_protocol import layout, reasons, writes
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.parallel import Mapper, in_threads
from checkpoint_protocol.put_once import read
from checkpoint_protocol.records import IcebergTarget, LanceTarget, NoTarget, Seal, StagedFile, Target
from checkpoint_protocol.store import ObjectStore

#: Objects that are read or removed at a time, which bounds the memory: a seal of many partitions takes megabytes.
_BATCH: Final = 32

_T = TypeVar("_T")


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
    ask_all: Mapper = in_threads,
) -> DeletionOutcome:
    """End a write for good, and remove what it has staged and not committed. See the module for the steps.

    Idempotent. Raises Retryable where store or table do not answer; then the same call later goes on. Raises Corrupt if a
    record below control/ cannot be read: whether something may land is not known then.

    What stays: data files that no seal names, those of a table that is gone, and those of a Lance dataset, whose names do not
    tell whose they are. A cleaner of orphans takes them (Lance's own `cleanup_old_versions`, after seven days).
    """
    deletion = _Deletion(store, uid, sink, pause, ask_all)
    try:
        return deletion.run()
    except NeedsChange as error:
        return Kept(error.reason, error.message)


@dataclass(frozen=True, slots=True)
class _Deletion:
    store: ObjectStore
    uid: str
    sink: Sink
    pause: Callable[[float], None]
    ask_all: Mapper

    def run(self) -> DeletionOutcome:
        writes.put_deleted(self.store, self.uid, self.pause)
        committed: list[int] = []
        discardable: dict[int, tuple[Target, ...]] = {}
        for ledger in self._ledgers():
            match self._end_of(ledger):
                case Committed():
                    committed.append(ledger.key.epoch)
                case None:
                    discardable[ledger.key.epoch] = _targets_in(ledger)
                case Buried(table_identity):
                    # A claimed table that is gone may come back with the commit in it.
                    discardable[ledger.key.epoch] = tuple(at for at in _targets_in(ledger) if _is_table(at, table_identity))
                case Rejected(reason, message):
                    return Kept(reason, message)
                case Unknown(message):
                    return Kept(reasons.COMMIT_OUTCOME_UNKNOWN, message)
                case TryLater(reason, message):
                    raise Retryable(reason, message)
                case other:
                    assert_never(other)
        data_files = self._discard(discardable)
        return Deleted(tuple(committed), data_files, self._clear())

    def _ledgers(self) -> Iterator[Ledger]:
        """Give the ledger of every epoch. Epochs are numbered without gaps, and each begins with its first launch record.

        A listing is no snapshot: it is only where the search begins.
        """
        listed = max(writes.list_epochs(self.store, self.uid), default=0)
        epoch = 1
        while True:
            ledger = Ledger(self.store, EpochKey(self.uid, epoch), self.pause, self.ask_all)
            if epoch > listed and ledger.read_launch(1) is None:
                return
            yield ledger
            epoch += 1

    def _end_of(self, ledger: Ledger) -> Committed | Buried | Rejected | Unknown | TryLater | None:
        """Return how an epoch has ended, having seen to it that it has; None if nothing was ever sent to the table for it."""
        mark = ledger.read_mark()
        if mark is not None:
            return Committed(mark.table_identity or "", mark.commit_id or 0, by_us=False)
        # Asked for by name, not listed. Every committer claims number 0 first.
        return None if ledger.read_claim(0) is None else self.sink.bury(ledger)

    def _discard(self, targets_by_epoch: Mapping[int, Sequence[Target]]) -> int:
        """Remove the data files that seals of these epochs name, whether they were counted or not."""
        folder = layout.staged_folder(self.uid)
        count = 0
        for stored in _batched(self.store.list(folder)):
            by_epoch: dict[int, list[str]] = {}
            for item in stored:
                epoch = layout.epoch_of_seal(item.path, folder)
                if epoch is not None and epoch in targets_by_epoch:
                    by_epoch.setdefault(epoch, []).append(item.path)
            for epoch, paths in by_epoch.items():
                files = [file for named in self.ask_all(self._files_named_by, paths) for file in named]
                count += self.sink.discard(EpochKey(self.uid, epoch), targets_by_epoch[epoch], files)
        return count

    def _files_named_by(self, path: str) -> Collection[StagedFile]:
        """Return the files of a seal. One that cannot be read names none: whoever may put seals must not stop a deletion."""
        try:
            seal = read(self.store, path, Seal)
        except Corrupt:
            return ()
        return seal.files if seal is not None else ()

    def _clear(self) -> int:
        """Remove everything that drivers have put, and the code that they were given."""
        count = 0
        for folder in (layout.staged_folder(self.uid), layout.code_folder(self.uid)):
            for stored in _batched(self.store.list(folder)):
                self.ask_all(lambda item: self.store.delete([item.path]), stored)
                count += len(stored)
        return count


def _targets_in(ledger: Ledger) -> tuple[Target, ...]:
    """Return the tables that the epoch's attempts staged for, each as it was seen then."""
    targets = [target for number in ledger.list_attempts() if (target := target_of(ledger, number)) is not None]
    return tuple({target.model_dump_json(): target for target in targets}.values())


def _is_table(target: Target, identity: str | None) -> bool:
    match target:
        case IcebergTarget(table_uuid=its) | LanceTarget(identity=its):
            return its == identity
        case NoTarget():
            return False


def _batched(items: Iterable[_T]) -> Iterator[list[_T]]:
    rest = iter(items)
    while batch := list(islice(rest, _BATCH)):
        yield batch
