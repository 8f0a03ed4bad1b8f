"""The image's executor against a real driver. Spark's standalone cluster stands for Kubernetes: drivers are the same in both.

The variables are made as BasicExecutorFeatureStep makes them; that Kubernetes sets them is for the tests with a cluster.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from devtools.ports import free_port
from devtools.spark_classes import spark_classes
from devtools.spark_cluster import SparkCluster

pytestmark = pytest.mark.spark

#: Asks for executors that are too large for the cluster's workers, so that only ours can run the job.
DRIVER = """
import os, shlex, subprocess, sys
from pyspark import SparkConf, SparkContext

master, port, log = sys.argv[1:]
conf = {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.port": port,
    "spark.executor.memory": "8g", "spark.ui.enabled": "false", "spark.executor.extraJavaOptions": "-Dgreeting='hello  pod'",
}
context = SparkContext(conf=SparkConf().setMaster(master).setAppName("pod").setAll(list(conf.items())))
options = shlex.split(context.getConf().get("spark.executor.extraJavaOptions")) + [f"-Dspark.driver.port={port}"]
environment = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")} | {
    "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
    "SPARK_EXECUTOR_ID": "77", "SPARK_EXECUTOR_CORES": "1", "SPARK_EXECUTOR_MEMORY": "600m",
    "SPARK_APPLICATION_ID": context.applicationId, "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "pod-exec-77",
    "SPARK_CONF_DIR": "/opt/spark/conf",
} | {f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(options)}
command = [sys.executable, "-m", "checkpoint_spark.pod", "executor"]
with open(log, "wb") as file:
    executor = subprocess.Popen(command, env=environment, stdout=file, stderr=file)

def look(_):
    import checkpoint_spark, pyarrow
    with open(f"/proc/{os.getppid()}/stat") as stat:
        jvm = int(stat.read().rpartition(")")[2].split()[1])
    with open(f"/proc/{jvm}/cmdline") as command, open(f"/proc/{jvm}/maps") as maps:
        return jvm, command.read().split(chr(0)), "/spark-classes.jsa" in maps.read()

print("ready", flush=True)
jvm, command, from_archive = context.parallelize([1], 1).map(look).collect()[0]
assert jvm == executor.pid, (jvm, executor.pid)
assert "-Dgreeting=hello  pod" in command, command
assert from_archive, "Java did not take the class data"
assert len([option for option in command if option == "--add-opens=java.base/java.lang=ALL-UNNAMED"]) == 1, command
context.stop()
print("ended with", executor.wait(30), flush=True)
"""


def test_an_executor_of_the_image_joins_its_driver_runs_tasks_and_ends_with_it(tmp_path: Path) -> None:
    spark_classes()
    log = tmp_path / "executor.log"
    with SparkCluster(tmp_path / "cluster", {}) as cluster:
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, cluster.master, str(free_port()), str(log)],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}\n{log.read_text()[-3000:] if log.exists() else ''}"
    assert "ended with 0" in done.stdout
