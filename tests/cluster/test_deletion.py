"""A write is deleted while it runs, before it is committed, with its namespace; and a name is used again."""

from __future__ import annotations

import json
import uuid

from tests.cluster.installation import WORKLOADS
from tests.cluster.user import User

ROWS, SECONDS = 400, 0.05


def begin(user: User) -> str:
    user.make_place("iceberg")
    source = user.put_rows("a.parquet", 0, ROWS)
    user.apply(user.write(source, SECONDS))
    user.wait_until_sealed(ROWS // 4)
    return source


def is_gone(user: User) -> bool:
    return not user.kubectl("get", "cw", user.name, "-n", user.namespace, "--ignore-not-found")


def test_a_write_that_is_deleted_while_it_runs_leaves_no_rows_no_pods_and_no_staged_files(user: User) -> None:
    begin(user)
    assert user.place is not None

    user.kubectl("delete", "cw", user.name, "-n", user.namespace, "--wait=false")
    user.until(lambda: is_gone(user), what="the write is gone")

    user.until(lambda: user.driver_names() == [] and user.pods("executor") == [], what="its pods are gone")
    assert user.ids() == []
    assert user.place.keys() == []


def test_a_name_that_is_used_again_is_a_new_write(user: User) -> None:
    source = begin(user)
    first = user.uid
    user.kubectl("delete", "cw", user.name, "-n", user.namespace, "--wait=false")
    user.until(lambda: is_gone(user), what="the write is gone")

    user.apply(user.write(source, 0.0))
    user.wait_for("Committed")

    assert user.uid != first
    assert user.ids() == list(range(ROWS))
    assert user.place is not None
    assert len(user.place.keys()) == 1


def test_a_committed_write_that_is_deleted_keeps_its_rows(user: User) -> None:
    user.make_place("iceberg")
    user.apply(user.write(user.put_rows("a.parquet", 0, 50)))
    user.wait_for("Committed")

    user.kubectl("delete", "cw", user.name, "-n", user.namespace, "--timeout=60s")

    assert user.ids() == list(range(50))


def test_a_namespace_that_is_deleted_with_its_writes_ends(user: User) -> None:
    """Its RoleBindings go before its writes; the operator can still let go of them."""
    namespace = f"ns-{uuid.uuid4().hex[:8]}"
    installation = user.installation
    names = ",".join((WORKLOADS, namespace))
    installation.upgrade(watch__namespaces=f"{{{names}}}")
    installation.wait_ready()
    user.namespace = namespace
    begin(user)

    user.kubectl("delete", "namespace", namespace, "--timeout=100s")

    assert user.ids() == []
    user.namespace = WORKLOADS


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
