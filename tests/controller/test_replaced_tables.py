"""The table is dropped while a write is not committed yet, or between two epochs: nothing is computed for nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from checkpoint_protocol import reasons
from tests.controller.harness import World
from tests.support.driver_threads import Killed
from tests.support.places import IcebergPlace, LancePlace, Place, on_disk
from tests.support.slow import slow_except, slow_except_on
from tests.support.writes import SCHEMA, rows_of


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
@slow_except_on("world", "iceberg")
def test_results_that_were_sealed_for_a_dropped_table_stall_before_any_more_work(
    world: World, source: Path, make_again: bool
) -> None:
    die_and_drop(world, before_task=2, make_again=make_again)
    world.apply(source, sink={**world.place.sink(), "create": True})

    world.until_stalled()

    assert world.status.reason == reasons.TABLE_REPLACED
    assert "attempt 1" in (world.status.message or "")
    assert (world.kubelet.drivers_run, world.kubelet.tasks_run) == (1, 2)


@pytest.mark.parametrize("make_again", slow_except([True, False], True), ids=["made again by somebody", "gone"])
@slow_except_on("world", "lance")
def test_where_nothing_was_sealed_for_the_dropped_table_the_new_one_is_taken(
    world: World, source: Path, make_again: bool
) -> None:
    die_and_drop(world, before_task=0, make_again=make_again)
    world.apply(source, sink={**world.place.sink(), "create": True})

    world.until_committed()

    assert sorted(row["id"] for row in world.place.rows()) == list(range(200))
    assert world.kubelet.drivers_run == 2


# --- between two epochs -----------------------------------------------------------------------------------------------------


def drop_after_a_commit(world: World, source: Path) -> None:
    """The first epoch is committed, its table dropped, and files come for another epoch."""
    world.apply(source, sink={**world.place.sink(), "create": True})
    world.until_committed()
    drop(world.place)
    pq.write_table(rows_of(range(200, 250)), source / "later.parquet")
    world.edit(runNonce="2")


@slow_except_on("world", "iceberg")
def test_no_table_is_made_of_the_new_rows_alone_where_the_one_with_the_rows_before_was_dropped(
    world: World, source: Path
) -> None:
    drop_after_a_commit(world, source)

    world.until_stalled()

    assert world.status.reason == reasons.TABLE_MISSING
    assert "is gone, and with it" in (world.status.message or "")
    assert "epoch 1: 200 rows" in (world.status.message or "")
    assert world.kubelet.drivers_run == 1


def test_one_that_is_made_by_hand_then_as_the_message_says_gets_the_new_rows(world: World, source: Path) -> None:
    drop_after_a_commit(world, source)
    world.until_stalled()

    world.place.create(SCHEMA)
    world.until(lambda: world.status.epoch == 2 and world.is_true("Committed"))

    assert sorted(row["id"] for row in world.place.rows()) == list(range(200, 250))


@pytest.mark.parametrize("mode", slow_except(["OverwriteAll", "OverwritePartitions"], "OverwriteAll"))
def test_an_epoch_that_reads_the_whole_source_makes_a_table_that_is_gone_anew(source: Path, tmp_path: Path, mode: str) -> None:
    world = World(on_disk(tmp_path, "iceberg"))
    world.apply(source, sink={**world.place.sink(), "create": True, "mode": mode})
    world.until_committed()
    drop(world.place)
    pq.write_table(rows_of(range(200, 250)), source / "later.parquet")

    world.edit(runNonce="2")
    world.until(lambda: world.status.epoch == 2 and world.is_true("Committed"))

    assert sorted(row["id"] for row in world.place.rows()) == list(range(250))
