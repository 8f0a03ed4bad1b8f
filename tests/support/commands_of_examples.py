"""The commands that the first comment of an example tells people to type."""

from __future__ import annotations

import re
import shlex
from pathlib import Path


def commands_of(example: Path) -> list[list[str]]:
    """Return the commands, each as its words."""
    lines = re.findall(r"^#   (\S.*?)(?:  +# .*)?$", example.read_text(), re.MULTILINE)
    return [shlex.split(line) for line in lines]
