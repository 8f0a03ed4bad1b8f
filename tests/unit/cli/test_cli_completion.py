"""Shells complete the command with the lines that docs/guides/commands.md shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

GUIDE: Final = (Path(__file__).parents[3] / "docs" / "guides" / "commands.md").read_text()
LINES: Final = re.findall(r"(_\w+_COMPLETE)=(\w+)_source", GUIDE)
#: As the installed command is called, whose name tells the variable.
CALLED: Final = "import sys; sys.argv[0] = 'checkpointed-write'; from checkpoint_local.cli.entry import main; main()"


def complete(variable: str, value: str, **more: str) -> str:
    environment = {**os.environ, variable: value, **more}
    done = subprocess.run([sys.executable, "-c", CALLED], env=environment, capture_output=True, text=True, check=False)
    return done.stdout


@pytest.mark.parametrize(("variable", "shell"), LINES)
def test_each_shell_of_the_guide_completes_commands(variable: str, shell: str) -> None:
    words = {"COMP_WORDS": "checkpointed-write fa", "COMP_CWORD": "fa" if shell == "fish" else "1"}

    assert f"{variable}={shell}_complete" in complete(variable, f"{shell}_source")
    assert "failed" in complete(variable, f"{shell}_complete", **words)


def test_the_guide_has_three_shells() -> None:
    assert [shell for _, shell in LINES] == ["bash", "zsh", "fish"]
