"""A limit to the memory of a step process, so that a step which takes too much fails before it takes its container with it.

The kernel ends a whole container that goes beyond its limit (Kubernetes sets memory.oom.group), with the task and its segment. A
process with RLIMIT_DATA gets no more from malloc or mmap instead, which in Python is a MemoryError. RLIMIT_AS would count address
space that is only reserved, of which CUDA and threads take much more than there is memory.
"""

from __future__ import annotations

import re
import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

#: Of what is left, for Spark's other processes in the container.
_SHARE: Final = 0.9
_ROOT: Final = Path("/")


def left_bytes(root: Path = _ROOT) -> int | None:
    """Return how much memory this container or machine has left, counting what can be had back; None where nobody says."""
    left = [number for number in (_left_on_machine(root), *_left_in_groups(root)) if number is not None]
    return max(0, min(left)) if left else None


def limit_memory(root: Path = _ROOT) -> int | None:
    """Let this process take most of what is left, beside what it has; return how much that is. None: there is no limit."""
    left, has = left_bytes(root), _field(_text(root / "proc/self/status"), "VmData:")
    if left is None or has is None:
        return None
    more = int(left * _SHARE)
    with suppress(ValueError, OSError):  # beyond a hard limit, which is one already
        resource.setrlimit(resource.RLIMIT_DATA, (has + more, resource.getrlimit(resource.RLIMIT_DATA)[1]))
        return more
    return None


def be_ended_first(root: Path = _ROOT) -> None:
    """Ask the kernel to end this process before all others where memory is short, if it is to end one."""
    with suppress(OSError):
        (root / "proc/self/oom_score_adj").write_text("1000")


def _left_on_machine(root: Path) -> int | None:
    text = _text(root / "proc/meminfo")
    available, swap = _field(text, "MemAvailable:"), _field(text, "SwapFree:")
    return None if available is None else available + (swap or 0)


def _left_in_groups(root: Path) -> list[int | None]:
    """Return what the control groups of this process leave: in a container its own group is the root of what it sees."""
    of_self = _text(root / "proc/self/cgroup")
    found: list[int | None] = []
    second, first = root / "sys/fs/cgroup", root / "sys/fs/cgroup/memory"
    for line in of_self.splitlines():
        _, controllers, path = line.split(":", 2)
        own = path.strip().lstrip("/")
        if not controllers:
            found += [_left(folder, "memory.max", "memory.current", "inactive_file") for folder in {second, second / own}]
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            found += [_left(folder, *names) for folder in {first, first / own}]
    return found


def _left(folder: Path, limit_name: str, used_name: str, cache_name: str) -> int | None:
    limit, used = _number(folder / limit_name), _number(folder / used_name)
    if limit is None or used is None:
        return None
    cached = re.search(rf"^{cache_name} (\d+)$", _text(folder / "memory.stat"), re.MULTILINE)
    return limit - used + (int(cached[1]) if cached else 0)


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _field(text: str, name: str) -> int | None:
    """Return a figure that /proc gives in KiB, in bytes."""
    found = re.search(rf"^{name}\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
