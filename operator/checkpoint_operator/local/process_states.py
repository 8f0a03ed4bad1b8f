"""Whether another process of this machine runs, is stopped, or is gone. Asked of the system, for people and for who waits."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Literal

State = Literal["running", "stopped", "gone", "unknown"]

#: The fields of /proc/<pid>/stat after the name in parentheses: the state is the first, the start time the twentieth.
_STATE, _START = 0, 19


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
