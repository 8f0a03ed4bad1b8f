"""Spark's daemon of Python workers, which has imported what tasks need before it forks the first worker.

    spark.python.daemon.module=checkpoint_spark.process.python_workers

An executor forks a Python worker for each of its cores from one daemon. From Spark's own daemon each of them begins with nothing
but pyspark, so they import the same thousands of modules at the same time, seconds of every core, and each keeps a copy of its
own. Forked from this one they begin with all of it, in memory that they share.

Spark also puts archives of its own before everything else on Python's import path: pyspark as sources, which are compiled at
every start, and a jar. Python lists both anew before each task (importlib.invalidate_caches), which is a quarter of a second of
every task. Where the same pyspark is installed as a package, they are left out.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from checkpoint_spark.process.class_data import home_of_spark

#: Not Lance, whose runtime does not live through a fork. Pandas comes with pyarrow's datasets, and those with pyiceberg.
_NEEDED_BY_TASKS: Final = (
    "checkpoint_work.tasks.executor",
    "checkpoint_spark.dataframes.tasks",
    "checkpoint_formats.iceberg.stager",
)


def main() -> None:
    """Become the daemon: Spark speaks to it by its standard input and output."""
    home = home_of_spark(os.environ)
    if home is not None:
        leave_out(set(sys.path) - set(without_archives(sys.path, home)))
    _import_ahead()
    from pyspark.daemon import manager

    # Else all workers would draw the same numbers from the generator that numpy made at its import. Python's own is seeded anew.
    os.register_at_fork(after_in_child=_seed_numpy)
    # What is here now stays for good: no worker looks through it for garbage, which would also copy the pages that it shares.
    gc.freeze()
    manager()


def without_archives(path: Sequence[str], home: Path) -> list[str]:
    """Return the import path without the archives in Spark's home, if that is a package's folder, found without them."""
    home = home.resolve()
    rest = [part for part in path if not (Path(part).is_file() and Path(part).resolve().is_relative_to(home))]
    is_installed = any((Path(part) / "pyspark").resolve() == home for part in rest)
    has_py4j = any((Path(part) / "py4j").is_dir() for part in rest)
    return rest if is_installed and has_py4j else list(path)


def leave_out(archives: Collection[str]) -> None:
    """Import nothing from these any more. Python also lists anew what it has looked into before, if it is on the path or not."""
    sys.path[:] = [part for part in sys.path if part not in archives]
    for archive in archives:
        sys.path_importer_cache.pop(archive, None)


def conf(given: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's properties with this daemon, if the user has named no other, and with a note of each worker's last step."""
    return {
        "spark.python.daemon.module": "checkpoint_spark.process.python_workers",
        # A worker that dies without an exception leaves a file, which Spark relays: checkpoint_spark/process/last_call.py.
        "spark.python.worker.faulthandler.enabled": "true",
        **given,
    }


def _seed_numpy() -> None:
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _import_ahead() -> None:
    # Spark reads a port from our standard output.
    with contextlib.redirect_stdout(sys.stderr):
        for name in _NEEDED_BY_TASKS:
            # The task that needs it will say what is wrong, in the place where errors of tasks are read.
            with contextlib.suppress(Exception):
                importlib.import_module(name)


if __name__ == "__main__":
    main()
