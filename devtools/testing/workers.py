"""How many test processes a machine bears: `python -m devtools.testing.workers` prints the number.

One more than there are CPUs, as tests mostly wait for servers and for Spark. Each has a Java of its own beside it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import psutil

#: What overrides it.
VARIABLE: Final = "WORKERS"
MOST: Final = 5
BYTES_EACH: Final = 3 << 30
_QUOTA_V2: Final = Path("/sys/fs/cgroup/cpu.max")
_QUOTA_V1: Final = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def number_of_workers(cpus: int, quota: float | None, memory: int) -> int:
    """Return a number for a machine with so many CPUs, of which a container may use `quota`, and so many bytes of memory."""
    usable = cpus if quota is None else min(cpus, max(1, round(quota)))
    return max(1, min(usable + 1, memory // BYTES_EACH, MOST))


def of_this_machine() -> int:
    wanted = os.environ.get(VARIABLE)
    if wanted:
        return int(wanted)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return number_of_workers(cpus, _quota(), psutil.virtual_memory().total)


def _quota() -> float | None:
    """CPUs that this container may use; None where nothing limits it."""
    try:
        if _QUOTA_V2.exists():
            quota, period = _QUOTA_V2.read_text().split()
        else:
            quota, period = (path.read_text().strip() for path in _QUOTA_V1)
        return None if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    print(of_this_machine())
