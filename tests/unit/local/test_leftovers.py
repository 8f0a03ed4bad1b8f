"""What a driver has started ends with it: in its session, and in a session of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from checkpoint_local.other_processes import MARK_VARIABLE, end_leftovers
from checkpoint_local.processes import DriverProcesses, mark_of
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.places.settings import Settings
from tests.support.waiting import patience
from tests.unit.cli.test_code_digest import spec

KEY = EpochKey("00000000000000aa", 1)

#: Each child says its pid, and then waits for ever: for input, from a pipe that nobody closes.
CHILD = """
import os, signal, sys
{first}
print(os.getpid(), flush=True)
os.close(1)
signal.pause()
"""
DRIVER = """
import subprocess, sys
for program in sys.argv[2:]:
    of_its_own = "setsid" in program
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=of_its_own)
    print(child.stdout.readline().strip(), flush=True)
exec(sys.argv[1])
"""
ORDINARY = CHILD.format(first="")
DEAF = CHILD.format(first="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
OF_A_SESSION_OF_ITS_OWN = CHILD.format(first="'setsid'")


def started(ending: str, *programs: str, mark: str = "") -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Start a driver that starts these programs, and return it with them."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, ending, *programs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK_VARIABLE: mark},
        start_new_session=True,
    )
    assert driver.stdout is not None
    return driver, [psutil.Process(int(driver.stdout.readline())) for _ in programs]


def runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def bystander() -> Iterator[psutil.Process]:
    """A process that is nobody's of these."""
    with subprocess.Popen([sys.executable, "-c", ORDINARY], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield psutil.Process(process.pid)
        process.kill()


@pytest.mark.parametrize("ending", ["sys.exit(0)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
@pytest.mark.parametrize("program", [ORDINARY, OF_A_SESSION_OF_ITS_OWN], ids=["its session", "a session of its own"])
def test_what_a_driver_leaves_ends_however_the_driver_ended(
    tmp_path: Path, bystander: psutil.Process, ending: str, program: str
) -> None:
    drivers = DriverProcesses(spec=spec(), uri=str(tmp_path), settings=Settings(), cores=1, state_folder=tmp_path)
    process, (left,) = started(ending, program, mark=mark_of(KEY, 1))
    with process:
        process.wait()
        assert runs(left)
        drivers._started[KEY, 1] = process  # type: ignore[assignment]

        drivers.observe(KEY, 1)

    assert not runs(left)
    assert runs(bystander)


def test_what_a_driver_leaves_ends_with_the_run(tmp_path: Path) -> None:
    drivers = DriverProcesses(spec=spec(), uri=str(tmp_path), settings=Settings(), cores=1, state_folder=tmp_path)
    process, left = started("signal = input()", ORDINARY, OF_A_SESSION_OF_ITS_OWN, mark=mark_of(KEY, 1))
    with process:
        drivers._started[KEY, 1] = process  # type: ignore[assignment]

        drivers.stop_all()

    assert not any(map(runs, left))


def test_what_does_not_end_when_asked_is_killed() -> None:
    process, (left,) = started("sys.exit(0)", DEAF)
    with process:
        process.wait()

        end_leftovers(process.pid, "none", patience_s=0)

    assert psutil.wait_procs([left], timeout=patience(60))[1] == [] or left.status() == psutil.STATUS_ZOMBIE


def test_what_ends_when_asked_is_not_killed(tmp_path: Path) -> None:
    told = tmp_path / "told"
    program = CHILD.format(first=f"signal.signal(signal.SIGTERM, lambda *_: (open({str(told)!r}, 'w').close(), os._exit(0)))")
    process, _ = started("sys.exit(0)", program)
    with process:
        process.wait()

        end_leftovers(process.pid, "none", patience_s=60)

    assert told.exists()
