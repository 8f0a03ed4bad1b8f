"""The way of a user on a real cluster: apply, watch, committed, read from outside."""

from __future__ import annotations

import json

import pytest

from tests.cluster.user import User


@pytest.mark.parametrize("kind", ["iceberg", "lance"])
def test_an_applied_write_runs_in_pods_and_ends_in_one_commit(user: User, kind: str) -> None:
    place = user.make_place(kind)
    source = user.put_rows("a.parquet", 0, 500)

    user.apply(user.write(source))
    user.wait_for("Committed")

    assert user.ids() == list(range(500))
    assert len(place.keys()) == 1
    status = user.status()
    assert status["rowsCommitted"] == 500
    assert status["commit"]["key"] == place.keys()[0]
    assert user.events() == []


def test_what_kubectl_get_shows(user: User) -> None:
    user.make_place("iceberg")
    user.apply(user.write(user.put_rows("a.parquet", 0, 20)))
    user.wait_for("Committed")

    short = user.kubectl("get", "cw", user.name, "-n", user.namespace)
    wide = user.kubectl("get", "cw", user.name, "-n", user.namespace, "-o", "wide")

    header, row = (line.split() for line in short.splitlines())
    assert header == ["NAME", "PHASE", "PROGRESS", "ROWS", "ATTEMPT", "AGE"]
    assert row[:2] == [user.name, "Committed"]
    assert row[3:5] == ["20", "1"]
    assert wide.splitlines()[0].split()[6:] == ["QUARANTINED", "FORMAT", "TABLE", "VERSION", "DRIVER", "REASON"]
    assert json.loads(user.kubectl("get", "cw", user.name, "-n", user.namespace, "-o", "json"))["status"]["commit"]["id"] in wide


def test_a_new_run_nonce_takes_only_the_rows_that_came_since(user: User) -> None:
    place = user.make_place("iceberg")
    source = user.put_rows("a.parquet", 0, 50)
    user.apply(user.write(source))
    user.wait_for("Committed")
    user.put_rows("b.parquet", 50, 30)

    user.edit(runNonce="second")
    user.until(lambda: user.status().get("epoch") == 2 and user.condition("Committed").get("status") == "True")

    assert user.ids() == list(range(80))
    assert len(place.keys()) == 2
