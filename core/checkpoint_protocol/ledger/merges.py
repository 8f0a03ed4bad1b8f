"""The keys of the rows that an upsert has staged, in objects that a record names. All merges of an epoch go by the same ones."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.ledger.epoch_records import EpochRecords
from checkpoint_protocol.records import MergeKeysPart, MergeKeysRecord
from checkpoint_protocol.store.parts import digest_of
from checkpoint_protocol.store.put_once import put_object


@dataclass(frozen=True, slots=True)
class Merges:
    """The record, and its parts by their tokens."""

    records: EpochRecords

    def read_keys(self) -> MergeKeysRecord | None:
        return self.records.read(self.records.at.merge_keys, MergeKeysRecord)

    def put_keys(self, record: MergeKeysRecord) -> MergeKeysRecord:
        """Fix the keys; return those that stand, which another driver may have put. Its parts must be there."""
        return self.records.put(self.records.at.merge_keys, record)

    def put_part(self, token: str, rows: int, data: bytes) -> MergeKeysPart:
        """Store some of the keys under a name that nobody else has, before the record that names them.

        Raises as `put_object`. A store may say "exists" of a put of ours that is in flight: named by the record and never there,
        the part would stop the upsert for good.
        """
        put_object(self.records.store, self.records.at.merge_keys_part(token), data, self.records.pause, len(data))
        return MergeKeysPart(token=token, rows=rows, size_bytes=len(data), digest=digest_of(data))

    def read_part(self, part: MergeKeysPart) -> bytes:
        """Return the bytes of a part. Corrupt if it is gone, or is not what was put."""
        path = self.records.at.merge_keys_part(part.token)
        data = self.records.store.get(path, part.size_bytes)
        if data is None or digest_of(data) != part.digest:
            what = "is gone" if data is None else "is not what was put: its bytes have another digest"
            raise Corrupt(reasons.RECORD_UNREADABLE, f"{self.records.where(path)} {what}; find out who may write there")
        return data
