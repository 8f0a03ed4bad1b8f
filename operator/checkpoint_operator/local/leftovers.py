"""What a driver has started ends with it, however it ended: the processes of steps, which would wait for work for ever."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

import psutil

#: Each process that a driver starts inherits this variable, also one that begins a session of its own.
MARK_VARIABLE: Final = "CHECKPOINTED_WRITE_DRIVER"
_PATIENCE_S: Final = 5.0
_LOOK_S: Final = 0.02


def end_leftovers(
    session: int,
    mark: str,
    patience_s: float = _PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """End the processes of a driver that has ended: those of its session, which has its pid, and those with its mark.

    They are asked first, by SIGTERM: Java removes its temporary files then. Those that stay are killed.
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
