"""Waiting for what other processes and threads do: one helper for all tests, patient, that tells why it may have been in vain."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

#: By how much all patience is multiplied: a wait that succeeds costs none of it.
VARIABLE: Final = "CHECKPOINTED_WRITES_PATIENCE"
_MULTIPLE: Final = float(os.environ.get(VARIABLE, "6"))
#: The time limits of tests hold for this multiple: each leaves room for one wait in vain, which tells more than the limit does.
_MULTIPLE_OF_LIMITS: Final = 3.0
_PRESSURE: Final = Path("/proc/pressure/cpu")

T = TypeVar("T")


class Late(Exception):
    """What was waited for did not come. No AssertionError: nothing was seen to be wrong."""


def patience(seconds: float) -> float:
    """Return how long to wait for what takes this long on a slow machine; for limits of other waiting functions, too."""
    return seconds * _MULTIPLE


def time_limit(seconds: float) -> float:
    """Return how long a test may take as a whole, of so many seconds with little patience."""
    return seconds * max(1.0, _MULTIPLE / _MULTIPLE_OF_LIMITS)


def until(
    condition: Callable[[], T],
    what: str = "the condition",
    seconds: float = 60.0,
    every: float = 0.05,
    report: Callable[[], str] = lambda: "",
) -> T:
    """Wait until `condition` gives something true; return that.

    Raises Late after `patience(seconds)`, with `report()`, and with what tells a slow machine from a broken product: its load,
    and for how long this process did not get to run at all.
    """
    started = last = time.monotonic()
    gap = 0.0
    while not (found := condition()):
        now = time.monotonic()
        # Of these, `every` is our own pause, and the rest mostly the condition's.
        gap, last = max(gap, now - last), now
        if now - started > patience(seconds):
            raise Late(f"waited {now - started:.0f} s in vain for {what}; {_machine()}; longest turn {gap:.1f} s\n{report()}")
        time.sleep(every)
    return found


def wait(event: threading.Event, what: str, seconds: float = 60.0) -> None:
    """Wait until an event is set."""
    if not event.wait(patience(seconds)):
        raise Late(f"waited {patience(seconds):.0f} s in vain for {what}; {_machine()}")


def _machine() -> str:
    load = "/".join(f"{load:.1f}" for load in os.getloadavg())
    pressure = _PRESSURE.read_text().split("\n")[0] if _PRESSURE.exists() else "unknown"
    return f"load {load} on {os.cpu_count()} CPUs, CPU pressure {pressure}"
