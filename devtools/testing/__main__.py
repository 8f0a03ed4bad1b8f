"""Runs pytest with the arguments given; after a red run, the tests that failed are looked at one by one. The result stays red."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from devtools.testing import failed, triage


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "failed.txt"
        command = [sys.executable, "-m", "pytest", "-p", failed.__name__, *arguments]
        code = subprocess.run(command, env={**os.environ, failed.VARIABLE: str(file)}, check=False).returncode
        names = file.read_text().splitlines() if file.exists() else []
    if names:
        triage.main(names)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
