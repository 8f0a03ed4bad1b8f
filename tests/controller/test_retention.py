"""The operator cleans what committed epochs have staged once it is old enough, and nothing before."""

from __future__ import annotations

from pathlib import Path

from checkpoint_operator.config import OperatorConfig
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_store import open_store
from tests.controller.harness import WORKLOADS, World
from tests.support.checks import assert_exactly_once
from tests.support.places import on_disk
from tests.support.writes import SCHEMA, write_inputs

DAY_S = 86_400


def staged(world: World) -> list[str]:
    store = open_store(world.place.checkpoint_uri, world.place.settings)
    return sorted(stored.path for stored in store.list(layout.staged_folder(world.status.write_uid or "")))


def let_pass(world: World, seconds: float) -> None:
    """Let time pass at once, and do what is due then."""
    world.clock.now_s += seconds
    world.operator.queue.add(world.key)
    world.until(lambda: not world.operator.queue.count_due())


def test_a_committed_epoch_is_cleaned_after_the_retention_and_the_write_goes_on(tmp_path: Path) -> None:
    place = on_disk(tmp_path, "iceberg")
    place.create(SCHEMA)
    config = OperatorConfig(namespaces=("default",), workloads=WORKLOADS, allow_local_paths=True, retention_days=1)
    world = World(place, config=config)
    source = write_inputs(tmp_path / "in", files=4, rows=50)
    world.apply(source)
    world.until_committed()
    before = staged(world)

    let_pass(world, DAY_S / 2)
    assert staged(world) == before
    let_pass(world, 5_000 * DAY_S)  # the clock of the store is that of the disk

    assert staged(world) == [f"staged/{world.status.write_uid}/1/input.json"]
    assert world.is_true("Committed")
    write_inputs(source, files=5, rows=50)
    world.edit(runNonce="2", onReplaced="Skip")
    world.until(lambda: world.status.epoch == 2 and world.is_true("Committed"))
    assert_exactly_once(place, range(250))


def test_a_manifest_may_keep_what_it_has_staged_for_longer(world: World, source: Path) -> None:
    world.config = OperatorConfig(namespaces=("default",), workloads=WORKLOADS, allow_local_paths=True, retention_days=1)
    world.restart_operator()
    world.apply(source, checkpoint={"uri": world.place.checkpoint_uri, "interval": "1h", "retention": "876000h"})
    world.until_committed()
    before = staged(world)

    let_pass(world, 5_000 * DAY_S)

    assert staged(world) == before
