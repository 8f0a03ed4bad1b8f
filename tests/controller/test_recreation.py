"""An object that is deleted and applied again is the same write: its name says so in the checkpoint store."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from checkpoint_operator.config import OperatorConfig
from checkpoint_operator.ends.deleting import ABANDON_ANNOTATION
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import NameRecord, encode
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_store import open_store
from tests.controller.harness import KEYS_SECRET, WORKLOADS, World
from tests.support.driver_threads import Killed
from tests.support.writes import write_inputs

EVERY_ROW_ONCE = list(range(200))


def ids(world: World) -> list[int]:
    return sorted(row["id"] for row in world.place.rows())


def uid_of(world: World) -> str:
    uid: str = world.body()["metadata"]["uid"]
    return uid


def paths_below(world: World, folder: str) -> list[str]:
    return [stored.path for stored in open_store(world.place.checkpoint_uri, world.place.settings).list(folder)]


def add_a_file(source: Path) -> None:
    write_inputs(source, files=5, rows=50)  # the first four again, unchanged but for their time
    (source / "part-4.parquet").rename(source / "part-9.parquet")


def begin_a_second_epoch(world: World, source: Path, tasks: int = 1) -> None:
    """Commit the first one, and have the drivers of the second die before this task."""
    world.apply(source)
    world.until_committed()
    add_a_file(source)
    stop_before(world, tasks)
    world.edit(runNonce="2", onReplaced="Skip")
    world.until(lambda: world.status.epoch == 2 and not world.kubelet.join() and len(world.api.pods) == 2)


def stop_before(world: World, tasks: int) -> None:
    """Have drivers die before this task."""

    def die(number: int) -> None:
        if number == tasks:
            raise Killed

    world.kubelet.between_tasks = die


def vanish(world: World) -> None:
    """Let the object go without the operator: its finalizer was removed by hand."""
    world.api.writes[world.key]["metadata"]["finalizers"] = []
    world.api.delete(world.key)


def go_on(world: World) -> None:
    world.kubelet.between_tasks = lambda number: None
    world.kubelet.instead.clear()


def test_what_is_committed_is_not_done_again(world: World, source: Path) -> None:
    world.apply(source)
    world.until_committed()
    first = uid_of(world)
    drivers = world.kubelet.drivers_run
    world.api.events.clear()

    world.recreate()
    world.until_committed()

    assert ids(world) == EVERY_ROW_ONCE
    assert world.kubelet.drivers_run == drivers
    assert uid_of(world) != first == world.status.write_uid
    assert world.status.rows_committed == 200
    accepted = world.condition("Accepted")
    assert accepted is not None
    assert (accepted.status, accepted.reason) == ("True", "Attached")
    assert first in accepted.message
    assert [event["reason"] for event in world.api.events] == ["Attached"]


def test_a_loop_that_deletes_and_applies_again_adds_nothing(world: World, source: Path) -> None:
    world.apply(source, ttlSecondsAfterFinished=60)
    for _ in range(4):
        world.until_committed()
        world.until(lambda: world.key not in world.api.writes, 10_000)
        world.edit()
    world.until_committed()

    assert ids(world) == EVERY_ROW_ONCE
    assert len(paths_below(world, "names")) == 1


def test_a_run_nonce_takes_what_came_since_the_object_before(world: World, source: Path) -> None:
    world.apply(source)
    world.until_committed()
    add_a_file(source)

    world.recreate(runNonce="2", onReplaced="Skip")
    world.until(lambda: world.status.epoch == 2 and world.is_true("Committed"))

    assert ids(world) == list(range(250))


@pytest.mark.parametrize("when", ["before the first look", "as the pod starts", "with some tasks sealed"])
def test_a_write_that_has_committed_nothing_leaves_nothing_behind_and_its_name_is_free(
    world: World, source: Path, when: str
) -> None:
    if when == "as the pod starts":
        world.kubelet.instead[1] = {"phase": "Running"}
    stop_before(world, 2)
    world.apply(source)
    first = uid_of(world)
    if when != "before the first look":
        world.until(lambda: bool(world.api.pods) and not world.kubelet.join())

    world.delete()

    assert paths_below(world, layout.staged_folder(first)) == []
    go_on(world)
    world.edit(sink={**world.manifest["spec"]["sink"]}, steps=[])
    world.until_committed()
    assert world.status.write_uid == uid_of(world) != first
    assert ids(world) == EVERY_ROW_ONCE


def test_a_second_epoch_that_is_deleted_before_its_commit_is_done_anew_and_the_first_stays(world: World, source: Path) -> None:
    begin_a_second_epoch(world, source, tasks=1)
    first = uid_of(world)

    world.delete()

    assert paths_below(world, f"staged/{first}/2/") == []
    assert paths_below(world, f"staged/{first}/1/") != []
    assert ids(world) == EVERY_ROW_ONCE
    go_on(world)
    world.edit()
    world.until_committed()
    assert ids(world) == list(range(250))
    assert (world.status.write_uid, world.status.epoch) == (first, 3)

    world.recreate()
    world.until_committed()
    assert ids(world) == list(range(250))


def test_an_unfinished_write_whose_object_vanished_is_taken_up_and_nothing_sealed_is_computed_again(
    world: World, source: Path
) -> None:
    """Its finalizer was removed by hand, or its cluster is gone, and was made anew from git."""
    stop_before(world, 2)
    world.apply(source)
    world.until(lambda: bool(world.api.pods) and not world.kubelet.join())
    first = uid_of(world)

    vanish(world)
    go_on(world)
    world.edit()
    world.until_committed()

    assert ids(world) == EVERY_ROW_ONCE
    assert (world.status.write_uid, world.status.attempt) == (first, 2)
    plan = Ledger(open_store(world.place.checkpoint_uri, world.place.settings), EpochKey(first, 1)).plans.read_plan(2)
    assert plan is not None
    assert plan.done_rows > 0


def test_an_object_from_an_old_backup_says_what_is_so_and_adds_nothing(world: World, source: Path) -> None:
    world.apply(source, onReplaced="Skip")
    world.until_committed()
    backup = copy.deepcopy(dict(world.body()))
    add_a_file(source)
    world.edit(runNonce="2")
    world.until(lambda: world.status.epoch == 2 and world.is_true("Committed"))
    world.delete()

    world.api.apply({**backup, "metadata": {"name": backup["metadata"]["name"]}})
    world.api.writes[world.key]["status"] = backup["status"]
    world.restart_operator()
    world.until(lambda: world.status.observed_uid == uid_of(world) and world.is_true("Committed"))

    assert ids(world) == list(range(250))
    assert (world.status.epoch or 0) >= 2, "not that of the backup"


def test_new_starts_over_once_for_each_object(world: World, source: Path) -> None:
    world.apply(source, onRecreate="New")
    world.until_committed()
    world.recreate()
    world.until(lambda: world.is_true("Committed"))
    assert len(ids(world)) == 400

    world.restart_operator()
    world.operator.controller._sessions.clear()
    world.edit(backoffLimit=5)
    world.until(lambda: world.status.observed_generation == 2)
    assert len(ids(world)) == 400

    world.recreate(onRecreate="Attach")
    world.until_committed()
    assert len(ids(world)) == 400


def test_new_ends_what_the_write_before_has_left(world: World, source: Path) -> None:
    stop_before(world, 2)
    world.apply(source)
    world.until(lambda: bool(world.api.pods) and not world.kubelet.join())
    first = uid_of(world)
    vanish(world)
    go_on(world)

    world.edit(onRecreate="New")
    world.until_committed()

    assert world.status.write_uid == uid_of(world) != first
    assert paths_below(world, layout.staged_folder(first)) == []
    assert ids(world) == EVERY_ROW_ONCE


def test_a_write_that_is_forgotten_is_a_new_one_under_its_name(world: World, source: Path) -> None:
    world.apply(source, deletionPolicy="Forget")
    world.until_committed()
    first = uid_of(world)
    world.recreate()
    assert paths_below(world, layout.staged_folder(first)) == []

    world.until_committed()

    assert world.status.write_uid == uid_of(world)
    assert len(ids(world)) == 400


def test_another_write_under_the_name_is_refused_with_the_way_out_and_its_deletion_touches_nothing(
    world: World, source: Path
) -> None:
    world.apply(source)
    world.until_committed()
    first, before = uid_of(world), paths_below(world, "")
    mine = world.manifest
    other = write_inputs(source.parent / "other", files=1, rows=10)

    world.recreate(source={"files": {"format": "parquet", "paths": [str(other)]}}, deletionPolicy="Forget")
    world.until_stalled()
    assert world.status.reason == reasons.IDENTITY_CHANGED
    assert "spec.onRecreate: New starts over" in (world.status.message or "")
    world.delete()

    assert paths_below(world, "") == before
    world.manifest = mine
    world.edit()
    world.until_committed()
    assert world.status.write_uid == first
    assert ids(world) == EVERY_ROW_ONCE


def test_another_write_under_the_name_starts_over_where_its_author_says_so(world: World, source: Path) -> None:
    world.apply(source)
    world.until_committed()
    other = write_inputs(source.parent / "other", files=1, rows=10)
    world.recreate(source={"files": {"format": "parquet", "paths": [str(other)]}})
    world.until_stalled()

    world.edit(onRecreate="New")
    world.until_committed()

    assert len(ids(world)) == 210


@pytest.mark.parametrize("policy", ["Retain", "Forget"])
def test_a_deletion_that_is_abandoned_retires_what_is_not_committed_only(world: World, source: Path, policy: str) -> None:
    begin_a_second_epoch(world, source)
    world.edit(deletionPolicy=policy)
    world.api.annotate(world.key, ABANDON_ANNOTATION, "true")

    world.delete()
    go_on(world)
    world.edit()
    world.until_committed()

    assert len(ids(world)) == (250 if policy == "Retain" else 450)


def test_two_clusters_on_one_checkpoint_uri_do_not_meet(world: World, source: Path) -> None:
    world.apply(source)
    world.until_committed()
    before = paths_below(world, "")
    named = OperatorConfig(namespaces=("default",), workloads=WORKLOADS, allow_local_paths=True, cluster_name="other")
    other = World(world.place, config=named)

    other.apply(source, deletionPolicy="Forget")
    other.until_committed()
    other.delete()

    assert len(ids(world)) == 400
    assert set(before) <= set(paths_below(world, ""))
    world.recreate()
    world.until_committed()
    assert len(ids(world)) == 400


def test_a_cluster_that_is_made_anew_goes_on_by_its_name_and_its_keys(world: World, source: Path) -> None:
    config = OperatorConfig(namespaces=("default",), workloads=WORKLOADS, allow_local_paths=True, cluster_name="prod")
    here = World(world.place, config=config)
    here.apply(source)
    here.until_committed()
    anew = World(world.place, config=config)
    anew.api.secrets = copy.deepcopy(here.api.secrets)
    anew.restart_operator()

    anew.apply(source)
    anew.until_committed()

    assert ids(world) == EVERY_ROW_ONCE
    assert anew.status.write_uid == uid_of(here)


def test_the_same_name_under_another_checkpoint_uri_is_refused_until_its_author_asks_for_all_rows_once_more(
    world: World, source: Path
) -> None:
    world.apply(source)
    world.until_committed()
    world.delete()
    elsewhere = {"uri": f"{world.place.checkpoint_uri}-2", "interval": "1h"}

    world.apply(source, checkpoint=elsewhere)
    world.until_stalled()

    assert world.status.reason == reasons.FORMER_WRITE_FOUND
    assert "set spec.onRecreate to New" in (world.status.message or "")
    assert ids(world) == EVERY_ROW_ONCE

    world.edit(checkpoint={"uri": world.place.checkpoint_uri, "interval": "1h"})
    world.until_committed()
    assert ids(world) == EVERY_ROW_ONCE
    world.delete()

    world.apply(source, checkpoint=elsewhere, onRecreate="New")
    world.until_committed()
    assert ids(world) == sorted(EVERY_ROW_ONCE * 2)


def test_an_object_that_is_made_again_after_the_keys_were_emptied_is_refused(world: World, source: Path) -> None:
    world.apply(source)
    world.until_committed()
    vanish(world)
    world.api.secrets.clear()
    world.api.put_secret(world.config.own_namespace, KEYS_SECRET)
    world.restart_operator()

    world.apply(source)
    world.until_stalled()

    assert world.status.reason == reasons.FORMER_WRITE_FOUND
    assert ids(world) == EVERY_ROW_ONCE


def test_a_name_that_a_stranger_has_put_is_refused(world: World, source: Path) -> None:
    """Whoever may write to the store could otherwise have the object act on another write."""
    cluster = world.operator.controller.cluster
    path = layout.name_path(layout.scope_in_cluster(cluster, "default"), "write")
    store = open_store(world.place.checkpoint_uri, world.place.settings)
    store.put_if_absent(path, encode(NameRecord(token="0" * 32, uid="another-write")))

    world.apply(source)
    world.until_stalled()

    assert world.status.reason == reasons.RECORD_FORGED
    assert path in (world.status.message or "")


class Stale:
    """The operator's cache has an object of before: the watch lags behind the deletion, and another has the name since."""

    def __init__(self, world: World, **spec: Any) -> None:
        self.world, self.body = world, copy.deepcopy(dict(world.body()))
        self.body["spec"] = {**self.body["spec"], **spec}

    def look(self, **metadata: Any) -> None:
        world = self.world
        now = world.cache.write(world.key)
        assert now is not None
        world.cache._writes[world.key] = {**self.body, "metadata": {**self.body["metadata"], **metadata}}
        world.operator.controller._sessions.clear()
        world.operator.controller.reconcile(world.key)
        world.cache._writes[world.key] = now
        world.operator.controller._sessions.clear()


