"""Planted bugs of rows that fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.parts import Input
from checkpoint_protocol.put_once import put_once, read
from checkpoint_protocol.records import InputRecord, Quarantined, QuarantineRecord, Seal


class QuarantinesApart(Ledger):
    """Puts the rows that failed beside their seal, under its name: what stands there may be another try's."""

    def put_seal(self, seal: Seal) -> None:
        if seal.quarantined is not None:
            record = QuarantineRecord(token=seal.token, rows=tuple(self.quarantined_rows(seal)))
            put_once(self.store, self._path(seal.attempt, seal.task, seal.link), record, self.pause)
        super().put_seal(seal.model_copy(update={"quarantined": None}))

    def read_seal(self, attempt: int, task: int, link: int) -> Seal | None:
        seal = super().read_seal(attempt, task, link)
        record = read(self.store, self._path(attempt, task, link), QuarantineRecord) if seal is not None else None
        if seal is None or record is None:
            return seal
        return seal.model_copy(update={"quarantined": Quarantined(rows=record.rows)})

    def _path(self, attempt: int, task: int, link: int) -> str:
        return f"{self.at.quarantines(attempt)}{task}-{link}.json"


class RetriesWhatLiveSealsSay(Ledger):
    """Of a finished epoch, takes for failed what any seal of any attempt says, closed or not."""

    def counted_seals(self, attempts: Iterable[int]) -> Iterator[Seal]:
        if self.read_mark() is None:
            yield from super().counted_seals(attempts)
            return
        for attempt in self.list_attempts():
            plan = self.read_plan(attempt)
            for task in range(plan.task_count if plan else 0):
                yield from self.read_chain(attempt, task)


class RetriesWhatWasMadeGood(Ledger):
    """Forgets which rows a finished epoch has taken again."""

    def read_input(self, since: int = 1) -> Input | None:
        record = super().read_input(since)
        if record is None or self.read_mark() is None:
            return record
        files = tuple(replace(file, only=None) for file in record.files)
        return InputRecord(token=record.token, files=files, arrow_schema=record.arrow_schema)
