"""Processes of a figure: run with a time limit, and found again when they have to end, also those that left their parents.

A process is known by a word in its environment, which all that it starts inherit: Ray's and Spark's helpers begin sessions of
their own and outlive the one who asked for them.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import psutil

VARIABLE: Final = "CHECKPOINTED_WRITES_BENCH"


class Failed(Exception):
    """A process of a figure failed or did not end in time; the message has the end of what it said."""


def start(
    command: Sequence[str], word: str, log: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, known by a word; its output is appended to a log, or goes where ours goes."""
    # A word of a figure and one of a process inside it: whoever ends the figure ends what it started.
    words = f"{os.environ.get(VARIABLE, '')} {word}".strip()
    known = {**os.environ, **(environment or {}), VARIABLE: words}
    with log.open("ab") if log else nullcontext() as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=known, start_new_session=True
        )


def finish(process: subprocess.Popen[bytes], word: str, patience_s: float, log: Path | None = None) -> None:
    """Wait for its good end. Raises Failed otherwise, and leaves nothing of it running."""
    try:
        code = process.wait(patience_s)
    except BaseException as error:
        kill_all(word)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Failed(f"did not end within {patience_s:.0f} s{_end_of(log)}") from None
        raise
    if code != 0:
        kill_all(word)
        raise Failed(f"ended with {code}{_end_of(log)}")


def kill_all(word: str, patience_s: float = 10.0) -> int:
    """Send SIGKILL to every process known by the word until there is none; return how many there were."""
    killed: set[int] = set()
    until = time.monotonic() + patience_s
    while found := known_by(word):
        for process in found:
            killed.add(process.pid)
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        if time.monotonic() > until:
            raise Failed(f"processes {[process.pid for process in found]} do not end")
        time.sleep(0.02)
    return len(killed)


def known_by(word: str) -> list[psutil.Process]:
    """Return the living processes that have the word in their environment, and all below them; never this one.

    Those below are asked for by their parents, since Ray's workers write a title over their environment.
    """
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and word in process.environ().get(VARIABLE, "").split():
                for one in (process, *process.children(recursive=True)):
                    if one.status() != psutil.STATUS_ZOMBIE:
                        found[one.pid] = one
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return list(found.values())


def _end_of(log: Path | None) -> str:
    return f":\n{log.read_text(errors='replace')[-3000:]}" if log is not None and log.exists() else ""
