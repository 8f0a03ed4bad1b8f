"""How often a run on one machine looks at its store, and asks again. What it does with what it sees is decided elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint_control.decision.actions import Action, Finish, Wait
from checkpoint_control.decision.observation import Observation
from checkpoint_control.loop.reconcile import Round
from checkpoint_control.pipelines.decisions import Named
from checkpoint_control.progress.tallies import Tallies
from checkpoint_local.lock import RunnerLock
from checkpoint_local.runner import Report, Runner
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import parse_manifest
from checkpoint_protocol.places.settings import Settings
from tests.support.records import KEY, launch, ledger_over, plan, seal
from tests.support.stores import MemoryStore, Wrapped


class Somewhere(Wrapped):
    """A store that is at a URI."""

    at = ""

    @property
    def uri(self) -> str:
        return self.at


class Drivers:
    """Of two drivers that run, one ends after so many questions."""

    def __init__(self, ends_after: int) -> None:
        self._left = ends_after

    def count_running(self) -> int:
        self._left -= 1
        return 2 if self._left >= 0 else 1

    def stop_all(self) -> None:
        """Whatever runs ends."""


class Rounds:
    """A loop whose rounds have these outcomes, one after the other. None: the store does not answer."""

    def __init__(self, *outcomes: Action | None) -> None:
        self._outcomes = iter(outcomes)
        self._ledger = ledger_over(MemoryStore())
        self.observer = self

    @property
    def store(self) -> Any:
        return self._ledger.store

    def step(self) -> Round:
        outcome = next(self._outcomes)
        if outcome is None:
            raise Retryable(reasons.STORE_UNAVAILABLE, "no answer")
        return Round(KEY, Observation(1, (), "c" * 64, "Continue", 3, 600.0), (outcome,))

    def watch(self) -> Round:
        return Round(KEY, Observation(1, (), "c" * 64, "Continue", 3, 600.0), (Wait("the driver"),), is_decision=True)

    def current_ledger(self) -> Ledger:
        return self._ledger

    def current_tallies(self) -> Tallies:
        return Tallies(self._ledger)


def runner_of(uri: str, pauses: list[float], reports: list[Report], **spec: object) -> Runner:
    manifest = {
        "apiVersion": "checkpointed.dev/v1alpha1",
        "kind": "CheckpointedWrite",
        "metadata": {"name": "x"},
        "spec": {
            "source": {"files": {"format": "csv", "paths": ["/in"]}},
            "sink": {"none": {}},
            "checkpoint": {"uri": uri},
            **spec,
        },
    }
    return Runner(parse_manifest(manifest), Settings(), 2, reports.append, sleep=pauses.append)


def waited_s(uri: str, look_s: float, ends_after: int = 10_000) -> float:
    """Return how long a runner waits after a look that took so long."""
    pauses: list[float] = []
    runner = runner_of(uri, pauses, [])
    runner.drivers = Drivers(ends_after)  # type: ignore[assignment]
    store = Somewhere(MemoryStore())
    store.at = uri
    runner._wait_for_a_change(store, look_s)
    return sum(pauses)


@pytest.mark.parametrize(("uri", "expected_s"), [("/checkpoints", 0.1), ("s3://bucket/checkpoints", 2.0)])
def test_a_bucket_is_looked_at_less_often_than_a_folder(uri: str, expected_s: float) -> None:
    assert waited_s(uri, look_s=0.001) == pytest.approx(expected_s)


@pytest.mark.parametrize("uri", ["/checkpoints", "s3://bucket/checkpoints"])
def test_a_look_takes_a_tenth_of_the_time_at_the_most(uri: str) -> None:
    """With a hundred thousand seals it takes seconds, of the cores that the tasks run on."""
    assert waited_s(uri, look_s=3.0) == pytest.approx(30.0)


def test_the_end_of_a_driver_ends_the_waiting_at_once() -> None:
    assert waited_s("s3://bucket/checkpoints", look_s=3.0, ends_after=3) < 0.1


def driven(folder: Path, *outcomes: Action | None) -> tuple[Round | None, list[Report]]:
    """Return the last round of a run whose rounds have these outcomes, and what it has told."""
    reports: list[Report] = []
    runner = runner_of(str(folder), [], reports)
    runner.drivers = Drivers(ends_after=10_000)  # type: ignore[assignment]
    lock = RunnerLock(folder / "lock")
    assert lock.take()
    try:
        return runner._drive(Rounds(*outcomes), lock), reports  # type: ignore[arg-type]
    finally:
        lock.release()


def test_a_store_that_answers_in_between_is_asked_again_however_often_it_does_not(tmp_path: Path) -> None:
    outages: list[Action | None] = [None, None, None, None, Wait("it")]

    ended, reports = driven(tmp_path, *outages * 3, Finish())

    assert ended is not None
    assert ended.outcome == Finish()
    assert [report.problem for report in reports].count("no answer") == 12


def test_a_store_that_does_not_answer_five_times_in_a_row_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(Retryable, match="no answer"):
        driven(tmp_path, None, None, None, None, None, Finish())


def stage(name: str) -> dict[str, object]:
    return {"name": name, "steps": [{"name": "step", "call": "steps:step"}]}


def test_who_watches_a_pipeline_tells_what_is_sealed_of_the_stage_that_another_runner_is_at(tmp_path: Path) -> None:
    reports: list[Report] = []
    runner = runner_of(str(tmp_path), [], reports, stages=[stage("first"), stage("last")])
    rounds = Rounds()
    of_first = replace(rounds.current_ledger(), key=KEY.of_stage(str(Named("first", "0123456789abcdef", 1))))
    of_first.attempts.put_launch(launch(1))
    of_first.plans.put_plan(plan([(0, 0, 10)], [(1, 0, 10)]))
    lock = RunnerLock(tmp_path / "lock")

    runner._watch(rounds, lock)  # type: ignore[arg-type]
    of_first.seals.put_seal(seal(0, 0, [(0, 0, 10)], rows=10, last=True))
    runner._watch(rounds, lock)  # type: ignore[arg-type]

    shown = [(report.progress.attempt, report.progress.tasks_done, report.progress.rows_read) for report in reports]
    assert shown == [(1, 0, 0), (1, 1, 10)]
    assert all(report.attached for report in reports)
