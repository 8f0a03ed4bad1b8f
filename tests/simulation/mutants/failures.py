"""Planted bugs of rows that fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.attempts import Commits
from checkpoint_protocol.ledger.bundles import Bundles
from checkpoint_protocol.ledger.chains import Chains
from checkpoint_protocol.ledger.inputs import Inputs
from checkpoint_protocol.ledger.seals import Quarantine, Seals
from checkpoint_protocol.records import InputRecord, Quarantined, QuarantineRecord, Seal
from checkpoint_protocol.store.parts import Input
from checkpoint_protocol.store.put_once import put_once, read


class _QuarantinesApart(Seals):
    def put_seal(self, seal: Seal) -> None:
        quarantine = Quarantine(self.records)
        if seal.quarantined is not None:
            record = QuarantineRecord(token=seal.token, rows=tuple(quarantine.quarantined_rows(seal)))
            put_once(self.records.store, self._path(seal.attempt, seal.task, seal.link), record, self.records.pause)
        super().put_seal(seal.model_copy(update={"quarantined": None}))

    def read_seal(self, attempt: int, task: int, link: int, *, keeps: bool = False) -> Seal | None:
        seal = super().read_seal(attempt, task, link, keeps=keeps)
        record = read(self.records.store, self._path(attempt, task, link), QuarantineRecord) if seal is not None else None
        if seal is None or record is None:
            return seal
        return seal.model_copy(update={"quarantined": Quarantined(rows=record.rows)})

    def _path(self, attempt: int, task: int, link: int) -> str:
        return f"{self.records.at.quarantines(attempt)}{task}-{link}.json"


class QuarantinesApart(Ledger):
    """Puts the rows that failed beside their seal, under its name: what is stored there may be another try's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seals = _QuarantinesApart(self.records, self.plans)
        self.bundles = Bundles(self.records, self.plans, self.seals)
        self.chains = Chains(self.records, self.attempts, self.plans, self.seals, self.bundles)


class _CountsLiveSealsOfFinishedEpochs(Chains):
    def counted_seals(self, attempts: Iterable[int]) -> Iterator[Seal]:
        commits = Commits(self.records)
        if commits.read_commit() is None:
            yield from super().counted_seals(attempts)
            return
        for attempt in self.attempts.list_attempts():
            plan = self.plans.read_plan(attempt)
            for task in range(plan.task_count if plan else 0):
                yield from self.read_chain(attempt, task)


class RetriesWhatLiveSealsSay(Ledger):
    """Of a finished epoch, takes for failed what any seal of any attempt says, closed or not."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.chains = _CountsLiveSealsOfFinishedEpochs(self.records, self.attempts, self.plans, self.seals, self.bundles)


class _ForgetsWhatIsTakenAgain(Inputs):
    def read_input(self, since: int = 1) -> Input | None:
        record = super().read_input(since)
        if record is None or self.commits.read_commit() is None:
            return record
        files = tuple(replace(file, only=None) for file in record.files)
        return InputRecord(token=record.token, files=files, arrow_schema=record.arrow_schema)


class RetriesWhatWasMadeGood(Ledger):
    """Forgets which rows a finished epoch has taken again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.inputs = _ForgetsWhatIsTakenAgain(self.records, self.commits)
