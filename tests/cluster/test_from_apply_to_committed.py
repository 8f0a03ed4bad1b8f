"""The way of a user on a real cluster: apply, watch, committed, read from outside."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cluster.user import User
from tests.support.waiting import patience


def test_writes_that_are_applied_together_run_in_pods_and_end_in_one_commit_each(users: Callable[[], User]) -> None:
    all_of_them = {kind: users() for kind in ("iceberg", "lance", "vended")}
    for kind, user in all_of_them.items():
        user.make_place(kind)
        manifest = user.write(user.put_rows("a.parquet", 0, 500), executors=1)
        if kind == "lance":
            # Nothing is said of executors, and there is little to read: the driver's own pod does it.
            del manifest["spec"]["executor"]["instances"]
            manifest["spec"]["driver"]["memory"] = "1Gi"
            manifest["spec"]["steps"][0] |= {"call": "steps:waits", "concurrency": 16, "timeout": "30s"}
        user.apply(manifest)

    for kind, user in all_of_them.items():
        user.wait_for("Committed")
        assert user.place is not None
        assert user.ids() == list(range(500))
        assert len(user.place.keys()) == 1
        status = user.status()
        assert status["rowsCommitted"] == 500
        assert status["commit"]["key"] == user.place.keys()[0]
        assert user.warnings() == []
        told = {event["reason"]: event["note"] for event in user.events()}
        assert told.keys() == {"Started", "Sealed", "Committed"}
        assert told["Sealed"] == "all rows of epoch 1 (500) are sealed; the commit is next"
        kubectl_get_shows(user, rows=500)
        plan = user.ledger().plans.read_plan(1)
        assert plan is not None
        assert plan.in_driver is (kind == "lance")


def kubectl_get_shows(user: User, rows: int) -> None:
    short = user.kubectl("get", "cw", user.name, "-n", user.namespace)
    wide = user.kubectl("get", "cw", user.name, "-n", user.namespace, "-o", "wide")

    header, row = (line.split() for line in short.splitlines())
    assert header == ["NAME", "PHASE", "PROGRESS", "ROWS", "ATTEMPT", "AGE"]
    assert row[:2] == [user.name, "Committed"]
    # A driver that is done within a moment may not have told how much there is.
    assert row[2] in (f"{rows}/{rows}", str(rows))
    assert row[3:5] == [str(rows), "1"]
    assert wide.splitlines()[0].split()[6:] == ["SEALED", "QUARANTINED", "FORMAT", "TABLE", "VERSION", "DRIVER", "REASON"]
    assert json.loads(user.kubectl("get", "cw", user.name, "-n", user.namespace, "-o", "json"))["status"]["commit"]["id"] in wide


@pytest.mark.slow
def test_a_new_run_nonce_takes_only_the_rows_that_came_since_and_all_stay_when_the_write_is_deleted(user: User) -> None:
    place = user.make_place("iceberg")
    source = user.put_rows("a.parquet", 0, 50)
    user.apply(user.write(source))
    user.wait_for("Committed")
    user.put_rows("b.parquet", 50, 30)

    user.edit(runNonce="second")
    user.until(lambda: user.status().get("epoch") == 2 and user.condition("Committed").get("status") == "True")

    assert user.ids() == list(range(80))
    assert len(place.keys()) == 2

    user.kubectl("delete", "cw", user.name, "-n", user.namespace, f"--timeout={patience(60):.0f}s")
    assert user.ids() == list(range(80))
