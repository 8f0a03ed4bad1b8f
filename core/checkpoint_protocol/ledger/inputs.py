"""What drivers fix once: the input of an epoch, the plan of an attempt, the keys of an upsert. Each in one object or in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, Superseded
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger.attempts import Commits
from checkpoint_protocol.ledger.epoch_records import EpochRecords
from checkpoint_protocol.records import (
    InputIndexRecord,
    InputPartRecord,
    InputRecord,
    MergeKeysPart,
    MergeKeysRecord,
    PlanPartRecord,
    PlanRecord,
    StoredPart,
)
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.memory import reading
from checkpoint_protocol.store.parts import FilesInParts, Input, InputInParts, cut_files, cut_tasks, digest_of
from checkpoint_protocol.store.put_once import put_object, put_once, read, read_one_of

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
                file_columns=record.file_columns,
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


#: The tasks of a plan that is remembered are kept where they, and their ranges, are no more.
_MOST_KEPT: Final = 2_000


@dataclass(frozen=True, slots=True)
class Plans:
    """The plans, by attempt."""

    records: EpochRecords

    def put_plan(self, record: PlanRecord) -> PlanRecord:
        """Fix the plan of an attempt. Raises Superseded if another driver of the attempt has: this one must end at once.

        Many tasks are put in parts, and these before the plan; who reads the plan gets their number, and `read_tasks` them.
        """
        at = self.records.at
        pieces = cut_tasks(record.tasks, self.records.part_bytes)
        if len(pieces) > 1:
            parts = [PlanPartRecord(token=new_token(), tasks=tuple(piece)) for piece in pieces]
            named = self.records.put_parts(
                lambda token: at.plan_part(record.attempt, token), [(part, len(part.tasks)) for part in parts]
            )
            record = record.model_copy(update={"tasks": (), "parts": named})
        stored = self.records.put(at.plan(record.attempt), record)
        if stored.token != record.token:
            raise Superseded(
                "SecondDriver",
                f"attempt {record.attempt} of {at.key} has another driver, whose plan stands; this one ends",
            )
        return stored

    def is_known(self, attempt: int) -> bool:
        """Whether a plan was read, so that reading it again costs no request."""
        return self.records.at.plan(attempt) in self.records.known

    def read_plan(self, attempt: int) -> PlanRecord | None:
        """Return a plan: of one with many tasks, what it says besides, and their number."""
        path = self.records.at.plan(attempt)
        known = self.records.known.get(path)
        if isinstance(known, PlanRecord):
            return known
        found = read(self.records.store, path, PlanRecord)
        if found is not None:
            found = found.without_tasks() if sum(len(task) + 1 for task in found.tasks) > _MOST_KEPT else found
            self.records.known[path] = found
        return found

    def read_tasks(self, plan: PlanRecord) -> Iterator[tuple[Range, ...]]:
        """Give the tasks of a plan, in order. Corrupt if a part of it is gone, or is not as it was put."""
        if not plan.is_whole:
            whole = read(self.records.store, self.records.at.plan(plan.attempt), PlanRecord)
            if whole is None or whole.token != plan.token:
                raise Corrupt(
                    reasons.RECORD_UNREADABLE, f"{self.records.where(self.records.at.plan(plan.attempt))} is not what it was"
                )
            plan = whole
        yield from plan.tasks
        for part in plan.parts:
            path = self.records.at.plan_part(plan.attempt, part.token)
            yield from self.records.read_part(path, part, PlanPartRecord, lambda record: record.tasks)


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
