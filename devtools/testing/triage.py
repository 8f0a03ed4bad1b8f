"""What is known of tests that failed: each is run alone, three times. It changes no result; it tells where to look first.

FAILS ALONE     the test or the code is broken
PASSES ALONE    it depends on load, on the order of the tests or on those beside it
SOMETIMES       it depends on luck
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

TIMES: Final = 3
SECONDS: Final = 8 * 60.0
LAST_LINES: Final = 12

#: Runs a test once within so many seconds; whether it passed, and what it printed.
RunOnce = Callable[[str, float], tuple[bool, str]]


def triage(names: Sequence[str], run_once: RunOnce, say: Callable[[str], None], clock: Callable[[], float]) -> None:
    """Say of each failed test how it does alone. Tests for which no time is left are named, too."""
    until = clock() + SECONDS
    for name in names:
        results: list[tuple[bool, str]] = []
        while len(results) < TIMES and clock() < until:
            results.append(run_once(name, until - clock()))
        say(f"{_verdict([passed for passed, _ in results])}  {name}")
        for output in [output for passed, output in results if not passed][-1:]:
            say("\n".join(f"    {line}" for line in output.splitlines()[-LAST_LINES:]))


def _verdict(passed: Sequence[bool]) -> str:
    if not passed:
        return "NOT TRIED (no time was left)"
    word = "PASSES ALONE" if all(passed) else "SOMETIMES" if any(passed) else "FAILS ALONE"
    return f"{word} ({sum(passed)} of {len(passed)} passed)"


def run_alone(name: str, seconds: float) -> tuple[bool, str]:
    """Run a test in a process of its own; one that has not ended in time has not passed."""
    command = [sys.executable, "-m", "pytest", "--quiet", "--numprocesses=0", name]
    # Options meant for the whole run, such as a file for its report, would write over what that run wrote.
    environment = {variable: value for variable, value in os.environ.items() if variable != "PYTEST_ADDOPTS"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return False, f"it did not end within {seconds:.0f} s"
    return done.returncode == 0, done.stdout


def main(names: Sequence[str]) -> None:
    print(f"\nEach test that failed, alone, up to {TIMES} times ({SECONDS / 60:.0f} minutes at most):", flush=True)
    triage(names, run_alone, lambda text: print(text, flush=True), time.monotonic)
