"""The image's executor against a real driver. Spark's standalone cluster stands for Kubernetes: drivers are the same in both.

The variables are made as BasicExecutorFeatureStep makes them; that Kubernetes sets them is for the tests with a cluster. Drivers
ask for executors that are too large for the cluster's workers, so that only those that are started here run their tasks.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoint_control.decision.actions import Finish
from checkpoint_local.runner import Report, Runner
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.store.object_store import open_store
from devtools.ports import free_port
from devtools.spark_classes import spark_classes
from devtools.spark_cluster import SparkCluster
from tests.support.checks import assert_exactly_once
from tests.support.places import Place
from tests.support.waiting import patience, until
from tests.support.writes import SCHEMA, manifest_for, write_inputs

pytestmark = [pytest.mark.slow, pytest.mark.spark]

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
command = [sys.executable, "-m", "checkpoint_spark.pods.pod", "executor"]
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
with open(f"/proc/{executor.pid}/task/{executor.pid}/children") as children:
    assert [str(jvm)] == children.read().split(), jvm
assert "-Dgreeting=hello  pod" in command, command
assert from_archive, "Java did not take the class data"
assert len([option for option in command if option == "--add-opens=java.base/java.lang=ALL-UNNAMED"]) == 1, command
context.stop()
print("ended with", executor.wait(30), flush=True)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    spark_classes()
    with SparkCluster(tmp_path_factory.mktemp("cluster"), {}) as cluster:
        yield cluster


def test_an_executor_of_the_image_joins_its_driver_runs_tasks_and_ends_with_it(cluster: SparkCluster, tmp_path: Path) -> None:
    log = tmp_path / "executor.log"
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, cluster.master, str(free_port()), str(log)],
        capture_output=True,
        text=True,
        timeout=patience(180),
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}\n{log.read_text()[-3000:] if log.exists() else ''}"
    assert "ended with 0" in done.stdout


ROWS = 200

#: Notes what it sees of GPUs when it is imported and set up, and each row that it is called with.
STEP = """
import json, os, time
from pathlib import Path
FOLDER = Path({folder!r})
AT_IMPORT = os.environ.get("CUDA_VISIBLE_DEVICES")
class Work:
    def setup(self):
        self.seen = {{"pid": os.getpid(), "at_import": AT_IMPORT, "in_setup": os.environ.get("CUDA_VISIBLE_DEVICES")}}
        self.seen["careful"] = "step_process" in Path("/proc/self/cmdline").read_text()
    def __call__(self, row):
        line = json.dumps({{**self.seen, "id": row["id"], "at": time.monotonic()}})
        with open(FOLDER / "calls", "a") as file:
            file.write(line + chr(10))
        time.sleep(0.05)
        return row
"""


class PodExecutor:
    """An executor as Spark has Kubernetes make it."""

    def __init__(self, number: int, port: int, folder: Path, environment: dict[str, str]) -> None:
        self.log = folder / f"executor-{number}.log"
        given = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
        given |= {
            "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
            "SPARK_EXECUTOR_ID": str(number),
            "SPARK_EXECUTOR_CORES": "2",
            "SPARK_EXECUTOR_MEMORY": "600m",
            "SPARK_APPLICATION_ID": "pods",
            "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
            "SPARK_RESOURCE_PROFILE_ID": "0",
            "SPARK_EXECUTOR_POD_NAME": f"pod-exec-{number}",
            "SPARK_CONF_DIR": "/opt/spark/conf",
            # Spark gives the first three to Java, and so do all drivers.
            "SPARK_JAVA_OPT_0": f"-Dspark.driver.port={port}",
            "PYSPARK_PYTHON": sys.executable,
            **environment,
        }
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "checkpoint_spark.pods.pod", "executor"]
            self.process = subprocess.Popen(command, env=given, stdout=log, stderr=log)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def test_tasks_see_their_own_gpu_before_their_code_and_seal_before_their_executor_ends(
    cluster: SparkCluster, lance_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "work.py").write_text(STEP.format(folder=str(tmp_path)))
    lance_place.create(SCHEMA)
    port = free_port()
    manifest = manifest_for(
        lance_place,
        str(write_inputs(tmp_path / "in", files=2, rows=ROWS // 2)),
        steps=[{"call": "work:Work", "input": "row"}],
        code={"path": str(code)},
        sparkConf={
            "spark.driver.port": str(port),
            "spark.executor.memory": "8g",
            "spark.executor.resource.gpu.amount": "2",
            "spark.task.resource.gpu.amount": "1",
            "spark.python.worker.reuse": "false",
        },
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    runner = Runner(manifest, lance_place.settings, 2, _no_report, master=cluster.master)
    outcomes: list[Any] = []
    running = threading.Thread(target=lambda: outcomes.append(runner.run()), daemon=True)
    running.start()
    environment = {"PYTHONPATH": str(code), "CHECKPOINTED_WRITE_GPUS": json.dumps({"resource": "gpu", "count": 2})}
    executors: list[PodExecutor] = []
    try:
        until(lambda: _is_listening(port), "the driver", 120)
        executors.append(first := PodExecutor(1, port, tmp_path, environment))
        until(lambda: len(calls(tmp_path)) > 20, f"rows to be done: {first.log}", 120)
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(patience(60)) == 143, first.log.read_text()[-3000:]
        begun = calls(tmp_path)
        executors.append(PodExecutor(2, port, tmp_path, environment))
        running.join(patience(180))
    finally:
        for executor in executors:
            executor.end()
    (ended,) = outcomes

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert_exactly_once(lance_place, range(ROWS))
    assert len(begun) < ROWS, "the executor ran until there was nothing left to do, so nothing was shown"
    assert sorted(call["id"] for call in calls(tmp_path)) == list(range(ROWS)), "a row was done twice"
    # Both tasks of the first executor left with a seal of all that they had done.
    store = open_store(lance_place.checkpoint_uri, lance_place.settings)
    ledger = Ledger(store, EpochKey(ended.key.uid, 1))
    chains = [ledger.chains.read_chain(1, number) for number in range(2)]
    assert [[seal.left_by_try for seal in chain] for chain in chains] == [[0, None], [0, None]]
    assert sum(chain[0].rows_read for chain in chains) == len(begun)
    assert not [call for call in calls(tmp_path) if call["careful"]], "nothing suggests that a row had ended the process"
    # At one time, each of two tasks has the one GPU and the other has the other.
    seen = {call["pid"]: call["in_setup"] for call in begun}
    assert sorted(seen.values(), key=str) == ["0", "1"]
    assert all(call["at_import"] == call["in_setup"] for call in calls(tmp_path))


def calls(folder: Path) -> list[dict[str, Any]]:
    path = folder / "calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _no_report(_: Report) -> None:
    pass


def _is_listening(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0
