"""docs/quick-start.md, typed from top to bottom: its commands, in their order, and what they print."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path
from typing import Final

import psutil
import pytest

from examples.prepare_data import packaged
from tests.end_to_end.test_documented_blocks import ROOT, Clone
from tests.support.waiting import patience, until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE: Final = "docs/quick-start.md"
RUN: Final = ".venv/bin/checkpointed-write run examples/flights-lance.yaml"
KILL: Final = "kill -9"
#: A quarter of the flights: enough that rows are left when the first are sealed.
BYTES: Final = 8_000_000
_BLOCK: Final = re.compile(r"```(console|text)\n(.*?)```", re.DOTALL)


def put_flights(clone: Clone) -> None:
    with zipfile.ZipFile(packaged("flights.csv.zip")) as archive, archive.open("flights.csv") as packed:
        beginning = packed.read(BYTES)
    (clone.folder / "examples" / "data" / "flights.csv").write_bytes(beginning[: beginning.rindex(b"\n") + 1])


def pattern(line: str) -> str:
    """Return a pattern for a line: numbers, keys and what a page leaves out differ from run to run."""
    parts = re.split(r"([0-9a-f]{16}/1|\d[\d,.]*|\.\.\.)", " ".join(line.split()))
    return "".join(".+" if number % 2 else re.escape(part) for number, part in enumerate(parts))


def check(text: str, printed: str, clone: Clone) -> int:
    """Check that what the page shows was printed; return how many lines that were."""
    # How far an attempt is at some moment is seen by chance.
    lines = [line for line in text.splitlines() if line and not re.match(r"attempt \d+ \(", line)]
    joined = re.sub(r"[ \t]+", " ", printed.replace(str(clone.folder), "/home/me/clone"))
    for line in lines:
        assert re.search(pattern(line), joined), f"{line!r} is not in\n{printed}"
    return len(lines)


def run_and_kill(clone: Clone, run: str, kill: str) -> str:
    """Run a command, and kill those below it that the page's pgrep finds; the whole machine has drivers of others, too."""
    (words,) = re.findall(r"pgrep -f (\S+)\)", kill)
    output = clone.folder / "run.txt"
    with output.open("wb") as file:
        running = subprocess.Popen(run.split(), cwd=clone.folder, env=clone.environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        before = seals(clone)
        until(lambda: seals(clone) > before or running.poll() is not None, "sealed rows", report=output.read_text)
        below = psutil.Process(running.pid).children(recursive=True)
        found = [process for process in below if words in " ".join(process.cmdline())]
        assert found, f"{words} finds none of {[process.cmdline() for process in below]}\n{output.read_text()}"
        for process in found:
            process.kill()
        assert running.wait(patience(120)) == 0, output.read_text()
    finally:
        if running.poll() is None:
            for process in psutil.Process(running.pid).children(recursive=True):
                process.kill()
            running.kill()
            running.wait()
    return output.read_text()


def seals(clone: Clone) -> int:
    return len(list((clone.folder / "examples" / "output" / "checkpoints").glob("staged/*/*/*/seals/*/*.json")))


def test_the_quick_start_is_followed_from_top_to_bottom(tmp_path: Path) -> None:
    (tmp_path / "clone").mkdir()
    clone = Clone(tmp_path / "clone")
    put_flights(clone)
    blocks = _BLOCK.findall((ROOT / PAGE).read_text())
    printed, waiting, checked = "", "", 0
    for language, text in blocks:
        if language == "text":
            checked += check(text, printed, clone)
            continue
        printed = ""
        for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
            if line == RUN:
                waiting = line
            elif line.startswith(KILL):
                printed += run_and_kill(clone, waiting, line)
            else:
                printed += clone.run(line)

    assert checked >= 20
    assert not (clone.folder / "examples" / "output").exists(), "make clean"
