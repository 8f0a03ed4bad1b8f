"""Who holds a write on this machine, and how it is taken from a process that does not run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoint_local.lock import Holder, RunnerLock
from checkpoint_local.other_processes import start_of, state_of
from checkpoint_local.runner import Runner
from checkpoint_protocol.manifest.spec import parse_manifest
from checkpoint_protocol.places.settings import Settings
from tests.support.manifests import manifest


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Another process, which does nothing."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def test_one_at_a_time_has_it_and_says_who_it_is(tmp_path: Path) -> None:
    first, second = RunnerLock(tmp_path / "lock"), RunnerLock(tmp_path / "lock")

    assert first.take()
    assert first.take()
    assert not second.take()
    holder = second.holder()
    assert holder is not None
    assert holder.pid == os.getpid()
    assert state_of(holder.pid, holder.started) == "running"
    first.release()
    assert second.take()
    second.release()


def test_who_passes_over_has_it_and_the_one_passed_over_sees_that(tmp_path: Path) -> None:
    first, second, third = (RunnerLock(tmp_path / "lock") for _ in range(3))
    assert first.take()
    holder = second.holder()
    assert holder is not None

    assert second.pass_over(holder)

    assert second.is_held()
    assert not first.is_held()
    assert not first.take()
    assert not third.take()
    second.release()
    assert first.take()
    assert third.holder() is not None
    first.release()


def test_a_lock_that_has_changed_hands_since_it_was_looked_at_is_left_alone(tmp_path: Path) -> None:
    first, second = RunnerLock(tmp_path / "lock"), RunnerLock(tmp_path / "lock")
    assert first.take()
    somebody_before = Holder(pid=1, host="x", since="2026-01-02T03:04:05Z")

    assert not second.pass_over(somebody_before)

    assert first.is_held()
    first.release()


def test_a_lock_whose_holder_cannot_be_read_has_none(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert RunnerLock(path).holder() is None
    path.write_text("{")
    assert RunnerLock(path).holder() is None


def test_a_process_runs_is_stopped_or_gone(other: subprocess.Popen[bytes]) -> None:
    started = start_of(other.pid)
    assert state_of(other.pid, started) == "running"
    stop(other)
    assert state_of(other.pid, started) == "stopped"
    assert state_of(other.pid, "0" if started is not None else None) in ("gone", "stopped")
    other.kill()
    other.wait()
    assert state_of(other.pid, started) == "gone"


def test_a_runner_waits_for_one_that_runs_and_passes_over_one_that_has_been_stopped_for_a_while(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    now = [100.0]
    runner = Runner(parse_manifest(manifest()), Settings(), 2, lambda report: None, clock=lambda: now[0], host="here")
    lock = RunnerLock(tmp_path / "lock")
    lock.path.write_text(
        Holder(pid=other.pid, host="here", since="2026-01-02T03:04:05Z", started=start_of(other.pid)).model_dump_json()
    )

    def left_s() -> tuple[str, float | None]:
        rival = runner._rival(lock)
        assert rival is not None
        return rival.state, rival.passed_over_in_s

    assert left_s() == ("running", None)
    stop(other)
    assert left_s() == ("stopped", 10.0)
    now[0] += 8.0
    assert left_s() == ("stopped", 2.0)
    other.send_signal(signal.SIGCONT)
    os.waitpid(other.pid, os.WCONTINUED)
    assert left_s() == ("running", None)
    stop(other)
    assert left_s() == ("stopped", 10.0)
    now[0] += 10.0
    assert left_s() == ("stopped", 0.0)


def test_nothing_is_known_of_a_process_of_another_machine(tmp_path: Path) -> None:
    lock = RunnerLock(tmp_path / "lock")
    lock.path.write_text(Holder(pid=1, host="there", since="2026-01-02T03:04:05Z").model_dump_json())
    runner = Runner(parse_manifest(manifest()), Settings(), 2, lambda report: None, host="here")

    rival = runner._rival(lock)

    assert rival is not None
    assert (rival.state, rival.passed_over_in_s) == ("unknown", None)
