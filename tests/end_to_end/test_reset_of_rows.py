"""Rows that are sealed and not committed are computed again where the manifest says so (`spec.reset`). Without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpoint_control.decision.actions import Close, Finish
from checkpoint_control.pipelines.shown import plan_stages
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.store.object_store import open_store
from tests.support import vectors
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.places import LancePlace, Place
from tests.support.writes import drive, manifest_for, reconciler_for, write_inputs


def manifest_of(place: Place, folder: Path, **more: Any) -> CheckpointedWrite:
    step = {"call": "tests.support.vectors:copy", "input": "row", "output": {"copy": "string"}}
    checkpoint = {"uri": place.checkpoint_uri, "interval": "1h", "maximumRows": 5}
    return manifest_for(place, folder, steps=[step], sink={"create": True}, checkpoint=checkpoint, **more)


@pytest.mark.parametrize("is_reset", [True, False])
def test_what_is_sealed_is_computed_again_after_a_reset_and_the_table_has_each_row_once(
    lance_place: Place, tmp_path: Path, *, is_reset: bool
) -> None:
    assert isinstance(lance_place, LancePlace)
    folder = write_inputs(tmp_path / "in", 4, 10)
    vectors.CALLED.clear()
    killed: list[int] = []

    def kill(task: int) -> None:
        if task == 2 and not killed:
            killed.append(task)
            raise Killed

    store = open_store(lance_place.checkpoint_uri, lance_place.settings)
    drivers = DirectDrivers(store, lance_place.settings, between_tasks=kill)
    reconciler = reconciler_for(manifest_of(lance_place, folder), lance_place, drivers)
    while not any(isinstance(action, Close) for action in reconciler.step().actions):
        drivers.wait_a_moment()
    sealed = len(vectors.CALLED)
    assert 0 < sealed < 40
    vectors.CALLED.clear()
    manifest = manifest_of(lance_place, folder, **({"reset": {"nonce": "2"}} if is_reset else {}))
    (planned,) = plan_stages(manifest, store, lambda spec: "").stages
    assert planned.what == ("redo" if is_reset else "continue")

    done = drive(reconciler_for(manifest, lance_place))

    assert isinstance(done.outcome, Finish)
    assert len(vectors.CALLED) == (40 if is_reset else 40 - sealed)
    assert sorted(row["copy"] for row in lance_place.rows()) == sorted(f"zeile {number}" for number in range(40))
    assert done.commit is not None
    assert done.commit.attempts == 2
