"""Rows that failed: the first of a segment in its seal, the others in objects of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.ledger.epoch_records import EpochRecords
from checkpoint_protocol.records import QuarantinedRow, QuarantineRecord, Seal
from checkpoint_protocol.store.put_once import put_once, read


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The objects with quarantined rows. Not remembered: a task has no use for them any more."""

    records: EpochRecords

    def put_quarantine(self, attempt: int, record: QuarantineRecord) -> None:
        """Put rows that are too many for their seal. They count once a seal names the record's token; else nobody sees them."""
        put_once(self.records.store, self.records.at.quarantine(attempt, record.token), record, self.records.pause)

    def quarantined_rows(self, seal: Seal) -> Iterator[QuarantinedRow]:
        """Give the rows of a seal that failed, one stored object at a time. Corrupt if one of these is gone."""
        if seal.quarantined is None:
            return
        yield from seal.quarantined.rows
        for named in seal.quarantined.objects:
            path = self.records.at.quarantine(seal.attempt, named.token)
            record = read(self.records.store, path, QuarantineRecord)
            if record is None or len(record.rows) != named.rows:
                found = "is gone" if record is None else f"has {len(record.rows)} rows"
                raise Corrupt(
                    reasons.RECORD_UNREADABLE,
                    f"{self.records.where(path)} {found}; a seal of attempt {seal.attempt} names {named.rows} quarantined rows",
                )
            yield from record.rows
