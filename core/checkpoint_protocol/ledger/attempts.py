"""The records of an attempt, by its number."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, takewhile

from checkpoint_protocol.ledger.epoch_records import EpochRecords
from checkpoint_protocol.records import ClosedRecord, FailureRecord, LaunchRecord, OutputRecord, TargetRecord
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_listing import NotListed


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
