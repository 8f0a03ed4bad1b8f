"""Overwrites of Lance datasets by the whole loop on one machine: deaths of the runner, and rows of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.loop.reconcile import Round
from checkpoint_protocol import reasons
from checkpoint_protocol.store.object_store import open_store
from tests.support.crashes import Died, DyingStore, Effects, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import LancePlace, on_disk
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

ROWS = 400
STRANGER = [10_000, 10_001, 20_000]
#: With what is left of the stranger's rows.
SINKS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "all": ({"mode": "OverwriteAll"}, []),
    "where": ({"mode": "OverwriteWhere", "where": "id < 15000"}, [20_000]),
}


def make(folder: Path) -> LancePlace:
    """Make a dataset with rows of a stranger."""
    made = on_disk(folder, "lance")
    assert isinstance(made, LancePlace)
    made.create(SCHEMA)
    made.append(rows_of(STRANGER))
    return made


def run(place: LancePlace, source: Path, sink: dict[str, Any]) -> Round:
    return drive(reconciler_for(manifest_for(place, source, sink=sink), place))


def run_until_death(place: LancePlace, source: Path, sink: dict[str, Any], effects: Effects) -> bool:
    manifest = manifest_for(place, source, sink=sink)
    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings)
    try:
        drive(reconciler_for(manifest, place, drivers, DyingStore(store, effects), dying_sink(manifest, place.settings, effects)))
    except Died:
        drivers.finish()
        return True
    return False


def ids(place: LancePlace) -> list[int]:
    return sorted(row["id"] for row in place.rows())


@pytest.mark.parametrize("mode", SINKS)
def test_a_death_around_each_effect_of_the_commit_leaves_one_overwrite_with_every_row_once(tmp_path: Path, mode: str) -> None:
    sink, left = SINKS[mode]
    source, effects = write_inputs(tmp_path / "in"), Effects()
    assert not run_until_death(make(tmp_path / "clean"), source, sink, effects)
    first = next(number for number, name in enumerate(effects.names) if "claim" in name)
    assert {"swap", "update"} & {*effects.names[first:]}

    for point, name in list(enumerate(effects.names))[first:]:
        for after in (False, True):
            place = make(tmp_path / f"{point}-{after}")
            assert run_until_death(place, source, sink, Effects(point, after)), (name, after)

            ended = run(place, source, sink)

            assert isinstance(ended.outcome, Finish), (name, after, ended.outcome)
            assert ids(place) == [*range(ROWS), *left], (name, after)
            assert len(place.keys()) == 1, (name, after)


@pytest.mark.slow
@pytest.mark.parametrize("mode", SINKS)
def test_rows_that_a_stranger_adds_between_two_attempts_are_not_replaced_unasked(tmp_path: Path, mode: str) -> None:
    sink, left = SINKS[mode]
    source, effects = write_inputs(tmp_path / "in"), Effects()
    assert not run_until_death(make(tmp_path / "clean"), source, sink, effects)
    launched = next(number for number, name in enumerate(effects.names) if "launch/" in name)
    place = make(tmp_path / "place")
    assert run_until_death(place, source, sink, Effects(launched, True))
    place.append(rows_of([10_002]))

    stopped = run(place, source, sink)

    assert isinstance(stopped.outcome, Stall)
    assert stopped.outcome.reason == reasons.TABLE_WRITTEN_MEANWHILE
    assert ids(place) == [*STRANGER[:2], 10_002, 20_000]
    assert isinstance(run(place, source, {**sink, "onConcurrent": "Replace"}).outcome, Finish)
    assert ids(place) == [*range(ROWS), *left]
