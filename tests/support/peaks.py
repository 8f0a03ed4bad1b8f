"""How much more memory a piece of work takes at its peak, each measured in a process of its own.

    peaks("tests.contract.hostile_records", "CASES")

A process imports a module once, and forks for each of the functions that a dictionary of it names.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

_ROOT: Final = Path(__file__).parents[2]


class Peak(NamedTuple):
    """What a function took above what the process had, in megabytes, and what it returned."""

    megabytes: float
    returned: str


def peaks(module: str, name: str) -> dict[str, Peak]:
    """Return the peak of each function of a dictionary in a module: functions without arguments that return a text."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.support.peaks", module, name]
        environment = {**os.environ, "TMPDIR": folder}
        ran = subprocess.run(command, cwd=_ROOT, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return {case: Peak(*found) for case, found in json.loads(ran.stdout).items()}


def _megabytes(what: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) / 1024


def _measure(work: Callable[[], str]) -> Peak:
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        before = _megabytes("VmRSS")
        try:
            told = work()
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps([_megabytes("VmHWM") - before, told[:400]]).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as told_by_child:
        return Peak(*json.loads(told_by_child.read() or b'[1e9, "it was killed"]'))


def main() -> None:
    module, name = sys.argv[1:]
    cases: Mapping[str, Callable[[], str]] = getattr(importlib.import_module(module), name)
    sys.stdout.write(json.dumps({case: _measure(work) for case, work in cases.items()}))


if __name__ == "__main__":
    main()
