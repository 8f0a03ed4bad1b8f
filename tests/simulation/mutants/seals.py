"""Planted bugs of sealing, closing and resuming."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from checkpoint_commit.changes import StagedChange
from checkpoint_commit.outcomes import Committed, Rejected, TryLater, Unknown
from checkpoint_commit.results import Results, target_of
from checkpoint_control.decision.actions import Stall
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.chains import Chains
from checkpoint_protocol.ledger.inputs import Inputs, Plans
from checkpoint_protocol.ledger.seals import Seals
from checkpoint_protocol.records import ClosedRecord, GivenUp, InputRecord, PlanRecord, Seal
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_store import StoredObject
from tests.simulation.scheduler import Order
from tests.simulation.source import SimulatedStager
from tests.simulation.store import SimulatedStore


class WithoutCoverageCheck(Reconciler):
    """The loop without its second net, the check that the seals cover the input once: shows what it would have caught."""

    def _commit(self, ledger: Ledger, attempt: int) -> Stall | None:
        launch = ledger.attempts.read_launch(attempt)
        assert launch is not None
        attempts = (*launch.counted, attempt)
        seals = list(ledger.chains.counted_seals(attempts))
        results = Results(
            change=StagedChange(launch.operation, tuple(file for seal in seals for file in seal.files)),
            targets=tuple(target for number in attempts if (target := target_of(ledger, number)) is not None),
            rows_read=0,
            rows_written=0,
            attempts=attempt,
            code_digests=(),
        )
        match self.observer.sink.commit(ledger, results) if len(results.change) else None:
            case Committed(identity, commit_id, _):
                self._put_commit(ledger, results, identity, commit_id)
            case None:
                self._put_commit(ledger, results, None, None)
            case Rejected(reason, message):
                return Stall(reason, message)
            case Unknown(message):
                return Stall(reasons.COMMIT_OUTCOME_UNKNOWN, message)
            case TryLater(reason, message):
                raise Retryable(reason, message)
        return None


class _LiveSeals(Chains):
    def counted_seals(self, attempts: Iterable[int]) -> Iterator[Seal]:
        for attempt in attempts:
            plan = self.plans.read_plan(attempt)
            for task in range(plan.task_count if plan else 0):
                yield from self.read_chain(attempt, task)


class BelievesLiveSeals(Ledger):
    """Counts what an attempt has sealed by now, not what its closed list says."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.chains = _LiveSeals(self.records, self.attempts, self.plans, self.seals, self.bundles)


class _ClosesWhatIsListed(Chains):
    def close(self, attempt: int, given_up: GivenUp | None = None) -> ClosedRecord:
        if (closed := self.attempts.read_closed(attempt)) is not None:
            return closed
        plan = self.plans.read_plan(attempt)
        seen: dict[int, list[int]] = {}
        folder = self.records.at.seals(attempt)
        for stored in self.records.store.list(folder):
            if place := layout.seal_of(stored.path, folder):
                seen.setdefault(place[0], []).append(place[1])
        tasks = range(plan.task_count if plan else 0)
        record = ClosedRecord(
            token=new_token(),
            attempt=attempt,
            plan_token=plan.token if plan else None,
            chain_lengths=tuple(len(seen.get(task, ())) for task in tasks),
            complete=plan is not None and all(self._shows_the_last(attempt, task, seen.get(task, ())) for task in tasks),
            given_up=given_up,
        )
        return self.attempts.put_closed(record)

    def _shows_the_last(self, attempt: int, task: int, links: Sequence[int]) -> bool:
        newest = self.seals.read_seal(attempt, task, max(links)) if links else None
        return newest is not None and newest.last


class ClosesWhatIsListed(Ledger):
    """Takes the listing for a snapshot: the closed list counts the seals that it shows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.chains = _ClosesWhatIsListed(self.records, self.attempts, self.plans, self.seals, self.bundles)


class _OwnInput(Inputs):
    def put_input(self, record: InputRecord, since: int = 1) -> InputRecord:
        super().put_input(record, since)
        return record


class GoesByItsOwnInput(Ledger):
    """A driver goes on with the input that it has found, although another's is stored."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.inputs = _OwnInput(self.records, self.commits)


class _AnyPlan(Plans):
    def put_plan(self, record: PlanRecord) -> PlanRecord:
        return self.records.put(self.records.at.plan(record.attempt), record)


class SecondDriverGoesOn(Ledger):
    """A driver whose plan did not win goes on with it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.plans = _AnyPlan(self.records)


class _NextFreeLink(Seals):
    def put_seal(self, seal: Seal) -> None:
        while self.records.put(self.records.at.seal(seal.attempt, seal.task, seal.link), seal).token != seal.token:
            seal = seal.model_copy(update={"link": seal.link + 1})


class SealsAtTheNextFreeLink(Ledger):
    """The loser of a link seals all the same, one link further on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seals = _NextFreeLink(self.records, self.plans)


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

    def get(self, path: str, most_bytes: int) -> bytes | None:
        return self.inner.get(path, most_bytes)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        return self.inner.list(folder, borders)

    def delete(self, paths: Iterable[str]) -> None:
        self.inner.delete(paths)


class NamesWithoutToken(SimulatedStager):
    """Data files are named by attempt, task and number: a losing try writes over what a seal names."""

    def name_file(self) -> str:
        self.number += 1
        return f"{self.label}-{self.number}.data"
