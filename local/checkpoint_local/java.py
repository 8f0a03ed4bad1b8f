"""The Java that Spark needs, and another Spark that a shell's environment names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
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


# What a shell's environment says of another Spark than the one that is installed here. Drivers of this machine do not see it.
#
# They are started with the Spark that this Python has: the jars, the scripts and the settings of another version, or a session at
# a server, fail in ways that name neither.


#: Read by pyspark, by the scripts in its bin/, or by Spark's launcher. Those that only say how much, or where to put files that
#: are temporary (SPARK_LOCAL_DIRS), are not among them.
_OF_ANOTHER_SPARK: Final = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_PREPEND_CLASSES",
    "SPARK_TESTING",
    "SPARK_REMOTE",
    "SPARK_LOCAL_REMOTE",
    "SPARK_API_MODE",
    "SPARK_CONNECT_MODE",
    "SPARK_CONNECT_MODE_ENABLED",
    "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_GATEWAY_SECRET",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
)


def without_another_spark(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without these variables, and without packages of that Spark in PYTHONPATH."""
    kept = {name: value for name, value in environment.items() if name not in _OF_ANOTHER_SPARK}
    home = environment.get("SPARK_HOME")
    if home and kept.get("PYTHONPATH") and not _is_ours(home):
        entries = kept["PYTHONPATH"].split(os.pathsep)
        kept["PYTHONPATH"] = os.pathsep.join(entry for entry in entries if not _is_below(entry, home))
    return kept


def notice(environment: Mapping[str, str]) -> str | None:
    """Say which variables do not count; None where none is set, or only the home of the Spark that is used anyway."""
    names = [name for name in _OF_ANOTHER_SPARK if environment.get(name)]
    if environment.get("SPARK_HOME") and _is_ours(environment["SPARK_HOME"]):
        names.remove("SPARK_HOME")
    if not names:
        return None
    return f"note: these variables lead to another Spark, and are kept from drivers on this machine: {', '.join(names)}"


def _is_ours(home: str) -> bool:
    """Whether this folder is the home of the pyspark that is installed with this Python, or holds it."""
    try:
        ours = os.path.realpath(str(distribution("pyspark").locate_file("pyspark")))
    except PackageNotFoundError:
        return True  # what comes with SPARK_HOME is all that there is
    return _is_below(ours, home)


def _is_below(path: str, folder: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
