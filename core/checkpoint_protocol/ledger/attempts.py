"""The records of an attempt, by its number; the claims of the commit, and the commit record."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger.epoch_records import EpochRecords
from checkpoint_protocol.records import (
    ClaimRecord,
    CleanedRecord,
    ClosedRecord,
    CommitRecord,
    DeletedRecord,
    FailureRecord,
    InheritedRecord,
    LaunchRecord,
    OutputRecord,
    TargetRecord,
)
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_listing import NotListed, shown


@dataclass(frozen=True, slots=True)
class Attempts:
    """What the driver of an attempt is told and tells, and how the attempt ended. Each put returns the record that is stored."""

    records: EpochRecords

    def put_launch(self, record: LaunchRecord) -> LaunchRecord:
        return self.records.put(self.records.at.launch(record.attempt), record)

    def read_launch(self, attempt: int) -> LaunchRecord | None:
        return self.records.read(self.records.at.launch(attempt), LaunchRecord)

    def list_attempts(self) -> list[int]:
        """Return the recorded attempts, ascending. An attempt counts from its launch record."""
        folder = self.records.at.launches
        try:
            numbers = {layout.number_of(stored.path, folder) for stored in self.records.store.list(folder)}
        except NotListed:
            # They are numbered without gaps.
            return list(takewhile(lambda number: self.read_launch(number) is not None, count(1)))
        return sorted(number for number in numbers if number)

    def put_output(self, attempt: int, record: OutputRecord) -> OutputRecord:
        return self.records.put(self.records.at.output(attempt), record)

    def read_output(self, attempt: int) -> OutputRecord | None:
        return self.records.read(self.records.at.output(attempt), OutputRecord)

    def put_target(self, attempt: int, record: TargetRecord) -> TargetRecord:
        return self.records.put(self.records.at.target(attempt), record)

    def read_target(self, attempt: int) -> TargetRecord | None:
        return self.records.read(self.records.at.target(attempt), TargetRecord)

    def put_failure(self, record: FailureRecord) -> FailureRecord:
        return self.records.put(self.records.at.failure(record.attempt), record)

    def read_failure(self, attempt: int) -> FailureRecord | None:
        return self.records.read(self.records.at.failure(attempt), FailureRecord)

    def put_closed(self, record: ClosedRecord) -> ClosedRecord:
        """Fix which seals of an attempt count. `Chains.close` finds out which."""
        return self.records.put(self.records.at.closed(record.attempt), record)

    def read_closed(self, attempt: int) -> ClosedRecord | None:
        return self.records.read(self.records.at.closed(attempt), ClosedRecord)

    def put_inherited(self, record: InheritedRecord) -> InheritedRecord:
        """Fix what a stage takes over from another write, before any of it is copied."""
        return self.records.put(self.records.at.inherited, record)

    def read_inherited(self) -> InheritedRecord | None:
        return self.records.read(self.records.at.inherited, InheritedRecord)

    def remove_memos(self, attempts: int) -> None:
        """Remove what the first so many attempts of a committed epoch have kept of calls on rows that they did not seal.

        What a store does not remove, `clean` takes.
        """
        store, at = self.records.store, self.records.at
        with suppress(CheckpointError):
            for number in range(1, attempts + 1):
                store.delete([stored.path for stored in store.list(at.memos(number))])


@dataclass(frozen=True, slots=True)
class Commits:
    """Claims, by number, and the commit record."""

    records: EpochRecords

    def put_claim(self, record: ClaimRecord) -> ClaimRecord:
        """Take a claim number; return the claim that has it."""
        return self.records.put(self.records.at.claim(record.index), record)

    def list_claims(self) -> list[int]:
        """Return the claims that a listing shows, ascending."""
        folder = self.records.at.commit
        numbers = (layout.claim_index_of(stored.path, folder) for stored in shown(self.records.store.list(folder)))
        return sorted(number for number in numbers if number is not None)

    def read_claim(self, index: int) -> ClaimRecord | None:
        return self.records.read(self.records.at.claim(index), ClaimRecord)

    def is_deleted(self) -> bool:
        """Whether the write was deleted, as a whole or in this epoch. A committer asks this after its claim is stored and before
        any request to the table.

        Deletion does the same crosswise: it puts its note and then looks for claims. Whatever the order of these four, either
        the committer finds the note and sends nothing, or deletion finds the claim and blocks what may be on its way.
        """
        of_write = partial(self.records.read, layout.deleted_path(self.records.at.key.uid), DeletedRecord)
        found, found_here = self.records.read_both(of_write, self.read_deleted)
        return found is not None or found_here is not None

    def read_deleted(self) -> DeletedRecord | None:
        """Return the note that the write was deleted in this epoch, or None."""
        return self.records.read(self.records.at.deleted, DeletedRecord)

    def put_deleted(self) -> DeletedRecord:
        """Note that the write was deleted in this epoch; from then on no new claim of it leads to a commit. Idempotent."""
        return self.records.put(self.records.at.deleted, DeletedRecord(token=new_token(), uid=self.records.at.key.uid))

    def put_commit(self, record: CommitRecord) -> CommitRecord:
        """Note that the commit was seen in the table. Never to be called before it was seen."""
        return self.records.put(self.records.at.commit_record, record)

    def read_commit(self) -> CommitRecord | None:
        return self.records.read(self.records.at.commit_record, CommitRecord)

    def put_cleaned(self) -> CleanedRecord:
        """Note that what the epoch has staged is being removed. Only for one that has ended. Idempotent."""
        return self.records.put(self.records.at.cleaned, CleanedRecord(token=new_token(), key=str(self.records.at.key)))

    def read_cleaned(self) -> CleanedRecord | None:
        return self.records.read(self.records.at.cleaned, CleanedRecord)
