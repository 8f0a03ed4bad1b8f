"""Pipelines on a real cluster: with a trigger, and suspended or deleted in a stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.writes import list_stages
from tests.cluster.test_triggers import EPOCH_S, FIRST_EPOCH_S, await_epoch
from tests.cluster.test_triggers import ROWS as ROWS_OF_A_FILE
from tests.cluster.user import User
from tests.support.records import seals_shown

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
ROWS, BEFORE_THE_BARRIER = 400, 200


def in_stages(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest with its steps as a first stage, and a second one that is quick."""
    steps = manifest["spec"].pop("steps")
    quick = [{"call": "steps:slowly", "input": "row", "arguments": {"seconds": 0}}]
    manifest["spec"]["stages"] = [{"name": "first", "steps": steps}, {"name": "second", "steps": quick}]
    return manifest


def first_stage(user: User) -> Ledger:
    epoch = user.ledger()
    (key,) = (key for key in list_stages(epoch.store, epoch.key) if key.stage.startswith("first-"))
    return replace(epoch, key=key)


def sealed_in_first_stage(user: User) -> int:
    epoch = user.ledger()
    if not list_stages(epoch.store, epoch.key):
        return 0
    return sum(seal.rows_read for seal in seals_shown(first_stage(user), 1))


def begin(user: User) -> None:
    """Apply a pipeline of which half the rows of the first stage are sealed, while the others wait at a barrier."""
    user.make_place("iceberg")
    user.apply(in_stages(user.write_with_barrier(user.put_rows("a.parquet", 0, ROWS), BEFORE_THE_BARRIER)))
    user.until(lambda: sealed_in_first_stage(user) >= BEFORE_THE_BARRIER // 2, what="rows sealed in the first stage")


def test_new_files_go_through_all_stages_by_the_one_driver_that_waits_for_them(users: Callable[[], User]) -> None:
    writes = [users() for _ in range(2)]
    for kind, user in zip(("iceberg", "lance"), writes, strict=True):
        user.make_place(kind)
        source = user.put_rows("0.parquet", 0, ROWS_OF_A_FILE)
        user.apply(in_stages(user.write(source, trigger={"every": "5s", "keepDriver": "30m"})))
    await_epoch(writes, 1, FIRST_EPOCH_S)
    for epoch in (2, 3, 4):
        for user in writes:
            user.put_rows(f"{epoch - 1}.parquet", (epoch - 1) * ROWS_OF_A_FILE, ROWS_OF_A_FILE)
        await_epoch(writes, epoch, EPOCH_S)

    for user in writes:
        assert user.place is not None
        assert user.ids() == list(range(4 * ROWS_OF_A_FILE))
        assert len(user.place.keys()) == 4
        assert len(user.driver_names()) == 1


def test_a_pipeline_that_is_suspended_in_its_first_stage_ends_the_driver_and_goes_on_with_what_is_left(user: User) -> None:
    begin(user)
    sealed = sealed_in_first_stage(user)

    user.edit(suspend=True)
    user.until(lambda: user.status().get("phase") == "Suspended" and not user.driver_names(), 60, "suspended")
    user.open_barrier()
    user.edit(suspend=False)
    user.wait_for("Committed")

    assert user.ids() == list(range(ROWS))
    plan = first_stage(user).plans.read_plan(2)
    assert plan is not None
    assert plan.done_rows >= sealed, "what was sealed is not computed again"


def test_a_pipeline_that_is_deleted_in_its_first_stage_leaves_no_rows_and_no_pods(user: User) -> None:
    begin(user)
    assert user.place is not None

    user.kubectl("delete", "cw", user.name, "-n", user.namespace, "--wait=false")
    user.until(
        lambda: not user.kubectl("get", "cw", user.name, "-n", user.namespace, "--ignore-not-found"), what="the write is gone"
    )

    user.until(lambda: user.driver_names() == [] and user.pods("executor") == [], what="its pods are gone")
    assert user.ids() == []
    assert user.place.keys() == []
