"""The table is dropped while a write is not committed yet: nothing is computed for nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from checkpoint_protocol import reasons
from tests.controller.harness import World
from tests.support.fake_cluster import Killed
from tests.support.places import IcebergPlace, LancePlace, Place, on_disk
from tests.support.writes import SCHEMA


def drop(place: Place) -> None:
    if isinstance(place, IcebergPlace):
        place.opened().drop_table(place.name)
    else:
        assert isinstance(place, LancePlace)
        shutil.rmtree(place.uri.removeprefix("file://"))


def die_and_drop(world: World, before_task: int, make_again: bool) -> None:
    """The first driver dies before this task, and the table is dropped then."""

    def between_tasks(number: int) -> None:
        if world.kubelet.drivers_run == 1 and number == before_task:
            drop(world.place)
            if make_again:
                world.place.create(SCHEMA)
            raise Killed

    world.kubelet.between_tasks = between_tasks


@pytest.fixture(params=["iceberg", "lance"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(on_disk(tmp_path, request.param))


@pytest.mark.parametrize("make_again", [True, False], ids=["made again by somebody", "gone"])
def test_results_that_were_sealed_for_a_dropped_table_stall_before_any_more_work(
    world: World, source: Path, make_again: bool
) -> None:
    die_and_drop(world, before_task=2, make_again=make_again)
    world.apply(source, sink={**world.place.sink(), "create": True})

    world.until_stalled()

    assert world.status.reason == reasons.TABLE_REPLACED
    assert "attempt 1" in (world.status.message or "")
    assert (world.kubelet.drivers_run, world.kubelet.tasks_run) == (1, 2)


@pytest.mark.parametrize("make_again", [True, False], ids=["made again by somebody", "gone"])
def test_where_nothing_was_sealed_for_the_dropped_table_the_new_one_is_taken(
    world: World, source: Path, make_again: bool
) -> None:
    die_and_drop(world, before_task=0, make_again=make_again)
    world.apply(source, sink={**world.place.sink(), "create": True})

    world.until_committed()

    assert sorted(row["id"] for row in world.place.rows()) == list(range(200))
    assert world.kubelet.drivers_run == 2
