"""A driver's Java, started with the properties that drivers start with, from Java's class data of Spark."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from devtools.spark_classes import spark_classes
from tests.support.waiting import patience

pytestmark = [pytest.mark.slow, pytest.mark.spark]

DRIVER = """
import os, sys
from pyspark import SparkConf, SparkContext
from checkpoint_spark.process import class_data

given = dict(option.split("=", 1) for option in sys.argv[1:])
conf = class_data.driver_conf(given | {"spark.ui.enabled": "false"}, class_data.home_of_spark(os.environ))
context = SparkContext(conf=SparkConf().setMaster("local[1]").setAppName("x").setAll(list(conf.items())))
with open(f"/proc/{SparkContext._gateway.proc.pid}/maps") as maps:
    print("from the archive" if "/spark-classes.jsa" in maps.read() else "from the jars")
print(context.parallelize([1, 2], 1).sum())
context.stop()
"""


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        # A folder of settings, which comes after the archive's part of the class path, and options of the user's.
        ("spark.driver.extraJavaOptions=-Dx=y -Xlog:disable", "from the archive"),
        ("spark.driver.extraClassPath=/first.jar", "from the jars"),
    ],
)
def test_java_takes_the_class_data_unless_the_user_puts_jars_before_sparks(option: str, expected: str) -> None:
    spark_classes()
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "HADOOP_CONF_DIR": "/etc"}

    done = subprocess.run(
        [sys.executable, "-c", DRIVER, option],
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
        env=environment,
    )

    assert done.stdout.splitlines() == [expected, "3"], done.stderr[-3000:]
