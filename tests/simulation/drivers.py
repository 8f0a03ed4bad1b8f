"""Simulated drivers: the port that runners start them by, and what a driver does, in the order of
checkpoint_work.driver.attempt.

Faults of the port:
    start    lost: it was started, and the answer is lost. twice: the request was repeated. dropped: nothing was started
    state    gone, running, not started, starting: what is said whatever is true. No safety may depend on it
    stop     ignored: it goes on as a zombie
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from checkpoint_control.decision.observation import DriverObservation, DriverState
from checkpoint_formats.port import Reader, Stager
from checkpoint_formats.rows.plain_types import decode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable, Superseded
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import (
    FailureRecord,
    IcebergDeletes,
    IcebergFile,
    IcebergTarget,
    InputRecord,
    LanceDeletes,
    LanceFragment,
    LaunchRecord,
    Merge,
)
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.rows.quarantine import most_rows
from checkpoint_protocol.store.parts import Input
from checkpoint_work.driver import attempt as attempts
from checkpoint_work.driver.bundling import Bundler
from checkpoint_work.inputs.epoch_input import Earlier, earlier_of, fix_input
from checkpoint_work.steps.quarantine import Allowance
from checkpoint_work.tasks.rows_by_position import RowsByPosition
from checkpoint_work.tasks.segments import Task, run_task
from tests.simulation.merging import SimulatedDeletesStager, SimulatedMergeReader, epoch_of, fix_merge_input
from tests.simulation.scheduler import Actor, Order
from tests.simulation.source import SimulatedReader
from tests.simulation.world import Job, RunnerLog, World
from tests.support.inputs import input_of_files
from tests.support.steps_here import steps_here

#: As spark.task.maxFailures.
_TASK_TRIES: Final = 4


@dataclass(slots=True)
class SimulatedDrivers:
    """Implements Drivers for one runner."""

    world: World
    job: Job
    log: RunnerLog
    _own: dict[tuple[EpochKey, int], list[Actor]] = field(default_factory=dict)
    _expected: set[tuple[EpochKey, int]] = field(default_factory=set)

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        def effect(order: Order) -> DriverObservation:
            return DriverObservation(self._state(key, attempt) if order.fault is None else DriverState(order.fault))

        return self.world.scheduler.at("state", f"driver {attempt}", effect, ("gone", "running", "not started", "starting"))

    def _state(self, key: EpochKey, attempt: int) -> DriverState:
        known = (self.world.drivers if self.world.is_cluster else self._own).get((key, attempt))
        if known:
            return DriverState.GONE if all(actor.ended for actor in known) else DriverState.RUNNING
        is_not_started = self.world.is_cluster or (key, attempt) in self._expected
        return DriverState.NOT_STARTED if is_not_started else DriverState.GONE

    def expect(self, key: EpochKey, attempt: int) -> None:
        self._expected.add((key, attempt))

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        def effect(order: Order) -> None:
            count = {"dropped": 0, "twice": 2}.get(order.fault or "", 1)
            self.log.drivers_started += [launch.attempt] * count
            started = [start_driver(self.world, self.job, key, launch.attempt) for _ in range(count)]
            self.world.drivers.setdefault((key, launch.attempt), []).extend(started)
            if order.fault in ("lost", "dropped"):
                raise Retryable(reasons.DRIVER_FAILED, "no answer")
            self._own.setdefault((key, launch.attempt), []).extend(started)

        self.world.scheduler.at("start", f"driver {launch.attempt}", effect, ("twice", "lost", "dropped"))

    def stop(self, key: EpochKey, attempt: int) -> None:
        def effect(order: Order) -> None:
            for actor in self.world.drivers.get((key, attempt), []):
                if order.fault != "ignored":
                    actor.is_doomed = True

        self.world.scheduler.at("stop", f"driver {attempt}", effect, ("ignored",))


def start_driver(world: World, job: Job, key: EpochKey, attempt: int) -> Actor:
    number = len(world.drivers.get((key, attempt), []))
    name = f"driver {key}.{attempt}{'abcdefgh'[number % 8]}"
    contest = f"{key} attempt {attempt}"
    return world.scheduler.spawn(name, "driver", contest, lambda: _run_driver(world, job, key, attempt, name))


def _run_driver(world: World, job: Job, key: EpochKey, attempt: int, name: str) -> None:
    """As checkpoint_spark.driver.main."""
    ledger = world.driver_ledger(key)
    try:
        _run_attempt(world, job, ledger, attempt, name)
    except Superseded as superseded:
        world.scheduler.say(f"{name}: {superseded}")
    except CheckpointError as error:
        family = "NeedsChange" if isinstance(error, NeedsChange) else "Corrupt" if isinstance(error, Corrupt) else "Retryable"
        failure = FailureRecord.model_validate(
            {"token": new_token(), "attempt": attempt, "family": family, "reason": error.reason, "message": error.message}
        )
        with contextlib.suppress(CheckpointError):
            ledger.attempts.put_failure(failure)


def _run_attempt(world: World, job: Job, ledger: Ledger, attempt: int, name: str) -> None:
    """As checkpoint_work.driver.attempt.run_attempt, whose reader cannot be handed in; its parts are the production ones."""
    launch = ledger.attempts.read_launch(attempt)
    if launch is None:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"no launch record of attempt {attempt}")
    reader: Reader
    if isinstance(launch.operation, Merge):
        epoch = world.driver_ledger(epoch_of(ledger.key))
        input_record = fix_merge_input(world.table, ledger, epoch, launch, launch.operation)
        reader = SimulatedMergeReader(world.scheduler, world.files, epoch)
    else:
        source = world.reader(job, launch.source.paths[0])
        input_record = fix_input(ledger, launch, partial(_list_source, world, launch, source))
        reader = source
    parallelism = world.scheduler.at("cores", "", lambda order: 2 if order.fault == "many" else 1, ("many",))
    plan = attempts._plan(ledger, launch, input_record, reader, parallelism)
    recorded = ledger.plans.put_plan(plan)
    del recorded  # a driver goes on with its own plan: had another's stood, put_plan would have raised
    bundler = world.parts.bundler(ledger, attempt, plan.token)
    _run_tasks_of(world, _Launched(job, ledger.key, launch, plan.tasks, name), bundler)


def _list_source(world: World, launch: LaunchRecord, reader: SimulatedReader, earlier: Earlier) -> InputRecord:
    """As checkpoint_work.inputs.epoch_input.list_source does for files."""
    budget = world.parts.budget(launch, str)
    found = budget.within(reader.found(), earlier_of(earlier, 0, launch))
    return input_of_files(launch, reader, str, earlier, found, budget.left)


@dataclass(frozen=True, slots=True)
class _Launched:
    job: Job
    key: EpochKey
    launch: LaunchRecord
    tasks: tuple[tuple[Range, ...], ...]
    driver: str


def _bundle(bundler: Bundler) -> None:
    """As checkpoint_work.driver.bundling does in a thread of its own, now and then."""
    with contextlib.suppress(Retryable, Corrupt):
        bundler.bundle(1)


def _run_tasks_of(world: World, launched: _Launched, bundler: Bundler) -> None:
    """Run every task to its end: a lost try is tried again, a slow one may be tried twice at once."""
    tries: dict[int, list[Actor]] = {number: [] for number in range(len(launched.tasks))}
    while open_tasks := [number for number, made in tries.items() if not any(_succeeded(actor) for actor in made)]:
        for number in open_tasks:
            if any(_may_succeed(actor) for actor in tries[number]):
                continue
            if len(tries[number]) >= _TASK_TRIES:
                raise Retryable(reasons.DRIVER_FAILED, f"task {number} failed {_TASK_TRIES} times")
            count = world.scheduler.at("ship", f"task {number}", lambda order: 2 if order.fault else 1, ("speculate",))
            tries[number] += [_start_try(world, launched, number, len(tries[number]) + extra) for extra in range(count)]

        def something_changed(now: list[int] = open_tasks) -> bool:
            return any(
                any(_succeeded(actor) for actor in tries[number]) or not any(_may_succeed(actor) for actor in tries[number])
                for number in now
            )

        world.scheduler.wait("a task", something_changed)
        _bundle(bundler)


def _succeeded(actor: Actor) -> bool:
    return actor.ended and not actor.crashed and actor.error is None


def _may_succeed(actor: Actor) -> bool:
    """Whether Spark still waits for a try: one that is not heard of counts as lost."""
    return not actor.ended and not actor.is_paused


def _start_try(world: World, launched: _Launched, number: int, attempt: int) -> Actor:
    name = f"task {number} try {attempt} of {launched.driver}"
    contest = f"{launched.key} attempt {launched.launch.attempt} task {number}"
    return world.scheduler.spawn(name, "task", contest, lambda: _run_try(world, launched, number, name))


def _run_try(world: World, launched: _Launched, number: int, name: str) -> None:
    """As checkpoint_work.tasks.executor.execute_order."""
    launch = launched.launch
    ledger = world.driver_ledger(launched.key)
    input_record = ledger.inputs.read_input(launch.input_since)
    assert launch.target is not None
    if input_record is None:
        raise Corrupt(reasons.RECORD_UNREADABLE, "the input is gone: the write was deleted")
    stager, sets_apart = _task_stager(world, launched, number), launch.on_row_error == "Quarantine"
    run_task(
        Task(
            attempt=launch.attempt,
            number=number,
            code_digest=launch.code_digest,
            interval_s=launch.interval_s,
            minimum_bytes=launch.minimum_bytes,
            allowance=_allowance(launch, input_record) if sets_apart else None,
        ),
        RowsByPosition(
            launched.tasks[number],
            input_record.files,
            decode_schema(input_record.arrow_schema),
            _task_reader(world, launched),
        ),
        steps=steps_here(stager, launch.steps, sets_apart=sets_apart),
        stager=stager,
        ledger=ledger,
        clock=world.scheduler.clock,
    )


def _task_reader(world: World, launched: _Launched) -> Reader:
    if isinstance(launched.launch.operation, Merge):
        return SimulatedMergeReader(world.scheduler, world.files, world.driver_ledger(epoch_of(launched.key)))
    return world.reader(launched.job, launched.launch.source.paths[0])


def _task_stager(world: World, launched: _Launched, number: int) -> Stager:
    target = launched.launch.target
    assert target is not None
    is_iceberg, layout = isinstance(target, IcebergTarget), world.table.layout_of(target)
    label = f"{launched.key.epoch}.{launched.launch.attempt}-{number}"
    if isinstance(launched.launch.operation, Merge):
        deletes = IcebergDeletes if is_iceberg else LanceDeletes
        return SimulatedDeletesStager(world.scheduler, world.files, deletes, layout, f"merge-{label}")
    return world.parts.stager(world.scheduler, world.files, IcebergFile if is_iceberg else LanceFragment, layout, label)


def _allowance(launch: LaunchRecord, input_record: Input) -> Allowance:
    """One row in a seal, one in each object: so that a few rows that fail are many."""
    return Allowance(most_rows(launch.quarantine, input_record), "", rows_of_a_seal=1, rows_of_an_object=1)
