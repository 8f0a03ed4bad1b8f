"""Processes as the kernel tells of them in /proc, by their ids of the outside. One that is gone has none, which is no error."""

import contextlib
import os
import signal
from pathlib import Path


def with_variable(name: str, value: str) -> list[int]:
    """Those that were started with this in their environment; ended ones that nobody has waited for yet do not count."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if environment(pid).get(name) == value]


def environment(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    return dict(part.partition("=")[::2] for part in raw.decode(errors="replace").split("\0"))


def has_ended(pid: int) -> bool:
    """Whether the last of its threads has. Until then its sockets are open, although it has no environment any more."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    said = dict(line.partition(":")[::2] for line in lines)
    return said["State"].split()[0] in ("Z", "X") and int(said["Threads"]) <= 1


def executable(pid: int) -> str:
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).name
    except OSError:
        return ""


def inner_pid(pid: int) -> int | None:
    """The process's id in its own PID namespace; None if it has none of its own."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    ids = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
    return int(ids[-1]) if len(ids) > 1 else None


def kill(pid: int, signal_number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal_number)
