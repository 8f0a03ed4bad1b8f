"""Overwrites by the whole loop on one machine: deaths of the runner, rows of others, the next epoch, what others read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.loop.reconcile import Round
from checkpoint_protocol import reasons
from checkpoint_protocol.store.object_store import open_store
from tests.end_to_end.test_read_back import load_duckdb_extensions
from tests.support.crashes import Died, DyingStore, Effects, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import IcebergPlace, on_disk
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

ROWS = 400
STRANGER = range(10_000, 10_003)
ALL = {"mode": "OverwriteAll"}


@pytest.fixture
def place(tmp_path: Path) -> IcebergPlace:
    """A table with rows of a stranger."""
    return make(tmp_path / "place")


def make(folder: Path) -> IcebergPlace:
    made = on_disk(folder, "iceberg")
    assert isinstance(made, IcebergPlace)
    made.create(SCHEMA)
    made.append(rows_of(STRANGER))
    return made


def run(place: IcebergPlace, source: Path, **spec: Any) -> Round:
    return drive(reconciler_for(manifest_for(place, source, **{"sink": ALL, **spec}), place))


def run_until_death(place: IcebergPlace, source: Path, effects: Effects) -> bool:
    manifest = manifest_for(place, source, sink=ALL)
    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings)
    try:
        drive(reconciler_for(manifest, place, drivers, DyingStore(store, effects), dying_sink(manifest, place.settings, effects)))
    except Died:
        drivers.finish()
        return True
    return False


def ids(place: IcebergPlace) -> list[int]:
    return sorted(row["id"] for row in place.rows())


@pytest.mark.slow
def test_a_death_around_each_effect_of_the_runner_leaves_one_overwrite_with_every_row_once(tmp_path: Path) -> None:
    source, effects = write_inputs(tmp_path / "in"), Effects()
    assert not run_until_death(make(tmp_path / "clean"), source, effects)
    assert "swap" in effects.names

    for point, name in enumerate(effects.names):
        for after in (False, True):
            place = make(tmp_path / f"{point}-{after}")
            assert run_until_death(place, source, Effects(point, after)), (name, after)

            ended = run(place, source)

            assert isinstance(ended.outcome, Finish), (name, after, ended.outcome)
            assert ids(place) == list(range(ROWS)), (name, after)
            assert len(place.keys()) == 1, (name, after)


@pytest.mark.slow
def test_rows_that_a_stranger_adds_between_two_attempts_are_not_replaced_unasked(place: IcebergPlace, tmp_path: Path) -> None:
    source, effects = write_inputs(tmp_path / "in"), Effects()
    assert not run_until_death(make(tmp_path / "clean"), source, effects)
    launched = next(number for number, name in enumerate(effects.names) if "launch/" in name)
    assert run_until_death(place, source, Effects(launched, True))
    place.append(rows_of([20_000]))

    stopped = run(place, source)

    assert isinstance(stopped.outcome, Stall)
    assert stopped.outcome.reason == reasons.TABLE_WRITTEN_MEANWHILE
    assert ids(place) == [*STRANGER, 20_000]
    assert isinstance(run(place, source, sink={**ALL, "onConcurrent": "Replace"}).outcome, Finish)
    assert ids(place) == list(range(ROWS))


def test_the_next_epoch_reads_the_whole_source_again_replaced_and_removed_files_too(place: IcebergPlace, tmp_path: Path) -> None:
    source = write_inputs(tmp_path / "in")
    run(place, source)
    (source / "part-0.parquet").unlink()
    shutil.copy(source / "part-1.parquet", source / "part-3.parquet")

    ended = run(place, source, runNonce="2")

    assert isinstance(ended.outcome, Finish)
    assert ids(place) == sorted([*range(100, 200), *range(200, 300), *range(100, 200)])
    assert len(place.keys()) == 2


def test_a_source_without_rows_empties_the_table_and_is_done(place: IcebergPlace, tmp_path: Path) -> None:
    source = write_inputs(tmp_path / "in", files=1, rows=0)

    ended = run(place, source)

    assert isinstance(ended.outcome, Finish)
    assert ids(place) == []


def test_a_table_that_was_overwritten_reads_the_same_by_duckdb(place: IcebergPlace, tmp_path: Path) -> None:
    run(place, write_inputs(tmp_path / "in"))
    place.append(rows_of(STRANGER))
    run(place, write_inputs(tmp_path / "other", files=1), name="second", sink={"mode": "OverwritePartitions"})

    connection = duckdb.connect(config={"extension_directory": str(tmp_path / "duckdb")})
    load_duckdb_extensions(connection)
    metadata = place.table().metadata_location.removeprefix("file://")
    found = connection.sql(f"SELECT id FROM iceberg_scan('{metadata}') ORDER BY id").fetchall()
    connection.close()

    assert [number for (number,) in found] == ids(place) == list(range(100))
