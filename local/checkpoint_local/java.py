"""Whether the Java that Spark needs is here, said in one line before Spark says it in fifty."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

SUPPORTED: Final = (17, 21)
_WAY_OUT: Final = "install Java 17 or 21 (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to one"


def check_java() -> None:
    """Raise NeedsChange if there is no Java, or not one that Spark 4.1 runs on."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise NeedsChange(reasons.JAVA_UNSUITABLE, f"there is no Java{f' in JAVA_HOME={home}' if home else ''}; {_WAY_OUT}")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if found is None or int(found[1]) not in SUPPORTED:
        version = found[1] if found else "an unknown version"
        raise NeedsChange(reasons.JAVA_UNSUITABLE, f"{java} is Java {version}; {_WAY_OUT}")


if __name__ == "__main__":
    # `make run` and `make test` ask before they begin.
    try:
        check_java()
    except NeedsChange as error:
        sys.exit(error.message)
