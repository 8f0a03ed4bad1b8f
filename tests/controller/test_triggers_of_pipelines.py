"""A pipeline with a trigger: each epoch takes what is new through all stages, whoever ends on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import of_the_source
from checkpoint_protocol.records import Began
from checkpoint_protocol.writes import list_stages
from tests.controller.harness import World
from tests.controller.test_triggers import EVERY_MINUTE, drivers_of, ids, put_file, until_up_to_date
from tests.support.driver_threads import Killed
from tests.support.pipelines import CALLS, FAILING, STAGES, TABLE, VERSIONS
from tests.support.places import on_disk


@pytest.fixture
def world(tmp_path: Path) -> World:
    place = on_disk(tmp_path, "iceberg")
    place.create(TABLE)
    CALLS.clear()
    FAILING.clear()
    VERSIONS.update(dict.fromkeys(STAGES, 1))
    return World(place)


def stages(argument: str = "a") -> list[dict[str, Any]]:
    """Return stages whose columns are declared, so that nothing is called on a sample."""
    return [
        {
            "name": name,
            "steps": [
                {
                    "call": f"tests.support.pipelines:{name}",
                    "input": "row",
                    "arguments": {"argument": argument},
                    "output": {"id": "int64", **dict.fromkeys(STAGES[: number + 1], "string")},
                }
            ],
        }
        for number, name in enumerate(STAGES)
    ]


def key_of(world: World, epoch: int) -> EpochKey:
    return EpochKey(world.status.write_uid or "", epoch)


def stages_begun(world: World, epoch: int) -> list[str]:
    """Return the stages of an epoch that have begun, the last one included."""
    key = key_of(world, epoch)
    begun = [one.stage.partition("-")[0] for one in list_stages(world.store(), key)]
    return [*begun, *(["third"] if Ledger(world.store(), key).attempts.list_attempts() else [])]


def began(world: World, epoch: int) -> Began:
    launch = of_the_source(Ledger(world.store(), key_of(world, epoch))).attempts.read_launch(1)
    assert launch is not None
    assert launch.began is not None
    return launch.began


def test_new_files_go_through_all_stages_as_an_epoch_and_nothing_is_computed_again(world: World, source: Path) -> None:
    world.apply(source, stages=stages(), trigger=EVERY_MINUTE)
    until_up_to_date(world, 1)
    put_file(source, "a-late-file.parquet", range(200, 210))
    until_up_to_date(world, 2)

    assert ids(world) == list(range(210))
    assert {CALLS[stage, 1] for stage in STAGES} == {210}
    assert len(world.place.keys()) == 2
    assert (began(world, 1).why, began(world, 2).why, began(world, 2).files) == ("First", "Trigger", 1)
    writes = list(world.api.writes_made)
    world.pass_time(3_600)
    assert (world.status.epoch, world.api.writes_made) == (2, writes), "nothing is new"


def test_what_is_more_than_at_most_goes_through_the_stages_in_epochs_that_follow_at_once(world: World, source: Path) -> None:
    world.apply(source, stages=stages(), trigger={"every": "24h", "atMost": {"files": 1}})

    until_up_to_date(world, len(list(source.iterdir())))

    assert world.clock.now_s < 3_600
    assert ids(world) == list(range(200))
    assert {CALLS[stage, 1] for stage in STAGES} == {200}


def test_the_schedule_counts_from_the_beginning_of_the_first_stage_also_for_an_operator_that_begins_anew(
    world: World, source: Path
) -> None:
    world.apply(source, stages=stages(), trigger={"every": "1h"})
    until_up_to_date(world, 1)
    put_file(source, "b.parquet", range(200, 210))
    world.restart_operator()

    world.pass_time(3_000)
    assert world.status.epoch == 1
    world.pass_time(700)
    until_up_to_date(world, 2)

    assert ids(world) == list(range(210))


@pytest.mark.parametrize("stage", STAGES)
def test_an_operator_and_a_driver_that_end_in_a_stage_of_the_second_epoch_cost_neither_rows_nor_the_cause(
    world: World, source: Path, stage: str
) -> None:
    killed: list[bool] = []

    def kill(number: int) -> None:
        if number and not killed and stage in stages_begun(world, 2):
            killed.append(True)
            raise Killed

    world.apply(source, stages=stages(), trigger=EVERY_MINUTE, checkpoint={"uri": world.place.checkpoint_uri, "maximumRows": 2})
    until_up_to_date(world, 1)
    world.kubelet.between_tasks = kill
    for number in range(4):
        put_file(source, f"b-{number}.parquet", range(200 + 10 * number, 210 + 10 * number))
    world.until(lambda: bool(killed))
    world.restart_operator()

    until_up_to_date(world, 2)

    assert ids(world) == list(range(240))
    assert {CALLS[one, 1] for one in STAGES} == {240}, "what was sealed is not computed again"
    assert (began(world, 2).why, began(world, 2).files) == ("Trigger", 4)


def test_a_first_stage_that_is_edited_in_an_epoch_is_done_anew_for_the_same_cause(world: World, source: Path) -> None:
    killed: list[bool] = []

    def edit_and_die(number: int) -> None:
        if not killed and "second" in stages_begun(world, 2):
            killed.append(True)
            world.edit(stages=stages("b"))
            raise Killed

    world.apply(source, stages=stages(), trigger=EVERY_MINUTE)
    until_up_to_date(world, 1)
    world.kubelet.between_tasks = edit_and_die
    put_file(source, "b.parquet", range(200, 210))
    world.until(lambda: bool(killed))
    world.restart_operator()
    until_up_to_date(world, 2)

    assert {row["first"].partition(" ")[0] for row in world.place.rows() if row["id"] >= 200} == {"b"}
    assert ids(world) == list(range(210))
    assert began(world, 2).why == "Trigger"


def test_a_driver_that_waits_for_the_next_epoch_does_all_of_its_stages(world: World, source: Path) -> None:
    world.apply(source, stages=stages(), trigger={"every": "1s", "keepDriver": "1h"})
    until_up_to_date(world, 1)
    for number in range(2):
        put_file(source, f"b-{number}.parquet", range(200 + number, 201 + number))
        until_up_to_date(world, 2 + number)

    assert (len(drivers_of(world)), world.kubelet.drivers_run) == (1, 1)
    assert ids(world) == list(range(202))


def test_a_driver_that_is_lost_while_it_waits_for_the_next_epoch_costs_no_attempt(world: World, source: Path) -> None:
    world.apply(source, stages=stages(), trigger={"every": "1s", "keepDriver": "1h"})
    until_up_to_date(world, 1)
    for namespace, name in list(world.api.pods):
        world.api.delete_pod(namespace, name, world.api.pods[namespace, name]["metadata"]["uid"])
    put_file(source, "b.parquet", range(200, 210))
    until_up_to_date(world, 2)

    assert world.kubelet.drivers_run == 2
    assert ids(world) == list(range(210))
    launches = [Ledger(world.store(), one).attempts.list_attempts() for one in list_stages(world.store(), key_of(world, 2))]
    assert launches == [[1], [1]]
