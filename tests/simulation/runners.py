"""Runners: the production reconcile loop as an actor, as checkpoint_local.runner drives it."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from checkpoint_commit.changes import Change, as_staged
from checkpoint_commit.iceberg import audit as iceberg_audit
from checkpoint_commit.iceberg.audit import Staged
from checkpoint_commit.outcomes import BlockOutcome, CommitOutcome, TryLater
from checkpoint_commit.ports import FoundItem, Sink
from checkpoint_commit.results import Results
from checkpoint_control.decision.actions import Wait
from checkpoint_control.loop.looks import Known, Looks
from checkpoint_control.loop.observing import Observer
from checkpoint_control.ports import Write
from checkpoint_formats.files.locations import FoundFile
from checkpoint_local.runner import LocalHost
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink as SinkSpec
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import Operation, Output, StagedFile, TakenRecord, Target, Upsert
from tests.simulation.drivers import SimulatedDrivers
from tests.simulation.iceberg_port import IcebergPort, upsert_of
from tests.simulation.iceberg_table import SimulatedIceberg
from tests.simulation.lance_table import SimulatedLance, lance_upsert_of
from tests.simulation.scheduler import Order
from tests.simulation.world import Job, RunnerLog, World
from tests.support.sources import source_of

#: Shorter than one slow read, longer than none.
_INTERVAL: Final = "5s"
_POLL_S: Final = 30.0
_EVERY: Final = "40s"
_BEGIN: Final = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def start_runner(world: World, job: Job) -> RunnerLog:
    """Add a runner with the manifest as it is now."""
    number = len(world.runners) + 1
    spec = _spec(world, job)
    write = Write(uid=job.uid, spec=spec, code_digest=job.code_digest)
    actor = world.scheduler.spawn(f"runner {number} of {job.uid}", "runner", job.uid, lambda: _run(world, write, log))
    log = RunnerLog(actor, job)
    world.runners.append(log)
    return log


def _run(world: World, write: Write, log: RunnerLog) -> None:
    sink = open_sink(world, log.job)
    drivers = SimulatedDrivers(world, log.job, log)
    observer = Observer(
        write,
        world.store,
        drivers,
        sink,
        LocalHost(clock=world.scheduler.clock),
        open_ledger=world.open_ledger,
        looks=_looks(world, log.job, write.spec),
    )
    reconciler = world.parts.reconciler(observer)
    while True:
        try:
            done = reconciler.step()
        except Retryable:
            world.scheduler.sleep(_POLL_S)
            continue
        log.epoch = done.key.epoch
        if done.outcome is not None:
            log.outcome = done.outcome
            return
        if isinstance(done.actions[-1], Wait):
            if log.job.is_over and done.seen.between is not None:
                return
            world.scheduler.sleep(_POLL_S)


def _looks(world: World, job: Job, spec: Spec) -> Looks | None:
    """Return the looks of a write with a trigger: a runner that begins once that is over takes what is new, and ends."""
    if spec.trigger is None:
        return None

    def list_news(taken: TakenRecord, known: Known) -> Iterator[FoundItem] | None:
        def effect(order: Order) -> Iterator[FoundItem] | None:
            match order.fault:
                case "down":
                    raise Retryable(reasons.SOURCE_UNREADABLE, "no answer")
                case "blind":
                    return None
            there = world.reader(job, job.path).found()
            # A hint: it may miss what is there, and see what no driver finds.
            there = {"stale": there[:-1], "longer": [*there, FoundFile(f"{job.path}/-1", "etag", 0, "", 0)]}.get(
                order.fault or "", there
            )
            return iter([FoundItem(file.path, file.etag) for file in there if not known.has(file.path, file.etag)])

        return world.scheduler.at("look-source", "", effect, ("stale", "longer", "blind", "down"))

    def now() -> datetime.datetime:
        return _BEGIN + datetime.timedelta(seconds=world.scheduler.clock())

    return Looks(spec, list_news, now, is_asked=job.is_over)


def _spec(world: World, job: Job) -> Spec:
    sink: dict[str, Any] = (
        {"iceberg": {"catalog": "sim", "table": "sim.rows"}} if world.format == "iceberg" else {"lance": {"uri": "s3://sim/rows"}}
    )
    if world.branches:
        sink["iceberg"]["branch"] = "staging"
    if world.upserts:
        sink |= {"mode": "Upsert", "upsertKeys": ("id",)}
    if world.overwrites_where:
        sink |= {"mode": "OverwriteWhere", "where": "id < 1000000", "onConcurrent": "Replace"}
    if world.overwrites:
        sink |= {"mode": "OverwriteAll", "onConcurrent": "Replace"}
    trigger = {"trigger": {"every": _EVERY, "atMost": {"files": job.most_files}}} if job.most_files is not None else {}
    return Spec.model_validate(
        {
            **trigger,
            "source": source_of({"files": {"format": "parquet", "paths": [job.path]}}),
            "steps": job.input.steps,
            "sink": sink,
            "checkpoint": {"uri": "s3://sim/checkpoints", "interval": _INTERVAL, "minimumBytes": "0"},
            "onCodeChange": job.on_code_change,
            "onRowError": "Quarantine" if job.quarantines else "Fail",
            "quarantine": {"maxRows": job.most_failed_rows, "maxShare": "100%", "retry": job.retry},
            "runNonce": job.run_nonce,
            "backoffLimit": 1000,
        }
    )


@dataclass(slots=True)
class SimulatedSink:
    """The sink port: a table's port and the production commit protocol, as checkpoint_commit.sinks puts them together."""

    world: World
    port: IcebergPort | SimulatedLance
    spec: SinkSpec
    title: str = "sim.rows"
    output: Output | None = None

    @property
    def table(self) -> IcebergPort | SimulatedLance:
        """What the sink of an upsert asks which merges are needed."""
        port: IcebergPort | SimulatedLance = self.world.parts.table_port(self.port)
        return port

    def describe(self, key: EpochKey) -> Target | None:
        def effect(order: Order) -> Target:
            if order.fault == "down":
                raise Retryable(reasons.CATALOG_UNAVAILABLE, "no answer")
            return self.world.table.describe()

        return self.world.scheduler.at("describe", "", effect, ("down",))

    def create(self, arrow_schema: str) -> Target:
        raise AssertionError("the table exists")

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        if isinstance(operation, Upsert):
            made = upsert_of if self.world.format == "iceberg" else lance_upsert_of
            return made(operation, tuple(files))
        return as_staged(operation, key, targets, files)

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        parts = self.world.parts
        if self.world.audits:
            return self._commit_what_has_passed(ledger, results)
        commit = parts.commit_to_iceberg if self.world.format == "iceberg" else parts.commit_to_lance
        return commit(parts.table_port(self.port), ledger, results, self.world.scheduler.sleep)

    def _commit_what_has_passed(self, ledger: Ledger, results: Results) -> CommitOutcome:
        """The audit itself, a stage in production, is a step here: what it lets pass is known for good."""
        world = self.world
        assert isinstance(self.port, IcebergPort)
        outcome = iceberg_audit.commit(self.port, ledger, results, world.passed.__contains__, world.scheduler.sleep)
        if not isinstance(outcome, Staged):
            return outcome
        staged = outcome
        world.scheduler.at("audit", str(ledger.key), lambda _: world.passed.update({staged: str(ledger.key)}))
        return TryLater(reasons.COMMIT_CONTENDED, "audited just now")

    def block_commit(self, ledger: Ledger) -> BlockOutcome:
        parts = self.world.parts
        block_commit = parts.block_in_iceberg if self.world.format == "iceberg" else parts.block_in_lance
        return block_commit(parts.table_port(self.port), ledger, self.world.scheduler.sleep)

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        return self.port.discard(key, targets, files)


def open_sink(world: World, job: Job) -> Sink:
    table = world.table
    port = IcebergPort(table, world.overwrites) if isinstance(table, SimulatedIceberg) else table
    sink: Any = SimulatedSink(world, port, _spec(world, job).sink)
    if not world.upserts:
        as_it_is: Sink = sink
        return as_it_is
    parts = world.parts
    return parts.upsert_iceberg(sink) if world.format == "iceberg" else parts.upsert_lance(sink)
