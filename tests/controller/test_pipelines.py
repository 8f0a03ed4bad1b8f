"""A pipeline in a cluster whose manifest is corrected, and one that is deleted or suspended in a stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint_operator.watch.cache import WriteName
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from tests.controller.harness import World
from tests.controller.test_triggers import ids, put_file
from tests.controller.test_triggers_of_pipelines import stages, stages_begun, world
from tests.support.driver_threads import Killed
from tests.support.pipelines import CALLS, FAILING, STAGES, TABLE
from tests.support.places import IcebergPlace
from tests.support.waiting import until
from tests.support.writes import write_inputs

__all__ = ["world"]


def test_a_source_of_which_nothing_is_sealed_may_be_corrected(world: World, source: Path) -> None:
    world.apply(source / "wrong", stages=stages())
    world.until_stalled()
    assert world.status.reason == reasons.SOURCE_MISSING

    world.edit(source={"files": {"format": "parquet", "paths": [str(source)]}})
    world.until_committed()

    assert ids(world) == list(range(200))
    assert {CALLS[stage, 1] for stage in STAGES} == {200}


def test_a_source_of_which_rows_are_sealed_stays(world: World, source: Path) -> None:
    world.apply(source, stages=stages())
    world.until(lambda: bool(CALLS["second", 1]))

    world.edit(source={"files": {"format": "parquet", "paths": [str(write_inputs(source.parent / "other", 1, 10))]}})
    world.until_stalled()

    assert world.status.reason == reasons.IDENTITY_CHANGED
    world.edit(source={"files": {"format": "parquet", "paths": [str(source)]}})
    world.until_committed()
    assert ids(world) == list(range(200))
    assert CALLS["first", 1] == 200


@pytest.mark.parametrize("stage", STAGES)
def test_a_pipeline_that_is_deleted_in_a_stage_of_its_second_epoch_leaves_no_rows_of_it(
    world: World, source: Path, stage: str
) -> None:
    world.apply(source, stages=stages(), deletionPolicy="Retain", onRecreate="Attach")
    world.until_committed()
    key = EpochKey(world.status.write_uid or "", 2)
    put_file(source, "b.parquet", range(200, 210))
    world.edit(runNonce="2")
    world.until(lambda: stage in stages_begun(world, 2))

    world.delete()
    assert Ledger(world.store(), key).commits.is_deleted()
    assert ids(world) == list(range(200))

    world.edit(runNonce="3")
    world.until_committed()
    assert ids(world) == list(range(210))


@pytest.mark.parametrize("stage", STAGES)
def test_a_pipeline_that_is_suspended_in_a_stage_ends_its_driver_and_goes_on_when_resumed(
    world: World, source: Path, stage: str
) -> None:
    def suspend(number: int) -> None:
        if number and stage in stages_begun(world, 1) and "suspend" not in world.manifest["spec"]:
            world.edit(suspend=True)
            until(lambda: not world.api.pods, "the pod to be deleted")
            raise Killed

    world.apply(source, stages=stages(), checkpoint={"uri": world.place.checkpoint_uri, "maximumRows": 2})
    world.kubelet.between_tasks = suspend
    world.until(lambda: world.status.phase == "Suspended" and not world.api.pods)
    before = dict(CALLS)
    world.pass_time(600)
    assert before == CALLS

    world.edit(suspend=False)
    world.until_committed()

    assert ids(world) == list(range(200))
    assert {CALLS[one, 1] for one in STAGES} == {200}, "what was sealed is not computed again"


def renamed() -> list[dict[str, Any]]:
    first, second, third = stages()
    return [first, {**second, "name": "other"}, third]


@pytest.mark.parametrize("edited", [stages("b"), renamed()], ids=["edited", "renamed"])
def test_a_driver_that_is_at_work_on_a_stage_ends_when_that_is_edited_or_taken_out(
    world: World, source: Path, edited: list[dict[str, Any]]
) -> None:
    """It was started for the stage before."""
    ended: list[Any] = []

    def edit(number: int) -> None:
        if number and "second" in stages_begun(world, 1) and world.manifest["spec"]["stages"] != edited:
            (pod,) = world.api.pods
            world.edit(stages=edited)
            until(lambda: pod not in world.api.pods, "the pod to be deleted")
            ended.append(pod)
            raise Killed

    world.apply(source, stages=stages(), checkpoint={"uri": world.place.checkpoint_uri, "maximumRows": 2})
    world.kubelet.between_tasks = edit
    world.until_committed()

    assert ended, "a driver whose pod is not deleted goes on"
    assert ids(world) == list(range(200))


def test_past_its_active_deadline_a_pipeline_ends_the_driver_of_its_stage_also_where_the_operator_begins_anew(
    world: World, source: Path
) -> None:
    world.kubelet.instead[1] = {"phase": "Running"}
    world.apply(source, stages=stages(), activeDeadlineSeconds=1000)
    world.until(lambda: world.status.phase == "Running")
    world.clock.now_s += 2000
    world.restart_operator()

    world.until_stalled()
    assert world.status.reason == reasons.DEADLINE_EXCEEDED
    assert not world.api.pods

    world.edit(activeDeadlineSeconds=None)
    world.until_committed()
    assert ids(world) == list(range(200))


def test_rows_that_fail_in_whichever_stage_are_counted_together_and_told_in_one_event(world: World, source: Path) -> None:
    FAILING.update({("first", 3), ("first", 4), ("second", 15), ("third", 30), ("third", 31), ("third", 32)})
    world.apply(source, stages=stages(), onRowError="Quarantine")

    world.until_committed()
    world.pass_time(300)

    assert (world.status.rows_quarantined, world.status.rows_committed) == (6, 194)
    committed = world.condition("Committed")
    assert committed is not None
    assert "6 rows are quarantined" in committed.message
    assert [event["reason"] for event in world.api.warnings] == ["RowsQuarantined"]
    metrics = world.operator.controller.metrics.registry
    assert metrics.get_sample_value("checkpointed_writes_quarantined_rows_total") == 6
    commit = Ledger(world.store(), EpochKey(world.status.write_uid or "", 1)).commits.read_commit()
    assert commit is not None
    assert (commit.rows_quarantined, commit.rows_quarantined_before, commit.rows_written) == (3, 3, 194)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_object_takes_over_what_another_one_of_its_namespace_has_made(world: World, source: Path, *, is_deleted: bool) -> None:
    """Records are signed anew: each write has its own key."""
    world.apply(source, stages=stages(), deletionPolicy="Retain")
    world.until_committed()
    former = world.key
    if is_deleted:
        world.delete()
    CALLS.clear()
    assert isinstance(world.place, IcebergPlace)
    place = replace(world.place, name=f"{world.place.name}_heir")
    place.create(TABLE)
    world.key = WriteName("default", "heir")

    world.apply(source, stages=stages(), sink=place.sink(), inherit=former.name)
    world.until_committed()

    assert {stage: CALLS[stage, 1] for stage in STAGES} == {"first": 0, "second": 0, "third": 200}
    assert sorted(row["id"] for row in place.rows()) == list(range(200))
