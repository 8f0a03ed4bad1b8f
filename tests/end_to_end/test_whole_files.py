"""Files that are a row each, as images and PDFs: each comes once, whatever dies, over epochs, and beside other sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.loop.reconcile import Round
from checkpoint_formats.files.binary.reader import MOST_CONTENT_BYTES
from checkpoint_protocol import reasons
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.store.object_store import open_store
from tests.support.checks import assert_exactly_once
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.places import Place
from tests.support.records import position_of
from tests.support.slow import slow_except_on
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for

FILES = 60


def parse(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": int(row["content"]), "text": f"zeile {int(row['content'])}"}


def parse_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    numbers = [int(content) for content in rows["content"].to_pylist()]
    return pa.record_batch({"id": numbers, "text": [f"{len(numbers)} at once"] * len(numbers)})


def put(folder: Path, *numbers: int) -> dict[str, Any]:
    """Write a file for each number; return the source."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        (folder / f"{number:04}.txt").write_text(str(number))
    return {"files": {"format": "binary", "paths": [str(folder)]}}


def run(place: Place, source: dict[str, Any], call: str = "parse", step: dict[str, Any] | None = None, **spec: Any) -> Round:
    steps = [{"call": f"{__name__}:{call}", "input": "row", "name": call, **(step or {})}]
    return drive(reconciler_for(manifest_for(place, source, steps=steps, **spec), place))


def finished(ended: Round) -> Round:
    assert isinstance(ended.outcome, Finish), ended.outcome
    return ended


@pytest.mark.parametrize("after_tasks", [1, 3])
@slow_except_on("place", "iceberg-sql-disk", "lance-s3")
def test_each_file_is_a_row_once_though_a_driver_dies(place: Place, tmp_path: Path, after_tasks: int) -> None:
    place.create(SCHEMA)
    source = put(tmp_path / "in", *range(FILES))

    def die(number: int) -> None:
        if number == after_tasks:
            raise Killed

    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings, between_tasks=die)
    steps = [{"call": f"{__name__}:parse", "input": "row"}]
    reconciler = reconciler_for(manifest_for(place, source, steps=steps), place, drivers, store)
    while not drivers.started:
        reconciler.step()
    drivers.finish()

    ended = finished(run(place, source))

    assert_exactly_once(place, range(FILES))
    plan = Ledger(store, ended.key).plans.read_plan(2)
    assert plan is not None
    assert 0 < plan.done_rows == plan.done_files < FILES


def test_a_batch_step_gets_as_many_files_as_it_asks_for(lance_place: Place, tmp_path: Path) -> None:
    lance_place.create(SCHEMA)
    step = {"input": "arrow", "batchSize": 10}

    finished(run(lance_place, put(tmp_path / "in", *range(FILES)), "parse_batch", step))

    assert_exactly_once(lance_place, range(FILES))
    assert {row["text"] for row in lance_place.rows()} == {"10 at once"}


def test_contents_are_written_as_they_are_by_a_write_without_steps(disk_place: Place, tmp_path: Path) -> None:
    source = put(tmp_path / "in")
    (tmp_path / "in" / "a.png").write_bytes(b"\x89PNG\0\xff")
    (tmp_path / "in" / "b.png").write_bytes(b"")
    schema = pa.schema([("path", pa.string()), ("size", pa.int64()), ("content", pa.binary())])
    disk_place.create(schema)
    manifest = manifest_for(disk_place, {**source, "columns": ["path", "size", "content"]})

    finished(drive(reconciler_for(manifest, disk_place)))

    rows = sorted(disk_place.rows(), key=lambda row: str(row["path"]))
    assert [(Path(row["path"]).name, row["size"], row["content"]) for row in rows] == [
        ("a.png", 6, b"\x89PNG\0\xff"),
        ("b.png", 0, b""),
    ]


