"""One table, some writes that go into it, and everything that may happen to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from checkpoint_operator.commit.outcomes import CommitOutcome
from checkpoint_operator.commit.results import Results
from checkpoint_operator.core.actions import Finish, Stall
from checkpoint_operator.reconcile import Write
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import CheckpointSpec, IcebergSink, LanceSink, Sink, Source, Spec
from checkpoint_protocol.records import Target
from checkpoint_protocol.store import ObjectStore

from tests.simulation.iceberg_table import IcebergPort, SimulatedIceberg
from tests.simulation.lance_table import SimulatedLance
from tests.simulation.parts import PRODUCTION, LockstepReconciler, Parts, ledger_in_lockstep
from tests.simulation.scheduler import Actor, Order, Scheduler
from tests.simulation.source import Input, SimulatedReader
from tests.simulation.store import SimulatedStore
from tests.simulation.tables import DataFiles

Format = Literal["iceberg", "lance"]
FORMATS: Final[tuple[Format, ...]] = ("iceberg", "lance")
INTERVAL_S: Final = 5.0


@dataclass(slots=True)
class Job:
    """A write as its manifest says. All have one name, as a write that was deleted and applied again has; uids differ."""

    uid: str
    input: Input
    run_nonce: str = ""
    on_code_change: Literal["Continue", "Restart"] = "Continue"
    code_digest: str = "0" * 64
    name: str = "write"


@dataclass(slots=True)
class RunnerLog:
    """What a runner did, and how it ended. `drivers_started` are attempts."""

    actor: Actor
    job: Job
    outcome: Finish | Stall | None = None
    drivers_started: list[int] = field(default_factory=list)


@dataclass(slots=True)
class World:
    """`is_cluster`: drivers are seen by every runner, as pods are; else each runner knows its own processes."""

    format: Format
    parts: Parts = PRODUCTION
    is_cluster: bool = False
    scheduler: Scheduler = field(default_factory=Scheduler)
    files: DataFiles = field(default_factory=DataFiles)
    jobs: list[Job] = field(default_factory=list)
    runners: list[RunnerLog] = field(default_factory=list)
    drivers: dict[tuple[EpochKey, int], list[Actor]] = field(default_factory=dict)
    raw_store: SimulatedStore = field(init=False)
    store: ObjectStore = field(init=False)
    table: SimulatedIceberg | SimulatedLance = field(init=False)

    def __post_init__(self) -> None:
        self.raw_store = SimulatedStore(self.scheduler)
        self.store = self.parts.store_port(self.raw_store)
        kind = SimulatedIceberg if self.format == "iceberg" else SimulatedLance
        self.table = kind(self.scheduler, self.files)

    def add_job(self, sizes: list[int], *, explodes: bool = False) -> Job:
        number = len(self.jobs) + 1
        job = Job(f"uid-{number}", Input(first=1000 * number, sizes=sizes, explodes=explodes))
        self.jobs.append(job)
        return job

    def reader(self, job: Job) -> SimulatedReader:
        return SimulatedReader(self.scheduler, job.input)

    def driver_ledger(self, key: EpochKey) -> Ledger:
        return ledger_in_lockstep(self.parts.driver_ledger, self.store, key, self.scheduler)

    def open_ledger(self, store: ObjectStore, key: EpochKey) -> Ledger:
        return ledger_in_lockstep(self.parts.runner_ledger, store, key, self.scheduler)

    def plain_ledger(self, key: EpochKey) -> Ledger:
        """Return a ledger for the checks: no part that the museum may have replaced."""
        return ledger_in_lockstep(Ledger, self.raw_store, key, self.scheduler)

    def last_epoch(self, job: Job) -> int:
        prefix = f"control/{job.uid}/"
        epochs = {int(path.removeprefix(prefix).split("/")[0]) for path in self.raw_store.objects if path.startswith(prefix)}
        return max(epochs, default=1)

    def reconciler(self, job: Job, log: RunnerLog) -> LockstepReconciler:
        from tests.simulation.drivers import SimulatedDrivers

        write = Write(uid=job.uid, spec=self._spec(job), code_digest=job.code_digest)
        sink = SimulatedSink(self, IcebergPort(self.table) if isinstance(self.table, SimulatedIceberg) else self.table)
        reconciler = self.parts.reconciler(
            write, self.store, SimulatedDrivers(self, job, log), sink, clock=self.scheduler.clock
        )
        reconciler.open_ledger = self.open_ledger
        return reconciler

    def _spec(self, job: Job) -> Spec:
        iceberg = IcebergSink(catalog="sim", table="sim.rows") if self.format == "iceberg" else None
        lance = LanceSink(uri="sim://table.lance") if self.format == "lance" else None
        return Spec(
            source=Source(format="parquet", path="in"),
            steps=job.input.steps,
            sink=Sink(iceberg=iceberg, lance=lance),
            checkpoint=CheckpointSpec(uri="sim://checkpoints", interval=INTERVAL_S, minimum_bytes=0),
            on_code_change=job.on_code_change,
            run_nonce=job.run_nonce,
            backoff_limit=1000,
        )


@dataclass(slots=True)
class SimulatedSink:
    """The sink port: the table's port and the production commit protocol, as `checkpoint_operator.sinks` puts them together."""

    world: World
    port: IcebergPort | SimulatedLance
    title: str = "sim.rows"

    def describe(self) -> Target | None:
        def effect(order: Order) -> Target:
            if order.fault == "down":
                raise Retryable(reasons.CATALOG_UNAVAILABLE, "no answer")
            return self.world.table.describe()

        return self.world.scheduler.at("describe", "", effect, ("down",))

    def create(self, arrow_schema: str) -> Target:
        raise AssertionError("the table exists")

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        parts = self.world.parts
        commit = parts.commit_to_iceberg if self.world.format == "iceberg" else parts.commit_to_lance
        return commit(parts.table_port(self.port), ledger, results, self.world.scheduler.sleep)
