"""Everything that runs dies on a real cluster: no row is lost, none is there twice, and what was sealed is not computed again."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from typing import Any, Literal

import pyarrow as pa
import pytest

from devtools.kubernetes import CommandFailed
from tests.cluster.installation import signal_first_process
from tests.cluster.lake import SCHEMA
from tests.cluster.user import PATIENCE_S, SLOW, User, is_commit
from tests.support.waiting import patience

#: The second half waits at a barrier.
ROWS, FIRST = 300, 150


def begin(user: User, kind: str = "iceberg", **spec: Any) -> str:
    """Apply a write that waits in the middle, and wait until a quarter of it is sealed; return the pod of its driver."""
    apply(user, kind, **spec)
    return wait_for_the_middle(user)


def apply(user: User, kind: str, **spec: Any) -> None:
    user.make_place(kind)
    user.apply(user.write_with_barrier(user.put_rows("a.parquet", 0, ROWS), FIRST, **spec))


def wait_for_the_middle(user: User) -> str:
    user.wait_until_sealed(ROWS // 4)
    return user.running_driver()


def all_is_well(user: User) -> None:
    assert user.place is not None
    user.open_barrier()
    user.wait_for("Committed")
    assert user.ids() == list(range(ROWS))
    assert len(user.place.keys()) == 1


def delete_pod(user: User, pod: str) -> None:
    user.kubectl("delete", "pod", pod, "-n", user.namespace, "--wait=false")


def delete_pod_by_force(user: User, pod: str) -> None:
    user.kubectl("delete", "pod", pod, "-n", user.namespace, "--grace-period=0", "--force")


def kill_9(user: User, pod: str) -> None:
    signal_first_process(pod, signal.SIGKILL)


@pytest.mark.parametrize(
    "death",
    [pytest.param(delete_pod, marks=pytest.mark.slow), pytest.param(delete_pod_by_force, marks=pytest.mark.slow), kill_9],
    ids=lambda death: str(death.__name__),
)
def test_drivers_of_an_iceberg_and_a_lance_write_die_in_the_middle(
    users: Callable[[], User], death: Callable[[User, str], None]
) -> None:
    both = {kind: users() for kind in ("iceberg", "lance")}
    for kind, user in both.items():
        apply(user, kind, executors=1 if death is kill_9 else 0)

    sealed: dict[str, int] = {}
    for kind, user in both.items():
        pod = wait_for_the_middle(user)
        sealed[kind] = user.sealed_rows()
        death(user, pod)

    for kind, user in both.items():
        user.until(lambda user=user: user.status().get("attempt") == 2, what="the second attempt")  # type: ignore[misc]
        all_is_well(user)
        assert user.status()["attempt"] == 2
        assert user.rows_taken_over(2) >= sealed[kind], "what was sealed is not computed again"


@pytest.mark.slow
def test_an_executor_that_is_killed(user: User) -> None:
    begin(user, executors=1)

    kill_9(user, user.pods("executor")[0]["metadata"]["name"])

    all_is_well(user)


@pytest.mark.slow
def test_a_node_that_is_drained_before_the_first_seal_fails_no_write(user: User) -> None:
    """Twice as often as `backoffLimit` would allow, if that were the fault of the drivers."""
    apply(user, "iceberg", backoffLimit=0)

    for _ in range(2):
        pod = user.running_driver()
        node = user.installation.cluster.get("pod", pod, "-n", user.namespace)["spec"]["nodeName"]
        selector = f"--pod-selector=checkpointed.dev/write={user.name},checkpointed.dev/role=driver"
        user.kubectl(
            "drain", node, selector, "--force", "--delete-emptydir-data", "--ignore-daemonsets", f"--timeout={patience(60):.0f}s"
        )
        user.kubectl("uncordon", node)
        user.until(lambda pod=pod: pod not in user.driver_names(), what="the driver has left")  # type: ignore[misc]

    all_is_well(user)
    assert [attempt["cause"] for attempt in user.status()["attempts"]] == ["Evicted", "Evicted", "Completed"]


#: Imported by the driver too, which makes the table from the output: told to, it takes all the memory there is.
HUNGRY = """
import os, threading, time

def eat():
    eaten = []
    while True:
        time.sleep(0.1)
        while os.path.exists("/tmp/eat"):
            eaten.append(bytearray(16 << 20))

threading.Thread(target=eat, daemon=True).start()
"""


@pytest.mark.slow
def test_a_driver_that_is_killed_for_memory_is_named_and_the_next_goes_on(user: User) -> None:
    user.make_place("iceberg", with_table=False)
    manifest = user.write_with_barrier(user.put_rows("a.parquet", 0, ROWS), FIRST, executors=1)
    user.put_code(SLOW + HUNGRY, f"{user.name}-code")
    manifest["spec"]["sink"]["create"] = True
    user.apply(manifest)
    user.wait_until_sealed(ROWS // 4)

    user.exec(user.running_driver(), "touch", "/tmp/eat")
    user.until(lambda: user.status().get("attempt") == 2, what="the second attempt")

    all_is_well(user)
    assert [attempt["cause"] for attempt in user.status()["attempts"]] == ["OOMKilled", "Completed"]
    assert user.rows_taken_over(2) >= ROWS // 4


#: One row takes all the memory there is, each time.
GREEDY = """
import time

