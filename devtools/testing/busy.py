"""Runs a command beside four processes that keep the same CPUs busy: `python -m devtools.testing.busy COMMAND...`"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

LOOPS: Final = 4
#: It ends with its parent, also with one that was killed.
_LOOP: Final = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


def main(command: list[str]) -> int:
    """Return the command's exit code. The loops end with it, however it ends."""
    # Where the command is bound to some CPUs by taskset, the loops are too.
    bound = command[: command.index("--cpu-list") + 2] if "--cpu-list" in command else []
    loops = [subprocess.Popen([*bound, sys.executable, "-I", "-S", "-c", _LOOP]) for _ in range(LOOPS)]
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
