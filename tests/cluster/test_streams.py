"""A stream on a real cluster: Spark's checkpoint in a volume that driver and executors share, and a driver that dies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.test_deaths import kill_9
from tests.cluster.user import User

pytestmark = pytest.mark.slow
ROWS = 20
#: Spark's own source of numbers: so many more with each micro-batch, and state, so that executors write into the volume.
CODE = f"""
def stream(job):
    numbers = job.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "{ROWS}").option("numPartitions", "2").load()
    once = numbers.dropDuplicates(["value"])
    job.stream(once.selectExpr("value AS id", "concat('zeile ', value) AS text"), "append", processingTime="2 seconds")
"""


@pytest.fixture
def claim(user: User) -> Iterator[str]:
    """A claim that is bound to a folder of the one node, which the group of the pods may write."""
    name = f"{user.name}-state"
    # The node is this machine. Kubernetes gives no group to a hostPath, as it does to other volumes.
    folder = Path(f"/tmp/{name}")
    folder.mkdir()
    folder.chmod(0o777)
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": name,
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }
    wanted = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    user.kubectl("apply", "-f", "-", manifest=json.dumps(volume))
    user.kubectl("apply", "-n", user.namespace, "-f", "-", manifest=json.dumps(wanted))
    yield name
    user.kubectl("delete", "pvc", name, "-n", user.namespace, "--wait=false")
    user.kubectl("delete", "pv", name, "--wait=false")
    shutil.rmtree(folder, ignore_errors=True)


def apply(user: User, claim: str, executors: int) -> None:
    user.make_place("iceberg")
    code = user.put_code(CODE, f"{user.name}-code")
    program: dict[str, Any] = {"call": "steps:stream", "stream": {"checkpointVolume": {"claimName": claim}}}
    manifest = user.write("", executors=executors, code={"configMap": {"name": code}}, source={"program": program}, steps=[])
    manifest["spec"]["sparkConf"]["spark.sql.shuffle.partitions"] = "2"
    user.apply(manifest)


def epochs_committed(user: User) -> int:
    key = (user.status().get("commit") or {}).get("key", "/0")
    return int(key.rpartition("/")[2])


def test_one_pod_does_epoch_after_epoch_and_a_kill_costs_one_micro_batch_and_no_row(user: User, claim: str) -> None:
    apply(user, claim, executors=1)
    user.until(lambda: epochs_committed(user) >= 3, 180, "three micro-batches are committed")
    first = user.status()["driverPod"]

    kill_9(user, user.running_driver())
    before = epochs_committed(user)
    user.until(lambda: epochs_committed(user) >= before + 3, 180, "three more are committed")

    assert user.status()["driverPod"] != first
    user.edit(suspend=True)
    user.until(lambda: user.status().get("phase") == "Suspended", what="the write is suspended")
    ids = user.ids()
    assert len(ids) == len(set(ids)), "no row comes twice"
    assert ids == list(range(len(ids))), "no row is missing"
    assert len(ids) % ROWS == 0
