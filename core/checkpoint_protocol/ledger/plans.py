"""The plan of an attempt. The driver whose plan is stored is the attempt's driver; any other ends before any task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, Superseded
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger.epoch_records import EpochRecords
from checkpoint_protocol.records import PlanPartRecord, PlanRecord
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.parts import cut_tasks
from checkpoint_protocol.store.put_once import read

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
