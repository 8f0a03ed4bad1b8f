"""Simulated drivers: the port that runners start them by, and what a driver does, in the order of checkpoint_spark.attempt.

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

from checkpoint_formats.arrow_schema import decode_schema
from checkpoint_operator.core.observation import DriverObservation, DriverState
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable, Superseded
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.parts import Input
from checkpoint_protocol.positions import Range
from checkpoint_protocol.quarantine import most_rows
from checkpoint_protocol.records import FailureRecord, IcebergFile, IcebergTarget, LanceFragment, LaunchRecord
from checkpoint_spark import attempt as attempts
from checkpoint_spark.bundling import Bundler
from checkpoint_spark.input import fix_input
from checkpoint_spark.quarantine import Allowance
from checkpoint_spark.rows_by_position import RowsByPosition
from checkpoint_spark.segments import Task, run_task
from checkpoint_spark.steps.engine import Pipeline
from tests.simulation.scheduler import Actor, Order
from tests.simulation.world import Job, RunnerLog, World
from tests.support.inputs import input_of_files

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
    name = f"driver {key.uid}/{key.epoch}.{attempt}{'abcdefgh'[number % 8]}"
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
    """As checkpoint_spark.attempt.run_attempt, whose reader cannot be handed in; its parts are the production ones."""
    launch = ledger.attempts.read_launch(attempt)
    if launch is None:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"no launch record of attempt {attempt}")
    reader = world.reader(job, launch.source.paths[0])
    input_record = fix_input(ledger, launch, partial(input_of_files, launch, reader, str))
    parallelism = world.scheduler.at("cores", "", lambda order: 2 if order.fault == "many" else 1, ("many",))
    plan = attempts._plan(ledger, launch, input_record, reader, parallelism)
    standing = ledger.plans.put_plan(plan)
    del standing  # a driver goes on with its own plan: had another's stood, put_plan would have raised
    bundler = world.parts.bundler(ledger, attempt, plan.token)
    _ship(world, _Shipment(job, ledger.key, launch, plan.tasks, name), bundler)


@dataclass(frozen=True, slots=True)
class _Shipment:
    job: Job
    key: EpochKey
    launch: LaunchRecord
    tasks: tuple[tuple[Range, ...], ...]
    driver: str


def _bundle(bundler: Bundler) -> None:
    """As checkpoint_spark.bundling does in a thread of its own, now and then."""
    with contextlib.suppress(Retryable, Corrupt):
        bundler.bundle(1)


def _ship(world: World, shipment: _Shipment, bundler: Bundler) -> None:
    """Run every task to its end: a lost try is tried again, a slow one may be tried twice at once."""
    tries: dict[int, list[Actor]] = {number: [] for number in range(len(shipment.tasks))}
    while open_tasks := [number for number, made in tries.items() if not any(_succeeded(actor) for actor in made)]:
        for number in open_tasks:
            if any(_may_succeed(actor) for actor in tries[number]):
                continue
            if len(tries[number]) >= _TASK_TRIES:
                raise Retryable(reasons.DRIVER_FAILED, f"task {number} failed {_TASK_TRIES} times")
            count = world.scheduler.at("ship", f"task {number}", lambda order: 2 if order.fault else 1, ("speculate",))
            tries[number] += [_start_try(world, shipment, number, len(tries[number]) + extra) for extra in range(count)]

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


def _start_try(world: World, shipment: _Shipment, number: int, attempt: int) -> Actor:
    name = f"task {number} try {attempt} of {shipment.driver}"
    contest = f"{shipment.key} attempt {shipment.launch.attempt} task {number}"
    return world.scheduler.spawn(name, "task", contest, lambda: _run_try(world, shipment, number, name))


def _run_try(world: World, shipment: _Shipment, number: int, name: str) -> None:
    """As checkpoint_spark.executor.execute_order."""
    launch = shipment.launch
    ledger = world.driver_ledger(shipment.key)
    input_record = ledger.inputs.read_input(launch.input_since)
    assert launch.target is not None
    if input_record is None:
        raise Corrupt(reasons.RECORD_UNREADABLE, "the input is gone: the write was deleted")
    is_iceberg = isinstance(launch.target, IcebergTarget)
    run_task(
        Task(
            attempt=launch.attempt,
            number=number,
            code_digest=launch.code_digest,
            interval_s=launch.interval_s,
            minimum_bytes=launch.minimum_bytes,
            allowance=_allowance(launch, input_record) if launch.on_row_error == "Quarantine" else None,
        ),
        RowsByPosition(
            shipment.tasks[number],
            input_record.files,
            decode_schema(input_record.arrow_schema),
            world.reader(shipment.job, launch.source.paths[0]),
        ),
        steps=Pipeline(launch.steps),
        stager=world.parts.stager(
            world.scheduler,
            world.files,
            IcebergFile if is_iceberg else LanceFragment,
            world.table.layout_of(launch.target),
            f"{shipment.key.epoch}.{launch.attempt}-{number}",
        ),
        ledger=ledger,
        clock=world.scheduler.clock,
    )


def _allowance(launch: LaunchRecord, input_record: Input) -> Allowance:
    """One row in a seal, one in each object: so that a few rows that fail are many."""
    return Allowance(most_rows(launch.quarantine, input_record), "", rows_of_a_seal=1, rows_of_an_object=1)
