"""Pipelines of stages on a real cluster: what runs dies at the border of two stages, and edited code waits for a person."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.writes import list_stages
from tests.cluster.test_deaths import FIRST, ROWS, kill_9
from tests.cluster.user import SLOW, User
from tests.support.records import seals_shown

pytestmark = pytest.mark.slow
CODE = (
    SLOW
    + """
def prepare(row):
    return {"id": row["id"], "text": "prepared"}
"""
)


def apply(user: User, kind: str, **spec: Any) -> None:
    """Apply a write of two stages. The second one waits in the middle."""
    user.make_place(kind)
    manifest = user.write_with_barrier(user.put_rows("a.parquet", 0, ROWS), FIRST, **spec)
    user.put_code(CODE, f"{user.name}-code")
    steps = manifest["spec"].pop("steps")
    prepare = {"call": "steps:prepare", "input": "row"}
    manifest["spec"]["stages"] = [{"name": "prepare", "steps": [prepare]}, {"name": "finish", "steps": steps}]
    user.apply(manifest)


def stages(user: User) -> Sequence[Ledger]:
    ledger = user.ledger()
    return [replace(ledger, key=key) for key in list_stages(ledger.store, ledger.key)]


def first_is_done(user: User) -> bool:
    return any(ledger.commits.read_commit() is not None for ledger in stages(user))


def rows_prepared(user: User) -> int:
    """Rows in all seals of the first stage, whichever attempt put them."""
    (ledger,) = stages(user)
    return sum(seal.rows_read for attempt in ledger.attempts.list_attempts() for seal in seals_shown(ledger, attempt))


def all_is_well(user: User) -> None:
    assert user.place is not None
    user.open_barrier()
    user.wait_for("Committed")
    assert user.ids() == list(range(ROWS))
    assert len(user.place.keys()) == 1


def test_operator_and_drivers_die_at_the_border_of_two_stages_and_within_the_second(users: Callable[[], User]) -> None:
    both = {kind: users() for kind in ("iceberg", "lance")}
    for kind, user in both.items():
        apply(user, kind)

    for user in both.values():
        user.until(lambda user=user: first_is_done(user), what="the first stage is done")  # type: ignore[misc]
        kill_9(user, user.running_driver())
    both["iceberg"].installation.kill_operator()
    for user in both.values():
        user.wait_until_sealed(ROWS // 4)
        kill_9(user, user.running_driver())

    for user in both.values():
        all_is_well(user)
        assert rows_prepared(user) == ROWS, "no row of the first stage was done twice"


def test_code_that_was_edited_waits_for_the_annotation_that_the_status_names(user: User) -> None:
    apply(user, "iceberg", onCodeChange="Ask")
    user.wait_until_sealed(ROWS // 4)
    user.put_code(f"{CODE}\n# edited\n", f"{user.name}-code")
    kill_9(user, user.running_driver())

    user.until(lambda: user.condition("Stalled").get("reason") == "CodeChanged", what="the write waits for a person")
    message = user.condition("Stalled")["message"]
    choice = re.search(r"checkpointed\.dev/approve=Continue-[0-9a-f]+", message)
    assert choice is not None, message
    user.kubectl("annotate", "cw", user.name, "-n", user.namespace, choice.group())

    all_is_well(user)
    assert len(stages(user)) == 2, "the first stage, whose module was edited, was done anew"
