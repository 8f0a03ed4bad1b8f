"""One table, some writes that go into it, and everything that may happen to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from hypothesis.vendor.pretty import RepresentationPrinter

from checkpoint_commit.iceberg.audit import Staged
from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.writes.deletion import DeletionOutcome
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.store.object_store import ObjectStore
from tests.simulation.iceberg_table import SimulatedIceberg
from tests.simulation.lance_table import SimulatedLance
from tests.simulation.parts import PRODUCTION, Parts, ledger_in_lockstep
from tests.simulation.scheduler import Actor, Scheduler
from tests.simulation.source import Input, SimulatedReader
from tests.simulation.store import SimulatedStore
from tests.simulation.tables import DataFiles, Row

Format = Literal["iceberg", "lance"]
FORMATS: Final[tuple[Format, ...]] = ("iceberg", "lance")


@dataclass(slots=True)
class Job:
    """A write as its manifest says. All have one name, as a write that was deleted and applied again has; uids differ."""

    uid: str
    input: Input
    run_nonce: str = ""
    on_code_change: Literal["Continue", "Restart"] = "Continue"
    code_digest: str = "0" * 64
    name: str = "write"
    epoch_ends: list[int] = field(default_factory=list)
    quarantines: bool = False
    retry: Literal["Never", "Also", "Only"] = "Never"
    most_failed_rows: int = 1000
    ever_failing: frozenset[int] = frozenset()
    path: str = "in"
    edited_away: dict[str, Input] = field(default_factory=dict)
    #: Its epochs begin by a trigger, each with so many new files at the most. Its runners go on until that is taken out.
    most_files: int | None = None
    is_over: bool = False

    def edit_source(self, path: str, other: Input) -> None:
        """Let the manifest say another source; drivers that were told the old one go on with that."""
        self.edited_away[self.path] = self.input
        self.path, self.input = path, self.edited_away.pop(path, other)

    def begin_next_epoch(self, rows: int) -> None:
        """Ask for another run, and give it a file of its own to read, if it has any rows."""
        self.epoch_ends.append(len(self.input.sizes))
        self.input.sizes += [rows] if rows else []
        self.run_nonce = str(len(self.epoch_ends) + 1)

    def let_a_file_come(self, rows: int) -> None:
        """Give the source a file that nobody has asked an epoch for. How old it looks has nothing to do with when it comes."""
        self.input.sizes.append(rows)

    def expected_of(self, epoch: int) -> Counter[Row]:
        """Return the rows of one epoch."""
        ends = [0, *self.epoch_ends, len(self.input.sizes)]
        return self.input.expected(ends[epoch - 1], ends[epoch])


@dataclass(slots=True)
class RunnerLog:
    """What a runner did, and how it ended. `drivers_started` are attempts; `epoch` is that of its last round."""

    actor: Actor
    job: Job
    outcome: Finish | Stall | None = None
    epoch: int = 0
    drivers_started: list[int] = field(default_factory=list)


@dataclass(slots=True)
class DeletionLog:
    """What a deleter did, and how it ended; `landed` are the keys that were in the table then. `number`: of its object.

    `came_late`: its object was gone, and it has done nothing.
    """

    actor: Actor
    job: Job
    number: int
    outcome: DeletionOutcome | None = None
    came_late: bool = False
    landed: frozenset[str] = frozenset()


@dataclass(slots=True, repr=False)
class World:
    """`is_cluster`: drivers are seen by every runner, as pods are; else each runner knows its own processes.

    `row_bytes`: 16 KiB are the smallest split, so rows of that size make tasks of one row or a few, depending on the cores.
    """

    format: Format
    parts: Parts = PRODUCTION
    is_cluster: bool = False
    row_bytes: int = 16 << 10
    #: Whether a deletion keeps the records of what is committed, and how many objects of the first write's name came before.
    retains: bool = False
    objects_gone: int = 0
    #: Whether the writes overwrite the table, with what others have put there.
    overwrites: bool = False
    #: Whether they overwrite what strangers have put under their numbers, and what they have put before.
    overwrites_where: bool = False
    #: Whether rows wait for an audit before they are committed, and what has passed, with its key.
    audits: bool = False
    passed: dict[Staged, str] = field(default_factory=dict)
    #: Whether they go to a branch, which the first commit makes.
    branches: bool = False
    #: Whether the writes upsert by the number of the input row.
    upserts: bool = False
    scheduler: Scheduler = field(default_factory=Scheduler)
    files: DataFiles = field(default_factory=DataFiles)
    jobs: list[Job] = field(default_factory=list)
    runners: list[RunnerLog] = field(default_factory=list)
    deletions: list[DeletionLog] = field(default_factory=list)
    drivers: dict[tuple[EpochKey, int], list[Actor]] = field(default_factory=dict)
    raw_store: SimulatedStore = field(init=False)
    store: ObjectStore = field(init=False)
    table: SimulatedIceberg | SimulatedLance = field(init=False)

    def __repr__(self) -> str:
        return f"World({self.format}, {self.scheduler.step_number} steps)"

    def _repr_pretty_(self, printer: RepresentationPrinter, _is_cycle: bool) -> None:
        """Say no more when hypothesis shows a failing example: the trace is in the failure's message."""
        printer.text(repr(self))

    def __post_init__(self) -> None:
        self.raw_store = SimulatedStore(self.scheduler)
        self.store = self.parts.store_port(self.raw_store)
        kind = SimulatedIceberg if self.format == "iceberg" else SimulatedLance
        self.table = kind(self.scheduler, self.files)
        self.table.shared_keys = self._shared_keys

    def let_writes_go_to_a_branch(self) -> None:
        assert isinstance(self.table, SimulatedIceberg)
        self.branches = True
        self.table.versions[-1] = replace(self.table.metadata, branch="missing")

    def _shared_keys(self) -> Sequence[int]:
        if not (self.upserts or self.overwrites_where):
            return ()
        return sorted({number for job in self.jobs for number, _ in job.input.expected()})

    def add_job(self, sizes: list[int], *, explodes: bool = False, waits: bool = False) -> Job:
        number = len(self.jobs) + 1
        job = Job(f"uid-{number}", Input(first=1000 * number, sizes=sizes, explodes=explodes, waits=waits))
        self.jobs.append(job)
        return job

    def reader(self, job: Job, path: str) -> SimulatedReader:
        """Return the reader of a source that the job's manifest says, or has said."""
        return SimulatedReader(self.scheduler, job.edited_away.get(path, job.input), self.row_bytes, path)

    def driver_ledger(self, key: EpochKey) -> Ledger:
        return ledger_in_lockstep(self.parts.driver_ledger, self.store, key, self.scheduler)

    def open_ledger(self, store: ObjectStore, key: EpochKey) -> Ledger:
        return ledger_in_lockstep(self.parts.runner_ledger, store, key, self.scheduler)

    def plain_ledger(self, key: EpochKey) -> Ledger:
        """Return a ledger for the checks: no part that a mutant may have replaced."""
        return ledger_in_lockstep(Ledger, self.raw_store, key, self.scheduler)

    def last_epoch(self, job: Job) -> int:
        prefix = f"control/{job.uid}/"
        below = (path.removeprefix(prefix) for path in self.raw_store.objects if path.startswith(prefix))
        epochs = (path.partition("/")[0] for path in below)
        return max((int(epoch) for epoch in epochs if epoch.isdecimal()), default=1)

    def is_deleted(self, job: Job) -> bool:
        """Whether the note of a deletion stands, in the store as it is now."""
        return f"control/{job.uid}/deleted.json" in self.raw_store.objects
