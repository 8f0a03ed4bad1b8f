"""Drivers as processes: how one that is gone has ended is told, with where its log lies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from checkpoint_control.decision.observation import DriverObservation, DriverState
from checkpoint_local.java import notice
from checkpoint_local.processes import DriverProcesses, environment_of, how_it_ended
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.places.settings import Settings
from tests.unit.cli.test_code_digest import spec

KEY = EpochKey("00000000000000aa", 1)


def seen_after(folder: Path, program: str, *, says: str = "") -> tuple[DriverObservation, Path]:
    """Look at a driver whose process runs this program instead, once it has ended."""
    drivers = DriverProcesses(spec=spec(), uri=str(folder), settings=Settings(), cores=1, state_folder=folder)
    log = drivers.log_of(KEY, 1)
    log.write_text(says)
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        process.wait()
        drivers._started[KEY, 1] = process
        return drivers.observe(KEY, 1), log


def test_a_driver_that_was_killed_is_told_with_its_signal_its_log_and_the_last_lines_there(tmp_path: Path) -> None:
    lines = "".join(f"line {number}\n" for number in range(100)) + "\n"

    sight, log = seen_after(tmp_path, "import os; os.kill(os.getpid(), 9)", says=lines)

    assert sight.state is DriverState.GONE
    assert sight.problem is not None
    assert (sight.problem.family, sight.problem.reason) == ("Retryable", reasons.DRIVER_FAILED)
    for part in ("killed by SIGKILL", "memory", str(log), "line 98 | line 99"):
        assert part in sight.problem.message
    assert "line 90" not in sight.problem.message


def test_a_driver_that_ended_by_itself_is_told_with_its_exit_code(tmp_path: Path) -> None:
    sight, log = seen_after(tmp_path, "raise SystemExit(7)")

    assert sight.problem is not None
    assert "exit code 7" in sight.problem.message
    assert str(log) in sight.problem.message


def test_a_driver_at_work_and_one_of_another_runner_have_no_end_to_tell(tmp_path: Path) -> None:
    drivers = DriverProcesses(spec=spec(), uri=str(tmp_path), settings=Settings(), cores=1, state_folder=tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        drivers._started[KEY, 1] = process
        assert drivers.observe(KEY, 1) == DriverObservation(DriverState.RUNNING)
        process.kill()
    assert drivers.observe(KEY, 2) == DriverObservation(DriverState.GONE)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "exit code 0, before all was sealed"),
        (-signal.SIGSEGV, "killed by SIGSEGV"),
        (-signal.SIGTERM, "killed by SIGTERM"),
        (-250, "killed by signal 250"),
    ],
)
def test_each_end_has_a_name(tmp_path: Path, code: int, said: str) -> None:
    assert said in how_it_ended(code, tmp_path / "no.log")


def test_a_log_of_any_size_and_bytes_is_told_in_bounds(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    log.write_bytes(b"\xff\xfe" * 1_000_000 + b"\n" + b"x" * 100_000)

    assert len(how_it_ended(1, log)) < 1_500


#: Each is the environment of somebody who has another Spark, or works at a cluster.
ELSEWHERE = {
    "SPARK_HOME": "/opt/spark-3.5",
    "SPARK_CONF_DIR": "/etc/spark/conf",
    "SPARK_REMOTE": "sc://host",
    "PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell",
    "HADOOP_CONF_DIR": "/etc/hadoop/conf",
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_variable_that_leads_to_another_spark_is_kept_from_drivers_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, ELSEWHERE[name])
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/scratch")

    seen = environment_of(spec(), Settings())

    assert name not in seen
    assert seen["SPARK_LOCAL_DIRS"] == "/scratch"
    assert name in (notice({name: ELSEWHERE[name]}) or "")


def test_python_packages_of_another_spark_are_kept_from_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "spark"
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(home / "python"), str(tmp_path / "mine")]))

    seen = environment_of(spec(), Settings())

    assert seen["PYTHONPATH"].split(os.pathsep)[-1] == str(tmp_path / "mine")
    assert str(home) not in seen["PYTHONPATH"]


def test_the_home_of_the_spark_that_is_used_is_not_told(tmp_path: Path) -> None:
    home = str(distribution("pyspark").locate_file("pyspark"))

    assert notice({"SPARK_HOME": home}) is None
    assert notice({"PATH": "/bin"}) is None
