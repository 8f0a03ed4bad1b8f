"""One CPU for the simulation: its threads take turns, and handing over between CPUs doubles the time."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def one_cpu() -> Iterator[None]:
    """Keep this thread and those that it starts on one CPU, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    # Of several processes of pytest-xdist, each takes another.
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.sched_setaffinity(0, {sorted(allowed)[(number + os.getppid()) % len(allowed)]})
    yield
    os.sched_setaffinity(0, allowed)