@pytest.mark.parametrize("change", [{"onRecreate": "New"}, {"runNonce": "old"}, {}], ids=["New", "runNonce", "nothing"])
def test_an_operator_that_still_sees_the_object_before_does_nothing_in_its_name(
    world: World, source: Path, change: dict[str, Any]
) -> None:
    world.apply(source, deletionPolicy="Forget" if "onRecreate" in change else "Retain")
    world.until_committed()
    stale = Stale(world, **change)
    world.recreate()
    world.until_committed()
    before, rows = paths_below(world, ""), ids(world)

    # Of another generation than that which the status was told of, so that it is not taken for finished.
    stale.look(generation=7)

    world.pass_time(60)
    assert paths_below(world, "") == before
    assert ids(world) == rows


@pytest.mark.parametrize("policy", ["Retain", "Forget"])
def test_an_operator_that_still_deletes_the_object_before_ends_nothing_of_the_one_after(
    world: World, source: Path, policy: str
) -> None:
    world.apply(source)
    world.until_committed()
    stale = Stale(world, deletionPolicy=policy)
    world.recreate()
    world.until_committed()
    add_a_file(source)
    stop_before(world, 1)
    world.edit(runNonce="2", onReplaced="Skip")
    world.until(lambda: world.status.epoch == 2 and bool(world.api.pods) and not world.kubelet.join())

    stale.look(deletionTimestamp="2026-01-01T00:00:00Z")

    go_on(world)
    world.until(lambda: world.status.epoch == 2 and world.is_true("Committed"), 10_000)
    assert ids(world) == list(range(250))
