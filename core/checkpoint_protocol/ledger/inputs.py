"""The input of an epoch, which its first driver fixes, in one object or in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger.commits import Commits
from checkpoint_protocol.ledger.epoch_records import EpochRecords
from checkpoint_protocol.records import InputIndexRecord, InputPartRecord, InputRecord, SourceFile, StoredPart
from checkpoint_protocol.store.memory import reading
from checkpoint_protocol.store.parts import FilesInParts, Input, InputInParts, cut_files
from checkpoint_protocol.store.put_once import put_once, read_one_of

#: What may be stored where the input is fixed.
_INPUTS: Final[Sequence[type[InputRecord | InputIndexRecord]]] = (InputRecord, InputIndexRecord)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The input, by the attempt from which on it is read: 1, but where the source was edited before anything was sealed."""

    records: EpochRecords
    commits: Commits

    def put_input(self, record: InputRecord, since: int = 1) -> Input:
        """Fix the input of the epoch; return the one that is stored, which another driver may have put.

        One with many files is put in parts, and these before the index that names them: an index that is stored is whole.
        `since`: as in the launch records of the attempts that read it.
        """
        offered: InputRecord | InputIndexRecord = record
        pieces = cut_files(record.files, self.records.part_bytes)
        if len(pieces) > 1:
            parts = [InputPartRecord(token=new_token(), files=tuple(piece)) for piece in pieces]
            offered = InputIndexRecord(
                token=record.token,
                parts=self.records.put_parts(self.records.at.input_part, [(part, len(part.files)) for part in parts]),
                totals=record.totals,
                arrow_schema=record.arrow_schema,
                tables=record.tables,
            )
        path = self.records.at.input_since(since)
        stored = self._remember(path, put_once(self.records.store, path, offered, self.records.pause, _INPUTS))
        # Ours is in memory already.
        return record if stored.token == record.token else stored

    def read_input(self, since: int = 1) -> Input | None:
        """Return the input. Of one in parts a file is read when it is asked for: Corrupt if its part is not as it was put."""
        path = self.records.at.input_since(since)
        known = self.records.known.get(path)
        if isinstance(known, InputRecord | InputInParts):
            return known
        with reading() as held:
            found = read_one_of(self.records.store, path, _INPUTS)
        return None if found is None else self._remember(path, found, held.is_kept)

    def read_committed_input(self) -> Input | None:
        """Return the input of a finished epoch. Its commit record tells which, where the source was edited before any seal."""
        committed = self.commits.read_commit()
        return self.read_input(committed.input_since if committed is not None else 1)

    def _remember(self, path: str, stored: InputRecord | InputIndexRecord, is_kept: bool = True) -> Input:
        found: Input = (
            stored if isinstance(stored, InputRecord) else InputInParts(stored, FilesInParts(stored.parts, self._load_files))
        )
        if is_kept:
            self.records.known[path] = found
        return found

    def _load_files(self, part: StoredPart) -> tuple[SourceFile, ...]:
        path = self.records.at.input_part(part.token)
        return self.records.read_part(path, part, InputPartRecord, lambda record: record.files)
