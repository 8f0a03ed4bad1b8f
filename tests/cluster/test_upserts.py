"""Upserts on a real cluster: the operator is killed while rows are merged, and within the commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest

from checkpoint_protocol.writes import list_stages
from tests.cluster.lake import SCHEMA
from tests.cluster.user import User, is_commit
from tests.support.waiting import patience

pytestmark = pytest.mark.slow
#: The table has the first two hundred, the source the last two hundred.
ROWS = 300
OLD, NEW = range(200), range(100, ROWS)
EXPECTED = [(number, None if number in OLD and number not in NEW else f"zeile {number}") for number in range(ROWS)]


def apply(user: User, kind: str) -> None:
    place = user.make_place(kind)
    place.append(pa.table([list(OLD), [None] * len(OLD)], schema=SCHEMA))
    manifest = user.write(user.put_rows("a.parquet", NEW.start, len(NEW)))
    manifest["spec"]["sink"] |= {"mode": "Upsert", "upsertKeys": ["id"]}
    user.apply(manifest)


def all_is_well(user: User) -> None:
    assert user.place is not None
    user.wait_for("Committed")
    assert sorted((row["id"], row["text"]) for row in user.place.rows()) == EXPECTED
    assert len(user.place.keys()) == 1


def is_merging(user: User) -> bool:
    ledger = user.ledger()
    return bool(list_stages(ledger.store, ledger.key))


def test_the_operator_is_killed_while_rows_are_merged(users: Callable[[], User]) -> None:
    both = {kind: users() for kind in ("iceberg", "lance")}
    for kind, user in both.items():
        apply(user, kind)
    for user in both.values():
        user.until(partial(is_merging, user), what="the merge begins")

    both["iceberg"].installation.kill_operator()

    for user in both.values():
        all_is_well(user)


def test_the_operator_is_killed_within_the_commit_of_an_upsert_whose_request_arrives_late(user: User) -> None:
    held = user.installation.lake.gate.hold(is_commit)
    apply(user, "iceberg")
    held.wait(patience(300))

    user.installation.kill_operator()
    user.installation.wait_ready()
    all_is_well(user)
    held.let_go()

    assert held.answer_status(60) == 409
    all_is_well(user)
