"""Upserts by the whole loop on one machine: deaths of the runner and of drivers, and what others read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_control.decision.actions import Finish
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.store.object_store import open_store
from checkpoint_protocol.writes import list_stages
from devtools.rest_catalog import RestCatalog
from devtools.spark_iceberg import iceberg_spark_runtime
from tests.end_to_end.test_read_back import SPARK_READER, load_duckdb_extensions
from tests.support.command_line import CommandLine, driver_of, kill, wait_for_end
from tests.support.crashes import Died, DyingStore, Effects, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.format_3 import on_rest
from tests.support.places import IcebergPlace, on_disk
from tests.support.slow import slow_except
from tests.support.waiting import patience, until
from tests.support.writes import drive, manifest_for, reconciler_for

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
UPSERT: dict[str, Any] = {"mode": "Upsert", "upsertKeys": ["id"]}
IGNORE: dict[str, Any] = {**UPSERT, "whenMatched": "Ignore"}
WAYS = ("merge-on-read", "copy-on-write")
STAGES = {"merge-on-read": "merge", "copy-on-write": "rewrite"}
Rows = list[tuple[int, str]]


def rows_of(numbers: range, text: str) -> pa.Table:
    return pa.table([list(numbers), [text] * len(numbers)], schema=SCHEMA)


def make(folder: Path, way: str, catalog: RestCatalog | None = None) -> IcebergPlace:
    """Return a table of 30 old rows in three files: of format 3 if a REST catalog is given."""
    made = on_disk(folder, "iceberg") if catalog is None else on_rest(folder, catalog)
    assert isinstance(made, IcebergPlace)
    made.create(SCHEMA)
    with made.table().transaction() as transaction:
        transaction.set_properties({"write.merge.mode": way})
    for start in (0, 10, 20):
        made.append(rows_of(range(start, start + 10), "old"))
    return made


def write_input(folder: Path) -> Path:
    folder.mkdir()
    pq.write_table(rows_of(range(5, 20), "new"), folder / "a.parquet")
    pq.write_table(rows_of(range(28, 35), "new"), folder / "b.parquet")
    return folder


EXPECTED: Rows = sorted(
    [
        *((number, "old") for number in (*range(5), *range(20, 28))),
        *((number, "new") for number in (*range(5, 20), *range(28, 35))),
    ]
)
#: With whenMatched: Ignore.
NOT_MATCHED: Rows = [*((number, "old") for number in range(30)), *((number, "new") for number in range(30, 35))]


def rows_in(place: IcebergPlace) -> Rows:
    return sorted((row["id"], row["text"]) for row in place.rows())


def run_until_death(place: IcebergPlace, source: Path, effects: Effects, sink: dict[str, Any] = UPSERT) -> bool:
    manifest = manifest_for(place, source, sink=sink)
    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings)
    try:
        drive(reconciler_for(manifest, place, drivers, DyingStore(store, effects), dying_sink(manifest, place.settings, effects)))
    except Died:
        drivers.finish()
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(("sink", "expected"), [(UPSERT, EXPECTED), (IGNORE, NOT_MATCHED)], ids=["update", "ignore"])
def test_a_death_around_each_effect_of_the_runner_leaves_one_upsert_with_every_key_once(
    tmp_path: Path, request: pytest.FixtureRequest, way: str, version: int, sink: dict[str, Any], expected: Rows
) -> None:
    catalog = request.getfixturevalue("rest_catalog") if version == 3 else None
    source, effects = write_input(tmp_path / "in"), Effects()
    assert not run_until_death(make(tmp_path / "clean", way, catalog), source, effects, sink)
    assert "swap" in effects.names
    assert any(f"/stages/{STAGES[way]}-" in name for name in effects.names)

    for point, name in enumerate(effects.names):
        for after in (False, True):
            place = make(tmp_path / f"{point}-{after}", way, catalog)
            assert run_until_death(place, source, Effects(point, after), sink), (name, after)

            ended = drive(reconciler_for(manifest_for(place, source, sink=sink), place))

            assert isinstance(ended.outcome, Finish), (name, after, ended.outcome)
            assert rows_in(place) == expected, (name, after)
            assert len(place.keys()) == 1, (name, after)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", [2, 3])
def test_drivers_that_die_before_each_task_of_the_merge_leave_every_key_once(
    tmp_path: Path, request: pytest.FixtureRequest, way: str, version: int
) -> None:
    catalog = request.getfixturevalue("rest_catalog") if version == 3 else None
    place, source = make(tmp_path / "place", way, catalog), write_input(tmp_path / "in")
    manifest = manifest_for(place, source, sink=UPSERT)
    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings)

    def die(number: int) -> None:
        # Of the rows' driver nothing; of the merge's first one before its second task, of the second one before its first.
        if (drivers.started, number) in ((2, 1), (3, 0)):
            raise Killed

    drivers.between_tasks = die
    begun = reconciler_for(manifest, place, drivers, store)

    assert isinstance(drive(begun).outcome, Finish)
    assert rows_in(place) == EXPECTED
    (stage,) = [Ledger(store, key) for key in list_stages(store, begun.observer.current_ledger.key)]
    assert stage.attempts.list_attempts() == [1, 2, 3]
    assert begun.observer.current_ledger.attempts.list_attempts() == [1]


@pytest.mark.spark
@pytest.mark.parametrize("kind", slow_except(["iceberg", "lance"], "iceberg"))
def test_an_upsert_starts_one_driver_process_and_the_run_ends_with_its_commit(tmp_path: Path, kind: str) -> None:
    place = on_disk(tmp_path / "place", kind)
    place.create(SCHEMA)
    place.append(rows_of(range(30), "old"))
    command = CommandLine(tmp_path / "cli", place, manifest_for(place, write_input(tmp_path / "in"), sink=UPSERT))

    code, output = command.run()

    assert code == 0, output
    assert sorted((row["id"], row["text"]) for row in place.rows()) == EXPECTED
    ledger = command.ledger()
    assert ledger is not None
    stages = list_stages(ledger.store, ledger.key)
    assert [Ledger(ledger.store, key).attempts.list_attempts() for key in (*stages, ledger.key)] == [[1], [1]]
    assert [log.name for log in command.folder.rglob("driver-*.log")] == ["driver-1-1.log"]


@pytest.mark.slow
@pytest.mark.spark
def test_a_driver_killed_in_the_merge_is_followed_by_one_that_does_the_rest_and_others_read_what_is_there(
    tmp_path: Path,
) -> None:
    place = on_disk(tmp_path / "place", "iceberg")
    assert isinstance(place, IcebergPlace)
    place.create(SCHEMA)
    files, rows = 60, 20_000
    for number in range(files):
        # Each file has numbers of the whole range, so that each is read.
        place.append(pa.table([range(number, files * rows, files), ["old"] * rows], schema=SCHEMA))
    (tmp_path / "in").mkdir()
    new = range(0, files * rows + 701, 701)
    assert new[-1] >= files * rows
    pq.write_table(rows_of(new, "new"), tmp_path / "in" / "a.parquet")
    checkpoint = {"uri": place.checkpoint_uri, "interval": "0.01s", "minimumBytes": "1"}
    command = CommandLine(tmp_path / "cli", place, manifest_for(place, tmp_path / "in", sink=UPSERT, checkpoint=checkpoint))
    runner = command.start()

    def merge() -> Ledger | None:
        ledger = command.ledger()
        stages = [] if ledger is None else list_stages(ledger.store, EpochKey(ledger.key.uid, 1))
        return Ledger(ledger.store, stages[0]) if ledger is not None and stages else None

    def seals(attempt: int) -> int:
        stage = merge()
        return 0 if stage is None else sum(stage.seals.list_links(attempt).values())

    until(lambda: seals(1) >= 1, "a seal of the merge")
    kill(driver_of(runner))
    code, output = wait_for_end(runner)

    assert code == 0, output
    stage = merge()
    assert stage is not None
    assert stage.attempts.list_attempts() == [1, 2], output
    launch = stage.attempts.read_launch(2)
    assert launch is not None
    assert launch.counted == (1,)
    read = [sum(seal.rows_read for seal in stage.chains.counted_seals([attempt])) for attempt in (1, 2)]
    assert all(read)
    assert sum(read) == len(new) - 1

    table = place.table()
    expected = (files * rows + 1, len(new))
    found = table.scan().to_arrow()
    assert (found.num_rows, found.filter(pa.compute.equal(found["text"], "new")).num_rows) == expected
    assert len(set(found["id"].to_pylist())) == found.num_rows

    connection = duckdb.connect(config={"extension_directory": str(tmp_path / "duckdb")})
    load_duckdb_extensions(connection)
    metadata = table.metadata_location.removeprefix("file://")
    counted = f"SELECT count(DISTINCT id), count(*) FILTER (text = 'new'), count(*) FROM iceberg_scan('{metadata}')"
    assert connection.sql(counted).fetchall() == [(*expected, expected[0])]
    connection.close()

    out = tmp_path / "spark.json"
    reader = SPARK_READER.replace("id = 3", "text = 'new'").replace(
        "table.selectExpr(", "table.where('id % 701 = 0 AND id < 70100').selectExpr("
    )
    subprocess.run(
        [sys.executable, "-c", reader, str(iceberg_spark_runtime()), table.metadata_location, str(out)],
        check=True,
        capture_output=True,
        timeout=patience(180),
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    by_spark = json.loads(out.read_text())
    assert by_spark["filtered"] == len(new)
    assert sorted(json.loads(row)["id"] for row in by_spark["rows"]) == list(range(0, 70_100, 701))
