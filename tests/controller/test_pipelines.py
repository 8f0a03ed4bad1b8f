"""A pipeline in a cluster whose manifest is corrected."""

from __future__ import annotations

from pathlib import Path

from checkpoint_protocol import reasons
from tests.controller.harness import World
from tests.controller.test_triggers import ids
from tests.controller.test_triggers_of_pipelines import stages, world
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
