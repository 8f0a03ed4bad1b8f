"""The page for the first own job, followed word by word in an empty folder: its files, its commands, and what they print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import patience

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "your-own-files.md"
_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
_FAILS = "preview write.yaml --rows 10"  # a row of the page fails, which it says

pytestmark = pytest.mark.spark


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the page with the programs of this environment."""
    program = {"python": [sys.executable], "checkpointed-write": [sys.executable, "-m", "checkpoint_operator.cli.entry"]}[
        words[0]
    ]
    # Columns of what is shown are not to be cut.
    environment = {**os.environ, "COLUMNS": "300", "XDG_STATE_HOME": str(folder / ".state")}
    return subprocess.run(
        [*program, *words[1:]],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=patience(300),
    )


def test_the_page_is_followed_word_by_word(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    printed = ""
    checked = 0
    for language, text in _BLOCK.findall(PAGE.read_text()):
        if named := re.match(r"# (\S+\.(?:py|yaml))\n", text):
            (folder / named[1]).write_text(text)
        elif language == "console":
            printed = ""
            for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
                done = run(shlex.split(line), folder)
                assert done.returncode == (1 if _FAILS in line else 0), f"{line}\n{done.stdout}"
                printed += done.stdout
        elif language == "text" and "pip install" not in text:
            for line in text.replace("{folder}", str(folder)).splitlines():
                assert line in " ".join(printed.split()) or line in printed, f"{line!r} is not in\n{printed}"
                checked += 1
    assert checked >= 10