def test_later_epochs_take_new_files_and_a_moved_or_replaced_one_is_told(iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(SCHEMA)
    source = put(tmp_path / "in", *range(5))
    finished(run(iceberg_place, source))
    put(tmp_path / "in", 7)
    finished(run(iceberg_place, source, runNonce="2"))
    assert_exactly_once(iceberg_place, [*range(5), 7])

    (tmp_path / "in" / "0003.txt").rename(tmp_path / "in" / "9000.txt")
    ended = run(iceberg_place, source, runNonce="3")
    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.SOURCE_MOVED
    (tmp_path / "in" / "9000.txt").rename(tmp_path / "in" / "0003.txt")

    (tmp_path / "in" / "0002.txt").write_text("200")
    ended = run(iceberg_place, source, runNonce="3")
    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.SOURCE_CHANGED
    finished(run(iceberg_place, source, runNonce="3", onReplaced="Process"))
    assert_exactly_once(iceberg_place, [*range(5), 7, 200])


def test_files_that_fail_are_set_apart_by_their_place_and_a_later_epoch_takes_them_alone(
    iceberg_place: Place, tmp_path: Path
) -> None:
    """One that a step cannot parse, an empty one, and one whose content is too large to be read at all."""
    iceberg_place.create(SCHEMA)
    source = put(tmp_path / "in", *range(10))
    (tmp_path / "in" / "0003.txt").write_text("three")
    (tmp_path / "in" / "0005.txt").write_text("")
    with (tmp_path / "in" / "0007.txt").open("wb") as film:
        film.truncate(MOST_CONTENT_BYTES + 1)

    ended = finished(run(iceberg_place, source, onRowError="Quarantine", quarantine={"maxShare": "100%"}))

    assert ended.commit is not None
    assert (ended.commit.rows_read, ended.commit.rows_quarantined) == (10, 3)
    assert_exactly_once(iceberg_place, [0, 1, 2, 4, 6, 8, 9])
    ledger = Ledger(open_store(iceberg_place.checkpoint_uri, iceberg_place.settings), ended.key)
    rows = [row for seal in ledger.chains.counted_seals([1]) for row in ledger.quarantine.quarantined_rows(seal)]
    places = {(position_of(row).file, position_of(row).start, position_of(row).end): row.step for row in rows}
    assert places == {(3, 0, 1): "parse", (5, 0, 1): "parse", (7, 0, 1): "(source)"}

    again: dict[str, Any] = {"onRowError": "Quarantine", "quarantine": {"retry": "Only", "maxShare": "100%"}}
    ended = finished(run(iceberg_place, source, "lengths", runNonce="2", **again))

    assert ended.commit is not None
    assert (ended.commit.rows_read, ended.commit.rows_quarantined) == (3, 1)
    assert_exactly_once(iceberg_place, [0, 1, 2, 4, 6, 8, 9, 1_000, 1_005])


def lengths(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": 1_000 + len(row["content"]), "text": ""}


def test_a_content_that_cannot_be_read_is_named_where_rows_may_not_fail(iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(SCHEMA)
    source = put(tmp_path / "in", 1)
    with (tmp_path / "in" / "film.txt").open("wb") as film:
        film.truncate(MOST_CONTENT_BYTES + 1)

    ended = run(iceberg_place, source)

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.SOURCE_UNREADABLE
    assert "film.txt" in ended.outcome.message

    finished(run(iceberg_place, {**source, "where": "size < 1000"}, name="other"))
    assert_exactly_once(iceberg_place, [1])


def test_beside_other_sources_their_columns_are_united(iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(pa.schema([("path", pa.string()), ("id", pa.int64()), ("content", pa.binary())]))
    images = put(tmp_path / "images", 1)
    (tmp_path / "paths.csv").write_text("path,id\nx,2\n,3\n")
    csv = {"format": "csv", "paths": [str(tmp_path / "paths.csv")]}
    source = {"union": [images, {"files": csv}], "columns": ["path", "id", "content"], "where": "size is null or size > 0"}

    finished(drive(reconciler_for(manifest_for(iceberg_place, source), iceberg_place)))

    rows = sorted(iceberg_place.rows(), key=lambda row: row["id"] or 0)
    assert rows == [
        {"path": str(tmp_path / "images" / "0001.txt"), "id": None, "content": b"1"},
        {"path": "x", "id": 2, "content": None},
        {"path": None, "id": 3, "content": None},
    ]
