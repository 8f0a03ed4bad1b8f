"""Properties that Spark cannot take, given to Spark itself: it is its words by which they are told from other failures."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from checkpoint_protocol import reasons

pytestmark = pytest.mark.spark

WRONG = {"spark.speculation": "perhaps", "spark.rpc.askTimeout": "soon", "spark.executor.memory": "lots"}
#: In a process of its own, as the tests share one JVM, which has a context.
DRIVER = """
import json, sys
from pyspark import SparkConf, SparkContext
from checkpoint_work.tasks.failures import of_spark

for name, value in json.loads(sys.argv[1]).items():
    try:
        SparkContext(conf=SparkConf().setMaster("local[1]").setAppName("wrong").set(name, value))
    except Exception as error:
        told = of_spark(error, {name: value})
        print(json.dumps([told.reason, told.message]))
"""


def test_each_property_that_spark_cannot_take_is_the_manifests_fault_and_named_with_its_value() -> None:
    ran = subprocess.run([sys.executable, "-c", DRIVER, json.dumps(WRONG)], stdout=subprocess.PIPE, check=True)

    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [reason for reason, _ in told] == [reasons.MANIFEST_INVALID] * len(WRONG)
    for (name, value), (_, message) in zip(WRONG.items(), told, strict=True):
        assert message.startswith(f"spec.sparkConf: {name}: {value!r} is n")