def greedy(row):
    time.sleep(0.02)
    if row["id"] == 137:
        eaten = []
        while True:
            eaten.append(bytearray(16 << 20))
    return {"id": row["id"], "text": "done"}
"""


@pytest.mark.slow
def test_a_row_that_takes_all_memory_of_its_container_is_found_and_the_others_are_done(user: User) -> None:
    place = user.make_place("iceberg")
    code = {"configMap": {"name": user.put_code(GREEDY)}}
    manifest = user.write(user.put_rows("a.parquet", 0, ROWS), executors=1, code=code)
    manifest["spec"]["steps"] = [{"call": "steps:greedy", "input": "row"}]
    manifest["spec"]["onRowError"] = "Quarantine"

    user.apply(manifest)

    user.wait_for("Committed", 400)
    assert user.ids() == [number for number in range(ROWS) if number != 137]
    assert len(place.keys()) == 1
    assert user.status()["rowsQuarantined"] == 1


@pytest.mark.slow
def test_an_executor_that_is_killed_amid_many_calls_at_once(user: User) -> None:
    user.make_place("lance")
    manifest = user.write(user.put_rows("a.parquet", 0, ROWS), 1.0, executors=1)
    manifest["spec"]["steps"][0] |= {"call": "steps:waits", "concurrency": 16, "memo": True}
    user.apply(manifest)
    user.wait_until_sealed(1)

    kill_9(user, user.pods("executor")[0]["metadata"]["name"])

    all_is_well(user)


@pytest.mark.slow
def test_a_driver_whose_work_is_all_sealed_is_not_followed_by_another(user: User) -> None:
    user.make_place("iceberg")
    user.apply(user.write_with_barrier(user.put_rows("a.parquet", 0, ROWS), FIRST))
    user.wait_until_sealed(ROWS // 4)
    user.installation.stop_operator()
    user.open_barrier()
    user.wait_until_sealed(ROWS)
    user.until(lambda: all(pod["status"].get("phase") == "Succeeded" for pod in user.pods("driver")), what="the driver has ended")
    for pod in user.driver_names():
        delete_pod_by_force(user, pod)

    user.installation.start_operator()

    all_is_well(user)
    assert user.driver_names() == []
    assert user.status()["attempt"] == 1


@pytest.mark.slow
def test_the_operator_is_killed_in_the_middle_of_an_append_and_of_an_overwrite(users: Callable[[], User]) -> None:
    appends, overwrites = users(), users()
    apply(appends, "iceberg")
    overwrites.make_place("iceberg")
    manifest = overwrites.write_with_barrier(overwrites.put_rows("a.parquet", 0, ROWS), FIRST)
    manifest["spec"]["sink"]["mode"] = "OverwriteAll"
    assert overwrites.place is not None
    overwrites.place.append(pa.table({"id": [1_000_000], "text": ["a stranger's"]}, schema=SCHEMA))
    overwrites.apply(manifest)
    for user in (appends, overwrites):
        wait_for_the_middle(user)

    appends.installation.kill_operator()

    for user in (appends, overwrites):
        all_is_well(user)
        assert user.status()["attempt"] == 1, "a driver at work is not given up"


@pytest.mark.parametrize("side", ["request", pytest.param("answer", marks=pytest.mark.slow)])
def test_the_operator_is_killed_within_the_commit(user: User, side: Literal["request", "answer"]) -> None:
    """Its request reaches the catalog long after it died, or the answer finds nobody."""
    held = user.installation.lake.gate.hold(is_commit, side)
    user.make_place("iceberg")
    user.apply(user.write(user.put_rows("a.parquet", 0, ROWS)))
    held.wait(patience(PATIENCE_S))

    user.installation.kill_operator()
    user.installation.wait_ready()
    if side == "answer":
        assert held.answer_status(30) == 200
    all_is_well(user)
    held.let_go()

    # The late request is refused by what the next process has committed; or it was the commit, and was found.
    assert held.answer_status(30) == (409 if side == "request" else 200)
    all_is_well(user)


@pytest.mark.slow
def test_the_operator_is_killed_again_and_again_around_the_commit(user: User) -> None:
    begin(user)
    user.open_barrier()
    user.wait_until_sealed(ROWS - 20)
    for _ in range(3):  # the kubelet waits longer each time
        _ignoring(user.installation.kill_operator)
        time.sleep(1.5)

    all_is_well(user)


@pytest.mark.slow
def test_two_operators_at_once(user: User) -> None:
    user.installation.start_operator(replicas=2)
    begin(user)

    all_is_well(user)
    assert len(user.driver_names()) == 1


@pytest.mark.slow
def test_the_api_server_is_killed_and_comes_back(user: User) -> None:
    begin(user)

    user.installation.cluster.restart_api_server(kill=True)

    all_is_well(user)


@pytest.mark.slow
def test_a_helm_upgrade_in_the_middle_of_a_run(user: User) -> None:
    begin(user)

    user.installation.upgrade(logLevel="debug")

    all_is_well(user)
    assert user.status()["attempt"] == 1


def _ignoring(action: Callable[[], object]) -> None:
    """The connection breaks with the process that is killed, and there may be none to kill yet."""
    with contextlib.suppress(CommandFailed, AssertionError):
        action()
