"""Attempts that seal nothing for longer than their deadline: those whose tasks are at work stay open, others are given up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.decision.observation import DriverObservation, DriverState
from checkpoint_control.loop.observing import Observer
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_control.ports import Write
from checkpoint_local.runner import LocalHost
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import parse_manifest
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.progress_reports import DriverProgress, Work, encode_advice
from checkpoint_protocol.records import LaunchRecord
from tests.support.manifests import manifest
from tests.support.records import plan
from tests.support.stores import MemoryStore

KEY = EpochKey("ab" * 16, 1)
DEADLINE_S = 1200.0
ROUND_S = 30.0
#: The driver has to be started and to plan, and tasks are asked only after a minute.
BEFORE_S = 180.0
Tell = Callable[[int], DriverProgress | None]


@dataclass
class BusyDrivers:
    """Drivers that plan at once, then run for ever and seal nothing."""

    store: MemoryStore
    started: list[int] = field(default_factory=list)

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        return DriverObservation(DriverState.RUNNING if attempt in self.started else DriverState.NOT_STARTED)

    def expect(self, key: EpochKey, attempt: int) -> None:
        pass

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        self.started.append(launch.attempt)
        Ledger(self.store, key).plans.put_plan(plan([(0, 0, 1000)], attempt=launch.attempt))

    def stop(self, key: EpochKey, attempt: int) -> None:
        pass


def closed_after_s(tell: Tell, most_s: float = 4 * DEADLINE_S) -> float | None:
    """Return when the first attempt is given up, if it is. `tell` gives what its driver tells in each round."""
    store, now_s = MemoryStore(), 0.0
    spec = parse_manifest(manifest(spec__sink={"none": {}}, spec__progressDeadlineSeconds=int(DEADLINE_S))).spec
    write = Write(uid=KEY.uid, spec=spec, code_digest="0" * 64)
    observer = Observer(write, store, BusyDrivers(store), open_sink(spec.sink, Settings()), LocalHost(clock=lambda: now_s))
    reconciler, ledger = Reconciler(observer), Ledger(store, KEY)
    for number in range(int(most_s / ROUND_S)):
        told = tell(number)
        if told is not None:
            store.objects[ledger.at.progress(1)] = encode_advice(told)
        reconciler.step()
        if ledger.attempts.read_closed(1) is not None:
            return now_s
        now_s += ROUND_S
    return None


def telling(rows: int = 0, calls: int = 0, calls_in_flight: int = 0) -> DriverProgress:
    work = Work(task=0, link=0, rows=rows, positions=rows, calls=calls, calls_in_flight=calls_in_flight)
    return DriverProgress(attempt=1, phase="RunningTasks", work=(work,))


@pytest.mark.parametrize("what", ["rows", "calls"])
def test_an_attempt_whose_tasks_do_more_and_more_stays_open_though_nothing_is_sealed(what: str) -> None:
    assert closed_after_s(lambda number: telling(**{what: number})) is None


def test_an_attempt_whose_tasks_stand_still_is_given_up_at_the_deadline() -> None:
    closed = closed_after_s(lambda number: telling(rows=17, calls=20, calls_in_flight=3))

    assert closed is not None
    assert DEADLINE_S < closed <= DEADLINE_S + BEFORE_S


def test_the_deadline_begins_when_the_tasks_were_last_seen_to_work() -> None:
    closed = closed_after_s(lambda number: telling(rows=min(number, 40)))

    assert closed is not None
    assert 40 * ROUND_S + DEADLINE_S < closed <= 40 * ROUND_S + DEADLINE_S + BEFORE_S


def test_an_attempt_that_tells_nothing_is_given_up_at_the_deadline() -> None:
    closed = closed_after_s(lambda number: None)

    assert closed is not None
    assert closed <= DEADLINE_S + BEFORE_S


def test_a_driver_that_only_says_again_that_it_runs_is_given_up() -> None:
    closed = closed_after_s(lambda number: DriverProgress(attempt=1, phase="RunningTasks", positions_known=number))

    assert closed is not None
    assert closed <= DEADLINE_S + BEFORE_S


def test_the_driver_of_a_stream_that_awaits_rows_is_not_given_up_for_sealing_nothing() -> None:
    assert closed_after_s(lambda number: DriverProgress(attempt=1, phase="AwaitingRows")) is None
