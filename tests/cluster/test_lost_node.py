"""The node of a driver is cut off from the cluster, where it goes on running; and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from devtools.kubernetes import Cluster
from tests.cluster.installation import first_process
from tests.cluster.user import User

pytestmark = pytest.mark.slow

NODE = "node-2"
#: 300 rows of 0.6 s in two task slots: a minute and a half of work. A lost node is noticed after half a minute. Who takes over
#: is quick: nothing is to be seen of it but that it is done.
ROWS, SECONDS = 300, 0.6
STEPS = """
import os, time

def slowly(row, seconds):
    # Names of drivers end with the epoch and the attempt, and those of their executors begin so.
    time.sleep(seconds if "-1-1" in os.environ["HOSTNAME"] else 0.05)
    return {"id": row["id"], "text": f"zeile {row['id']}"}
"""
TAINT = "checkpointed.dev/test=second:NoSchedule"


@pytest.fixture
def second_node(user: User) -> Iterator[str]:
    """A node on which nothing runs that does not ask for it."""
    cluster = user.installation.cluster
    cluster.start_second_kubelet()
    cluster.kubectl("taint", "node", NODE, TAINT, "--overwrite")
    user.installation.load_images()
    yield NODE
    cluster.stop_second_node()


def rather_there(container: str) -> dict[str, Any]:
    """A pod template: on the second node while that is ready, else anywhere; evicted five seconds after its node is lost."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}
    return {
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "tolerations": [
                {"key": "checkpointed.dev/test", "operator": "Exists"},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
            ],
            "affinity": {
                "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]}
            },
            "containers": [{"name": container, "resources": {"requests": {"cpu": "100m"}}}],
        }
    }


def node_of(cluster: Cluster, user: User, pod: str) -> str:
    node: str = cluster.get("pod", pod, "-n", user.namespace)["spec"]["nodeName"]
    return node


def is_lost(cluster: Cluster) -> bool:
    conditions = cluster.get("node", NODE)["status"]["conditions"]
    return any((each["type"], each["status"]) == ("Ready", "Unknown") for each in conditions)


def test_a_driver_runs_on_unseen_while_the_next_takes_over_and_no_row_is_there_twice(user: User, second_node: str) -> None:
    cluster = user.installation.cluster
    user.make_place("iceberg")
    source = user.put_rows("a.parquet", 0, ROWS)
    driver = {"memory": "512Mi", "template": rather_there("driver")}
    executor = {"memory": "512Mi", "cores": 2, "template": rather_there("executor")}
    code = {"configMap": {"name": user.put_code(STEPS)}}
    user.apply(user.write(source, SECONDS, driver=driver, executor=executor, code=code))
    first = user.running_driver()
    assert node_of(cluster, user, first) == second_node
    user.wait_until_sealed(ROWS // 20)

    cluster.stop_second_kubelet()
    user.until(lambda: is_lost(cluster), 100, "the node is lost")
    assert first_process(first) is not None, "it runs on where nobody sees it"
    user.until(lambda: user.status().get("attempt") == 2, 100, "the next attempt has begun")
    closed = user.rows_sealed_by(1)
    # Nobody can end it, and what it does now counts no more; it may have seen that and ended itself.
    user.until(
        lambda: user.rows_sealed_by(1) > closed or first_process(first) is None, what="the driver that is given up goes on"
    )
    user.wait_until_sealed_by(2, 10)
    cluster.start_second_kubelet()

    user.wait_for("Committed", 300)
    assert user.ids() == list(range(ROWS))
    assert user.place is not None
    assert len(user.place.keys()) == 1
    assert user.status()["attempt"] == 2
    user.until(lambda: first not in user.driver_names(), what="the lost node ends its old driver")
