"""Running go, mvn and java: found in one place, quiet when they succeed, their last words in the error when they fail."""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

BUILD_SECONDS = 1200
FETCH_TRIES = 3
#: In seconds, between them.
FETCH_PAUSE = 5.0


class BuildToolFailed(Exception):
    pass


class BuildToolMissing(BuildToolFailed):
    """This machine lacks a tool, and so cannot run the tests that need what it makes."""


def find(name: str) -> str:
    """JAVA_HOME wins over PATH for Java's own tools, as Maven and Spark have it."""
    java_home = os.environ.get("JAVA_HOME")
    if java_home and name in ("java", "javac"):
        inside = Path(java_home) / "bin" / name
        if inside.is_file():
            return str(inside)
    found = shutil.which(name)
    if found is None:
        raise BuildToolMissing(
            f"the test services need `{name}` on the PATH (JDK 17 or later, Maven 3, Go 1.25 or later, Node.js 20 or later)"
        )
    return found


def fetch(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pause: float = FETCH_PAUSE,
) -> None:
    """Run a command that asks package registries, up to three times, as networks have hiccups.

    The command must bear to be run again after any end.
    """
    for tried in range(1, FETCH_TRIES + 1):
        try:
            run(command, environment=environment, cwd=cwd)
            break
        except BuildToolFailed as failed:
            if tried == FETCH_TRIES:
                raise BuildToolFailed(f"tried {tried} times; a package registry may be out of reach: {failed}") from failed
            time.sleep(pause)


def run(command: Sequence[str], *, environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise BuildToolFailed(f"{Path(command[0]).name} did not end within {BUILD_SECONDS} s") from late
    if done.returncode != 0:
        raise BuildToolFailed(f"{Path(command[0]).name} ended with {done.returncode}:\n{done.stdout[-4000:]}")
