"""A pipeline in a cluster whose manifest is corrected, and one that is deleted in a stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from tests.controller.harness import World
from tests.controller.test_triggers import ids, put_file
from tests.controller.test_triggers_of_pipelines import stages, stages_begun, world
from tests.support.pipelines import CALLS, STAGES
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
