"""What Python workers are when they are forked from our daemon, in a real Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import patience

pytestmark = [pytest.mark.slow, pytest.mark.spark]

DRIVER = """
import json, os, sys
from pyspark import SparkConf, SparkContext
from checkpoint_spark.process import python_workers

def look(numbers):
    watched = ("pandas", "pyiceberg.io.pyarrow", "checkpoint_work.tasks.executor", "lance")
    loaded = [name for name in watched if name in sys.modules]
    looked_into = [*sys.path, *sys.path_importer_cache]
    archives = [part for part in looked_into if part.endswith((".zip", ".jar")) and "pyspark" in part]
    import time
    import numpy
    drawn = numpy.random.random()
    # Each waits until the other is there, so that each is in a worker of its own.
    there = os.path.join(FOLDER, "there")
    os.makedirs(there, exist_ok=True)
    open(os.path.join(there, str(os.getpid())), "w").close()
    while len(os.listdir(there)) < 2:
        time.sleep(0.01)
    return [[os.getpid(), os.getppid(), loaded, archives, drawn]]

FOLDER = sys.argv[1]
conf = python_workers.conf({"spark.ui.enabled": "false"})
context = SparkContext(conf=SparkConf().setMaster("local[2]").setAppName("x").setAll(list(conf.items())))
print(json.dumps(context.parallelize([1, 2], 2).mapPartitions(look).collect()))
context.stop()
"""


def test_workers_begin_with_what_tasks_import_and_each_with_its_own_random_numbers(tmp_path: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}

    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
        env=environment,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    one, other = json.loads(done.stdout)
    assert one[0] != other[0]
    assert one[1] == other[1], "both were forked from one daemon"
    assert one[2] == other[2] == ["pandas", "pyiceberg.io.pyarrow", "checkpoint_work.tasks.executor"]
    assert one[3] == other[3] == []
    assert one[4] != other[4]
