"""Executors with GPUs that come and go, on a node that says it has some: no device is there, and none is touched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from checkpoint_protocol.records import Seal
from tests.cluster.test_deaths import delete_pod
from tests.cluster.user import User

pytestmark = pytest.mark.slow

ROWS, SLOW_FROM, SECONDS = 400, 350, 1.0

#: These rows are all in the last of seven tasks, and take their time until the executor at work on them is taken away:
#: however slowly pods come and go on a loaded machine, one executor is left. The next try of the task does not wait.
EMBED = """
import os, time

from pyspark import TaskContext

GPU_AT_IMPORT = os.environ.get("CUDA_VISIBLE_DEVICES")

class Embed:
    def setup(self):
        self.seen = f"{GPU_AT_IMPORT} {os.environ.get('CUDA_VISIBLE_DEVICES')} {os.environ.get('OMP_NUM_THREADS')}"

    def __call__(self, row):
        if row["id"] >= SLOW_FROM and TaskContext.get().attemptNumber() == 0:
            time.sleep(SECONDS)
        return {"id": row["id"], "text": self.seen}
"""


@contextmanager
def gpus_of_the_node(user: User, count: int) -> Iterator[None]:
    (node,) = user.installation.cluster.get("nodes")["items"]

    def say(amount: str | None) -> None:
        status = {part: {"nvidia.com/gpu": amount} for part in ("capacity", "allocatable")}
        patch = json.dumps({"status": status})
        user.kubectl("patch", "node", node["metadata"]["name"], "--subresource=status", "--type=merge", "-p", patch)

    say(str(count))
    try:
        yield
    finally:
        say(None)


def running_executors(user: User) -> list[dict[str, Any]]:
    return [pod for pod in user.pods("executor") if pod["status"].get("phase") == "Running" and not is_leaving(pod)]


def is_leaving(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def test_executors_with_gpus_come_and_go_and_one_that_is_taken_away_has_its_task_seal_first(user: User) -> None:
    place = user.make_place("lance")
    code = EMBED.replace("SECONDS", str(SECONDS)).replace("SLOW_FROM", str(SLOW_FROM))
    template = {"spec": {"containers": [{"name": "executor", "resources": {"requests": {"cpu": "100m"}}}]}}
    manifest = user.write(
        user.put_rows("a.parquet", 0, ROWS),
        code={"configMap": {"name": user.put_code(code)}},
        executor={
            "minInstances": 0,
            "instances": 2,
            "gpus": 1,
            "tasksPerExecutor": 2,
            "cores": 4,
            "memory": "512Mi",
            "template": template,
        },
        checkpoint={"uri": place.checkpoint_uri, "interval": "1h"},
    )
    manifest["spec"]["steps"] = [{"call": "steps:Embed", "input": "row", "output": {"id": "int64", "text": "string"}}]
    manifest["spec"]["sparkConf"] |= {
        "spark.dynamicAllocation.executorIdleTimeout": "3s",
        # Were the loss of an executor counted against its tasks, it would end the attempt.
        "spark.task.maxFailures": "1",
    }
    with gpus_of_the_node(user, 2):
        user.apply(manifest)
        seen: set[str] = set()

        def is_one_left() -> bool:
            pods = user.pods("executor")
            seen.update(pod["metadata"]["name"] for pod in pods)
            return user.sealed_rows() > 0 and len(seen) == 2 and len(pods) == 1 and len(running_executors(user)) == 1

        user.until(is_one_left, what="one executor is left, with the last task")
        assert 0 < user.sealed_rows() < ROWS
        (left,) = running_executors(user)
        limits = left["spec"]["containers"][0]["resources"]["limits"]
        assert limits["nvidia.com/gpu"] == "1"

        delete_pod(user, left["metadata"]["name"])
        user.wait_for("Committed")

    assert [(row["id"], row["text"]) for row in sorted(place.rows(), key=lambda row: row["id"])] == [
        (number, "0 0 2") for number in range(ROWS)
    ]
    status = user.status()
    assert status["attempt"] == 1
    assert not [event for event in user.warnings() if event["reason"].startswith("Executors")]
    assert [seal.left_by_try for seal in last_chain(user)] == [0, None]


def last_chain(user: User) -> tuple[Seal, ...]:
    """The seals of the task that took longest: the only one that has several."""
    ledger = user.ledger()
    chains = ledger.seals.read_seals(1, ledger.seals.list_links(1)).values()
    (chain,) = [chain for chain in chains if len(chain) > 1]
    return chain
