"""Runners: the production reconcile loop as an actor, as checkpoint_operator.local.runner drives it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from checkpoint_operator.commit.changes import Change, as_staged
from checkpoint_operator.commit.outcomes import BlockOutcome, CommitOutcome
from checkpoint_operator.commit.results import Results
from checkpoint_operator.core.actions import Wait
from checkpoint_operator.observing import Observer
from checkpoint_operator.ports import Write
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import Spec
from checkpoint_protocol.records import Operation, Output, StagedFile, Target
from tests.simulation.drivers import SimulatedDrivers
from tests.simulation.iceberg_table import IcebergPort, SimulatedIceberg
from tests.simulation.lance_table import SimulatedLance
from tests.simulation.scheduler import Order
from tests.simulation.world import Job, RunnerLog, World
from tests.support.sources import source_of

#: Shorter than one slow read, longer than none.
_INTERVAL: Final = "5s"
_POLL_S: Final = 30.0


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
    sink = open_sink(world)
    drivers = SimulatedDrivers(world, log.job, log)
    clock = world.scheduler.clock
    observer = Observer(write, world.store, drivers, sink, clock=clock, open_ledger=world.open_ledger)
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
            world.scheduler.sleep(_POLL_S)


def _spec(world: World, job: Job) -> Spec:
    sink = (
        {"iceberg": {"catalog": "sim", "table": "sim.rows"}} if world.format == "iceberg" else {"lance": {"uri": "s3://sim/rows"}}
    )
    return Spec.model_validate(
        {
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
    """The sink port: a table's port and the production commit protocol, as checkpoint_operator.sinks puts them together."""

    world: World
    port: IcebergPort | SimulatedLance
    title: str = "sim.rows"
    output: Output | None = None

    def describe(self) -> Target | None:
        def effect(order: Order) -> Target:
            if order.fault == "down":
                raise Retryable(reasons.CATALOG_UNAVAILABLE, "no answer")
            return self.world.table.describe()

        return self.world.scheduler.at("describe", "", effect, ("down",))

    def create(self, arrow_schema: str) -> Target:
        raise AssertionError("the table exists")

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        return as_staged(operation, key, targets, files)

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        parts = self.world.parts
        commit = parts.commit_to_iceberg if self.world.format == "iceberg" else parts.commit_to_lance
        return commit(parts.table_port(self.port), ledger, results, self.world.scheduler.sleep)

    def block_commit(self, ledger: Ledger) -> BlockOutcome:
        parts = self.world.parts
        block_commit = parts.block_in_iceberg if self.world.format == "iceberg" else parts.block_in_lance
        return block_commit(parts.table_port(self.port), ledger, self.world.scheduler.sleep)

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        return self.port.discard(key, targets, files)


def open_sink(world: World) -> SimulatedSink:
    return SimulatedSink(world, IcebergPort(world.table) if isinstance(world.table, SimulatedIceberg) else world.table)
