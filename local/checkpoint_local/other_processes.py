"""Other processes of this machine: whether one runs, and the end of those that a driver has left behind."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import psutil

#: Each process that a driver starts inherits this variable, also one that begins a session of its own.
MARK_VARIABLE: Final = "CHECKPOINTED_WRITE_DRIVER"
_PATIENCE_S: Final = 5.0
_LOOK_S: Final = 0.02

State = Literal["running", "stopped", "gone", "unknown"]

#: The fields of /proc/<pid>/stat after the name in parentheses: the state is the first, the start time the twentieth.
_STATE, _START = 0, 19


def end_leftovers(
    session: int,
    mark: str,
    patience_s: float = _PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """End the processes of a driver that has ended: those of its session, which has its pid, and those with its mark.

    These are the processes of steps, which would wait for work for ever. They are asked first, by SIGTERM: Java removes its
    temporary files then. Those that stay are killed.
    """
    left = [process for process in psutil.process_iter() if _is_of(process, session, mark)]
    _signal(left, psutil.Process.terminate)
    end = clock() + patience_s
    while (left := [process for process in left if _runs(process)]) and clock() < end:
        sleep(_LOOK_S)
    _signal(left, psutil.Process.kill)


def _is_of(process: psutil.Process, session: int, mark: str) -> bool:
    try:
        if process.pid == os.getpid() or not _runs(process):
            return False
        return os.getsid(process.pid) == session or process.environ().get(MARK_VARIABLE) == mark
    except (psutil.Error, OSError):  # it has ended, or is another user's
        return False


def _runs(process: psutil.Process) -> bool:
    """Whether a process has not ended. One that nobody waits for stays as a zombie, and harms nobody."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _signal(processes: list[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        try:
            send(process)
        except psutil.Error:
            continue


def state_of(pid: int, started: str | None) -> State:
    """Return the state of a process; "gone" also if the number is another one's by now."""
    if not Path("/proc/self/stat").exists():
        return _state_by_ps(pid)
    fields = _fields_of(pid)
    if fields is None or (started is not None and fields[_START] != started) or fields[_STATE] in "ZX":
        return "gone"
    return "stopped" if fields[_STATE] in "Tt" else "running"


def start_of(pid: int) -> str | None:
    """Return when a process was started, in the system's own words; None where it does not say."""
    fields = _fields_of(pid)
    return fields[_START] if fields is not None else None


def _fields_of(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name may have spaces and parentheses in it.
    return text.rpartition(")")[2].split()


def _state_by_ps(pid: int) -> State:
    try:
        said = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    if not said.stdout.strip():
        return "gone"
    return "stopped" if said.stdout.strip()[0] == "T" else "running"
