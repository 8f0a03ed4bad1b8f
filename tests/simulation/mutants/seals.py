"""Planted bugs of sealing, closing and resuming."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from checkpoint_operator.commit.outcomes import Committed, Rejected, TryLater, Unknown
from checkpoint_operator.commit.results import Results, target_of
from checkpoint_operator.core.actions import Stall
from checkpoint_protocol import layout, reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import ClosedRecord, InputRecord, PlanRecord, Seal
from checkpoint_protocol.store import StoredObject
from tests.simulation.parts import LockstepReconciler
from tests.simulation.scheduler import Order
from tests.simulation.source import SimulatedStager
from tests.simulation.store import SimulatedStore


class WithoutCoverageCheck(LockstepReconciler):
    """The loop without its second net, the check that the seals cover the input once: shows what it would have caught."""

    def _commit(self, ledger: Ledger, attempt: int) -> Stall | None:
        launch = ledger.read_launch(attempt)
        assert launch is not None
        attempts = (*launch.counted, attempt)
        seals = list(ledger.counted_seals(attempts))
        results = Results(
            files=tuple(file for seal in seals for file in seal.files),
            targets=tuple(target for number in attempts if (target := target_of(ledger, number)) is not None),
            rows_read=0,
            rows_written=0,
            attempts=attempt,
            code_digests=(),
        )
        match self.sink.commit(ledger, results) if results.files else None:
            case Committed(identity, commit_id, _):
                self._mark(ledger, results, identity, commit_id)
            case None:
                self._mark(ledger, results, None, None)
            case Rejected(reason, message):
                return Stall(reason, message)
            case Unknown(message):
                return Stall(reasons.COMMIT_OUTCOME_UNKNOWN, message)
            case TryLater(reason, message):
                raise Retryable(reason, message)
        return None


class BelievesLiveSeals(Ledger):
    """Counts what an attempt has sealed by now, not what its closed list says."""

    def counted_seals(self, attempts: Iterable[int]) -> Iterator[Seal]:
        for attempt in attempts:
            plan = self.read_plan(attempt)
            for task in range(plan.task_count if plan else 0):
                yield from self.read_chain(attempt, task)


class ClosesWhatIsListed(Ledger):
    """Takes the listing for a snapshot: the closed list counts the seals that it shows."""

    def close(self, attempt: int) -> ClosedRecord:
        if (standing := self.read_closed(attempt)) is not None:
            return standing
        plan = self.read_plan(attempt)
        seen: dict[int, list[int]] = {}
        folder = self.at.seals(attempt)
        for stored in self.store.list(folder):
            if place := layout.seal_of(stored.path, folder):
                seen.setdefault(place[0], []).append(place[1])
        tasks = range(plan.task_count if plan else 0)
        record = ClosedRecord(
            token=new_token(),
            attempt=attempt,
            plan_token=plan.token if plan else None,
            chain_lengths=tuple(len(seen.get(task, ())) for task in tasks),
            complete=plan is not None and all(self._shows_the_last(attempt, task, seen.get(task, ())) for task in tasks),
        )
        return self._put(self.at.closed(attempt), record)

    def _shows_the_last(self, attempt: int, task: int, links: Sequence[int]) -> bool:
        newest = self.read_seal(attempt, task, max(links)) if links else None
        return newest is not None and newest.last


class GoesByItsOwnInput(Ledger):
    """A driver goes on with the input that it has found, although another's stands."""

    def put_input(self, record: InputRecord, since: int = 1) -> InputRecord:
        super().put_input(record, since)
        return record


class SecondDriverGoesOn(Ledger):
    """A driver whose plan did not win goes on with it."""

    def put_plan(self, record: PlanRecord) -> PlanRecord:
        return self._put(self.at.plan(record.attempt), record)


class SealsAtTheNextFreeLink(Ledger):
    """The loser of a link seals all the same, one link further on."""

    def put_seal(self, seal: Seal) -> None:
        while self._put(self.at.seal(seal.attempt, seal.task, seal.link), seal).token != seal.token:
            seal = seal.model_copy(update={"link": seal.link + 1})


@dataclass(slots=True)
class OverwritesSeals:
    """A store whose puts of seals are plain puts: the last one wins."""

    inner: SimulatedStore

    @property
    def uri(self) -> str:
        return self.inner.uri

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if "/seals/" not in path:
            return self.inner.put_if_absent(path, data)

        def effect(_: Order) -> bool:
            self.inner.overwrite(path, data)
            return True

        return self.inner.scheduler.at("put", path, effect)

    def get(self, path: str) -> bytes | None:
        return self.inner.get(path)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        return self.inner.list(folder, borders)

    def delete(self, paths: Iterable[str]) -> None:
        self.inner.delete(paths)


class NamesWithoutToken(SimulatedStager):
    """Data files are named by attempt, task and number: a losing try writes over what a seal names."""

    def name_file(self) -> str:
        self.number += 1
        return f"{self.label}-{self.number}.data"
