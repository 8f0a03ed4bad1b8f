"""Two clusters on one checkpoint URI, and a cluster whose keys were lost: a write is known by its cluster's name and its own, and
its records by the keys. No row is there twice unseen, and none is lost."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from checkpoint_operator.config import OperatorConfig, RecordKeySettings
from checkpoint_protocol import reasons
from tests.controller.harness import KEYS_SECRET, WORKLOADS, World
from tests.support.driver_threads import Killed

EVERY_ROW_ONCE = list(range(200))


def ids(world: World) -> list[int]:
    return sorted(row["id"] for row in world.place.rows())


def cluster(world: World, name: str | None = None) -> World:
    """Another cluster, with keys of its own, on the same checkpoint URI and the same table."""
    return World(
        world.place,
        config=OperatorConfig(namespaces=("default",), workloads=WORKLOADS, allow_local_paths=True, cluster_name=name),
    )


def die_before(world: World, task: int) -> None:
    def die(number: int) -> None:
        if number == task:
            raise Killed

    world.kubelet.between_tasks = die


def go_on(world: World) -> None:
    world.kubelet.between_tasks = lambda number: None


def begin(world: World, source: Path) -> None:
    """Let the first driver seal two of the four tasks, and die."""
    die_before(world, 2)
    world.apply(source)
    world.until(lambda: len(world.api.pods) == 1 and not world.kubelet.join())


def lose_keys(world: World) -> Mapping[Any, Any]:
    """Empty the Secret, as a chart that is installed anew makes it; return the Secrets as they were."""
    kept = copy.deepcopy(world.api.secrets)
    world.api.put_secret(world.config.own_namespace, KEYS_SECRET)
    world.restart_operator()
    return kept


def bring_back(world: World, secrets: Mapping[Any, Any]) -> None:
    world.api.secrets.clear()
    world.api.secrets.update(copy.deepcopy(dict(secrets)))
    world.restart_operator()


@pytest.mark.parametrize("names", [(None, None), ("west", "east")], ids=["known by their ids", "named"])
def test_writes_of_one_name_in_two_clusters_that_run_at_once_are_two_writes(
    world: World, source: Path, names: tuple[str | None, str | None]
) -> None:
    here, there = (cluster(world, name) for name in names)

    begin(here, source)
    begin(there, source)
    go_on(here)
    go_on(there)
    there.until_committed()
    here.until_committed()

    assert here.status.write_uid != there.status.write_uid
    assert ids(world) == sorted(EVERY_ROW_ONCE * 2), "two writes of one table: each appends its rows, once"


@pytest.mark.parametrize("is_committed", [False, True], ids=["unfinished", "committed"])
def test_a_second_cluster_of_one_name_without_the_keys_of_the_first_is_refused(
    world: World, source: Path, is_committed: bool
) -> None:
    here, there = cluster(world, "prod"), cluster(world, "prod")
    begin(here, source)
    if is_committed:
        go_on(here)
        here.until_committed()

    there.apply(source)
    there.until(lambda: there.is_true("Stalled") or there.status.reason == reasons.RECORD_FORGED)

    assert there.status.reason in (reasons.RECORD_FORGED, reasons.FORMER_WRITE_FOUND)
    assert not there.api.pods
    go_on(here)
    here.until_committed()
    assert ids(world) == EVERY_ROW_ONCE


def test_a_write_whose_clusters_keys_were_lost_commits_nothing_until_they_are_back(world: World, source: Path) -> None:
    begin(world, source)
    kept = lose_keys(world)
    go_on(world)

    world.until(lambda: world.status.reason == reasons.RECORD_FORGED)
    world.pass_time(3_600)

    assert ids(world) == []
    assert not world.is_true("Committed")
    bring_back(world, kept)
    world.until_committed()
    assert ids(world) == EVERY_ROW_ONCE


def test_a_next_epoch_after_the_keys_were_lost_takes_no_row_again(world: World, source: Path) -> None:
    world.apply(source)
    world.until_committed()
    kept = lose_keys(world)

    world.edit(runNonce="2")
    world.until(lambda: world.status.reason == reasons.RECORD_FORGED)
    world.pass_time(3_600)

    assert ids(world) == EVERY_ROW_ONCE
    bring_back(world, kept)
    world.until(lambda: world.status.epoch == 2 and world.is_true("Committed"))
    assert ids(world) == EVERY_ROW_ONCE


def test_a_second_operator_on_a_namespace_is_told_which_one_works_there_and_goes_on_with_its_keys(
    world: World, source: Path
) -> None:
    keys = RecordKeySettings(secret_name=KEYS_SECRET)
    world.config = world.config.model_copy(update={"record_keys": keys})
    world.restart_operator()
    begin(world, source)
    first = world.config
    assert world.status.operator == f"{first.own_namespace}/{KEYS_SECRET}"

    world.config = first.model_copy(update={"own_namespace": "second-operator"})
    world.api.put_secret("second-operator", KEYS_SECRET)
    world.restart_operator()
    world.until(lambda: world.status.reason == reasons.RECORD_FORGED)

    message = world.status.message or ""
    assert f"the operator with the record keys {first.own_namespace}/{KEYS_SECRET} has worked on this write" in message
    assert "watch.namespaces" in message
    assert world.status.operator == f"{first.own_namespace}/{KEYS_SECRET}"

    world.api.secrets["second-operator", KEYS_SECRET] = world.api.secrets[first.own_namespace, KEYS_SECRET]
    world.restart_operator()
    go_on(world)
    world.until_committed()
    assert ids(world) == EVERY_ROW_ONCE
