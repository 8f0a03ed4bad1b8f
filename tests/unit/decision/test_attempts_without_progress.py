"""Attempts that fail again and again: those that bring the end nearer are never too many, those that do not come to an end."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import checkpoint_formats
import checkpoint_spark
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.decision.actions import Stall
from checkpoint_control.decision.observation import DriverObservation, DriverState, Failure
from checkpoint_control.loop.drivers import failure_of
from checkpoint_control.loop.observing import Observer
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_control.ports import Write
from checkpoint_local.runner import LocalHost
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import Spec, parse_manifest
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import ClosedRecord, FailureRecord, GivenUp, KeysCovered, LaunchRecord, PlanRecord, Seal
from checkpoint_protocol.rows.keys import key_set
from tests.support.manifests import manifest
from tests.support.records import plan, seal
from tests.support.stores import MemoryStore

UID = "ab" * 16
#: What a driver does of an attempt before it fails.
Work = Callable[[Ledger, int], None]


@dataclass
class FailingDrivers:
    """Each driver does its work at once, says why it failed, and is gone."""

    store: MemoryStore
    work: Work
    reason: str = reasons.DRIVER_FAILED
    started: list[int] = field(default_factory=list)
    _expected: set[int] = field(default_factory=set)

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        is_not_started = attempt in self._expected and attempt not in self.started
        return DriverObservation(DriverState.NOT_STARTED if is_not_started else DriverState.GONE)

    def expect(self, key: EpochKey, attempt: int) -> None:
        self._expected.add(attempt)

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        self.started.append(launch.attempt)
        ledger = Ledger(self.store, key)
        self.work(ledger, launch.attempt)
        ledger.attempts.put_failure(
            FailureRecord(
                token=new_token(),
                attempt=launch.attempt,
                family="Retryable",
                reason=self.reason,
                message="the service did not answer",
            )
        )

    def stop(self, key: EpochKey, attempt: int) -> None:
        pass


def spec(**changes: Any) -> Spec:
    return parse_manifest(manifest(spec__sink={"none": {}}, **{f"spec__{path}": value for path, value in changes.items()})).spec


def attempts_of(
    work: Work, most: int = 8, reason: str = reasons.DRIVER_FAILED, store: MemoryStore | None = None, **changes: Any
) -> list[int]:
    """Return the attempts that one run on this machine starts until the write stalls, or so many."""
    store, settings = MemoryStore() if store is None else store, Settings()
    drivers = FailingDrivers(store, work, reason)
    wanted = spec(backoffLimit=1, **changes)
    write = Write(uid=UID, spec=wanted, code_digest="0" * 64)
    reconciler = Reconciler(Observer(write, store, drivers, open_sink(wanted.sink, settings), LocalHost()))
    for _ in range(6 * most):
        outcome = reconciler.step().outcome
        if outcome is not None:
            assert isinstance(outcome, Stall)
            assert outcome.reason == reasons.BACKOFF_LIMIT_EXCEEDED
            break
        if len(drivers.started) >= most:
            break
    return drivers.started


def keyed_plan(attempt: int, partitions: int) -> PlanRecord:
    return PlanRecord(token=new_token(), attempt=attempt, tasks=(), done_files=0, done_rows=0, partitions=partitions)


def keyed_seal(attempt: int, task: int, keys: int, *, last: bool, link: int = 0) -> Seal:
    covered = KeysCovered(objects=(), keys=key_set(keys, keys * 7, keys * 11))
    return seal(task, link, attempt=attempt, last=last).model_copy(update={"covered": covered})


def test_a_partition_without_rows_is_no_progress() -> None:
    """It seals "last, no keys" in every attempt anew."""

    def work(ledger: Ledger, attempt: int) -> None:
        ledger.plans.put_plan(keyed_plan(attempt, partitions=2))
        ledger.seals.put_seal(keyed_seal(attempt, 0, keys=0, last=True))

    assert attempts_of(work) == [1, 2]


def test_a_run_after_one_that_has_stalled_has_as_many_attempts_again() -> None:
    """A person has asked for it, so that failures of earlier runs do not count."""
    store = MemoryStore()

    assert [attempts_of(lambda ledger, attempt: None, store=store) for _ in range(3)] == [[1, 2], [3, 4], [5, 6]]


def test_sealed_keys_are_progress_whatever_partitions_are_empty() -> None:
    def work(ledger: Ledger, attempt: int) -> None:
        ledger.plans.put_plan(keyed_plan(attempt, partitions=3))
        ledger.seals.put_seal(keyed_seal(attempt, 0, keys=0, last=True))
        ledger.seals.put_seal(keyed_seal(attempt, 2, keys=5, last=False))

    assert attempts_of(work) == list(range(1, 9))


def test_positions_that_where_passes_over_are_progress() -> None:
    def work(ledger: Ledger, attempt: int) -> None:
        ledger.plans.put_plan(plan([(0, 0, 1000)], attempt=attempt))
        ledger.seals.put_seal(seal(0, 0, [(0, 10 * attempt, 10 * attempt + 10)], attempt=attempt, rows=0))

    assert attempts_of(work) == list(range(1, 9))


def test_a_file_without_rows_is_no_progress() -> None:
    def work(ledger: Ledger, attempt: int) -> None:
        ledger.plans.put_plan(plan([(0, 0, None)], [(1, 0, 1000)], attempt=attempt))
        ledger.seals.put_seal(seal(0, 0, [], attempt=attempt, last=True))

    assert attempts_of(work) == [1, 2]


def test_an_attempt_without_a_seal_is_no_progress() -> None:
    assert attempts_of(lambda ledger, attempt: None) == [1, 2]


@pytest.mark.parametrize(
    "reason",
    [
        reasons.WRITE_SUSPENDED,
        reasons.DRIVER_REPLACED,
        reasons.SOURCE_EDITED,
        reasons.STREAM_ENDED,
        reasons.DRIVER_EVICTED,
        reasons.DRIVER_PREEMPTED,
        reasons.DRIVER_DELETED,
        reasons.NODE_LOST,
        reasons.EXECUTORS_PENDING,
        reasons.EXECUTORS_REFUSED,
    ],
)
def test_a_driver_that_says_what_only_its_controller_finds_out_has_failed(reason: str) -> None:
    assert attempts_of(lambda ledger, attempt: None, reason=reason) == [1, 2]


def test_what_a_controller_has_found_out_goes_before_what_a_driver_says_later() -> None:
    found = GivenUp(family="Retryable", reason=reasons.NODE_LOST, message="its node is gone")
    closed = ClosedRecord(token=new_token(), attempt=1, plan_token=None, chain_lengths=(), complete=False, given_up=found)
    said = FailureRecord(token=new_token(), attempt=1, family="NeedsChange", reason=reasons.CODE_FAILED, message="it raised")

    assert failure_of(closed, said, of_stream=False) == Failure("Retryable", reasons.NODE_LOST, "its node is gone")


def test_every_reason_that_the_code_of_drivers_has_is_believed_of_them() -> None:
    folders = (checkpoint_spark, checkpoint_formats)
    sources = (path.read_text() for folder in folders for path in Path(folder.__path__[0]).rglob("*.py"))
    named = {name for source in sources for name in re.findall(r"reasons\.([A-Z_]+)", source)}

    assert named
    assert [name for name in named if not reasons.is_of_drivers(getattr(reasons, name), of_stream=True)] == []
