"""Executors with GPUs that come and go, on a node that says it has some: no device is there, and none is touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.records import Seal
from tests.cluster.test_deaths import delete_pod
from tests.cluster.user import User
from tests.support.records import seals_shown

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
    seals = seals_shown(user.ledger(), 1)
    (task,) = {seal.task for seal in seals if seal.link > 0}
    return tuple(seal for seal in seals if seal.task == task)


@contextmanager
def quota(user: User, **hard: int) -> Iterator[None]:
    name = f"quota-{user.name}"
    limits = ",".join(f"{what}={number}" for what, number in hard.items())
    user.kubectl("create", "quota", name, f"--hard={limits}", "-n", user.namespace)
    try:
        yield
    finally:
        user.kubectl("delete", "quota", name, "-n", user.namespace)


def test_two_writes_under_a_quota_of_two_pods_both_end_though_their_drivers_could_take_both_places(
    users: Callable[[], User],
) -> None:
    both = users(), users()
    with quota(both[0], pods=2):
        for user in both:
            user.make_place("iceberg")
            user.apply(user.write(user.put_rows("a.parquet", 0, 100), executors=1))

        for user in both:
            user.wait_for("Committed", 200)

    for user in both:
        assert user.ids() == list(range(100))
        assert "BackoffLimitExceeded" not in {event["reason"] for event in user.events()}


def test_drivers_for_which_the_namespace_has_no_place_are_queued_and_come_in_turn(users: Callable[[], User]) -> None:
    first, second = users(), users()
    first.installation.upgrade(driversPerNamespace=1)
    for user in (first, second):
        user.make_place("iceberg")
    first.apply(first.write_with_barrier(first.put_rows("a.parquet", 0, 100), first=50))
    first.wait_until_sealed(25)
    second.apply(second.write(second.put_rows("a.parquet", 0, 100)))
    second.until(lambda: second.status().get("reason") == reasons.DRIVER_QUEUED, what="the second one to be queued")
    assert second.driver_names() == []

    first.open_barrier()

    for user in (first, second):
        user.wait_for("Committed")
        assert user.ids() == list(range(100))


def test_a_file_that_was_missing_is_found_once_somebody_asks_for_it(user: User) -> None:
    place = user.make_place("iceberg")
    source = f"{place.base_uri}/input/late.parquet"
    user.apply(user.write(source))
    user.until(lambda: user.status().get("reason") == reasons.SOURCE_MISSING, what="the file to be missed")
    user.put_rows("late.parquet", 0, 50)

    user.kubectl("annotate", "cw", user.name, "-n", user.namespace, "checkpointed.dev/retry=now")

    user.wait_for("Committed")
    assert user.ids() == list(range(50))
