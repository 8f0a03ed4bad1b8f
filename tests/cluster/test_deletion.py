"""A write is deleted while it runs, before it is committed, with its namespace; and it is applied again under its name."""

from __future__ import annotations

import json
import signal
import uuid
from functools import partial

import pytest

from devtools.gate import Held
from tests.cluster.installation import WORKLOADS, signal_first_process
from tests.cluster.user import PATIENCE_S, User, is_commit
from tests.support.waiting import patience

#: The second half waits at a barrier.
ROWS, FIRST = 400, 200


def begin(user: User, executors: int = 0) -> str:
    user.make_place("iceberg")
    source = user.put_rows("a.parquet", 0, ROWS)
    user.apply(user.write_with_barrier(source, FIRST, executors=executors))
    user.wait_until_sealed(ROWS // 4)
    return source


def hold_the_commit(user: User) -> Held:
    held = user.installation.lake.gate.hold(is_commit)
    user.make_place("iceberg")
    user.apply(user.write(user.put_rows("a.parquet", 0, 50)))
    held.wait(patience(PATIENCE_S))
    return held


def is_gone(user: User) -> bool:
    return not user.kubectl("get", "cw", user.name, "-n", user.namespace, "--ignore-not-found")


def delete(user: User) -> None:
    user.kubectl("delete", "cw", user.name, "-n", user.namespace, "--wait=false")
    user.until(lambda: is_gone(user), what="the write is gone")


def is_committed(user: User, epoch: int) -> bool:
    return user.status().get("epoch") == epoch and user.condition("Committed").get("status") == "True"


def has_come_to(user: User, phase: str) -> bool:
    phases = ["Pending", "Running", "Sealed", "Committing", "Committed"]
    now = user.status().get("phase")
    return now in phases and phases.index(now) >= phases.index(phase)


def test_a_write_that_is_deleted_while_it_runs_leaves_no_rows_no_pods_and_no_staged_files(user: User) -> None:
    begin(user, executors=1)
    assert user.place is not None

    user.kubectl("delete", "cw", user.name, "-n", user.namespace, "--wait=false")
    user.until(lambda: is_gone(user), what="the write is gone")

    user.until(lambda: user.driver_names() == [] and user.pods("executor") == [], what="its pods are gone")
    assert user.ids() == []
    assert user.place.keys() == []


@pytest.mark.slow
def test_a_write_with_a_time_to_live_is_deleted_after_it_and_applied_again_it_has_nothing_to_do(user: User) -> None:
    user.make_place("iceberg")
    source = user.put_rows("a.parquet", 0, 50)
    user.apply(user.write(source, ttlSecondsAfterFinished=1))
    assert user.place is not None

    user.until(lambda: is_gone(user), what="the write is gone")
    user.until(lambda: user.driver_names() == [], what="its pods are gone")
    user.apply(user.write(source))
    user.wait_for("Committed")

    assert user.driver_names() == []
    assert user.ids() == list(range(50))
    assert len(user.place.keys()) == 1
    assert user.status()["writeUid"] != user.uid

    backup = user.get()
    user.apply(user.write(user.put_rows("b.parquet", 50, 50), runNonce="2"))
    user.until(lambda: is_committed(user, 2), what="the second epoch is committed")
    delete(user)
    backup["metadata"] = {name: backup["metadata"][name] for name in ("name", "annotations")}
    user.kubectl("create", "-n", user.namespace, "-f", "-", manifest=json.dumps(backup))
    user.until(lambda: is_committed(user, 3), what="its run has found nothing new")
    assert user.ids() == list(range(100))


@pytest.mark.slow
def test_a_loop_that_deletes_and_applies_a_write_at_every_step_adds_each_row_once(user: User) -> None:
    """As GitOps that heals itself, and two controllers."""
    user.make_place("iceberg")
    source = user.put_rows("a.parquet", 0, 60)
    user.installation.scale(2)
    for phase in ("Pending", "Running", "Running", "Committing", "Committed", "Committed"):
        user.apply(user.write(source, 0.05))
        user.until(partial(has_come_to, user, phase), what=f"the write is {phase}, or has come further")
        delete(user)

    user.apply(user.write(source, 0.05))
    user.wait_for("Committed")

    assert user.ids() == list(range(60))
    assert user.place is not None
    assert len(user.place.keys()) == 1


@pytest.mark.slow
def test_a_committer_that_was_killed_on_its_way_lands_nothing_after_the_deletion(user: User) -> None:
    """Its last request is somewhere in the network while another process deletes the write."""
    held = hold_the_commit(user)
    user.installation.kill_operator()

    user.kubectl("delete", "cw", user.name, "-n", user.namespace, "--wait=false")
    user.until(lambda: is_gone(user), what="the write is gone")
    held.let_go()

    assert held.answer_status(30) == 409
    assert user.ids() == []


@pytest.mark.slow
def test_a_committer_that_was_paused_lands_nothing_after_another_has_deleted_the_write(user: User) -> None:
    held = hold_the_commit(user)
    (paused,) = user.installation.operator_pods()
    signal_first_process(paused, signal.SIGSTOP)

    user.kubectl("delete", "cw", user.name, "-n", user.namespace, "--wait=false")
    user.installation.scale(2)
    user.until(lambda: is_gone(user), what="the write is gone")
    signal_first_process(paused, signal.SIGCONT)
    held.let_go()

    assert held.answer_status(30) == 409
    user.installation.wait_ready()
    assert user.ids() == []


@pytest.mark.slow
def test_a_name_that_is_used_again_before_any_commit_is_a_new_write(user: User) -> None:
    source = begin(user)
    first = user.uid
    user.kubectl("delete", "cw", user.name, "-n", user.namespace, "--wait=false")
    user.until(lambda: is_gone(user), what="the write is gone")

    user.apply(user.write(source, 0.0))
    user.wait_for("Committed")

    assert user.uid == user.status()["writeUid"] != first
    assert user.ids() == list(range(ROWS))
    assert user.place is not None
    assert len(user.place.keys()) == 1


@pytest.mark.slow
def test_a_namespace_that_is_deleted_with_its_writes_ends(user: User) -> None:
    """Its RoleBindings go before its writes; the operator can still let go of them."""
    namespace = f"ns-{uuid.uuid4().hex[:8]}"
    installation = user.installation
    names = ",".join((WORKLOADS, namespace))
    installation.upgrade(watch__namespaces=f"{{{names}}}")
    installation.wait_ready()
    user.namespace = namespace
    begin(user)

    user.kubectl("delete", "namespace", namespace, f"--timeout={patience(100):.0f}s")

    assert user.ids() == []
    user.namespace = WORKLOADS


@pytest.mark.slow
def test_a_deletion_that_is_held_up_says_why_and_can_be_abandoned(user: User) -> None:
    begin(user)
    installation = user.installation
    installation.lake.s3.stop()
    try:
        user.kubectl("delete", "cw", user.name, "-n", user.namespace, "--wait=false")
        user.until(lambda: user.status().get("phase") == "Deleting", 120, "it is held up")
        assert "checkpointed.dev/abandon" in user.status()["message"]

        user.kubectl("annotate", "cw", user.name, "-n", user.namespace, "checkpointed.dev/abandon=true")
        user.until(lambda: is_gone(user), what="the write is gone")
    finally:
        installation.lake.s3.start()
    assert json.loads(user.kubectl("get", "cw", "-n", user.namespace, "-o", "json"))["items"] is not None
