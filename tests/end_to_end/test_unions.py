"""Several sources in one write: each row of each once, whatever dies, over epochs too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_protocol import reasons
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.store.object_store import open_store
from tests.support.checks import assert_exactly_once
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.places import Place
from tests.support.slow import slow_except_on
from tests.support.source_places import SourceTable, source_beside
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs


def write_csv(path: Path, numbers: range) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("text,id\n" + "".join(f"zeile {number},{number}\n" for number in numbers))
    return path


def union_of(folder: Path, *tables: SourceTable) -> dict[str, Any]:
    """Return Parquet files with 0..399, CSV with 400..499 in another order of columns, and tables."""
    write_inputs(folder / "parquet")
    write_csv(folder / "csv" / "a.csv", range(400, 500))
    files = [
        {"files": {"format": "parquet", "paths": [str(folder / "parquet")]}},
        {"files": {"format": "csv", "paths": [str(folder / "csv")]}},
    ]
    return {"union": [*files, *(table.section() for table in tables)]}


def run(place: Place, source: dict[str, Any], **spec: Any) -> Any:
    return drive(reconciler_for(manifest_for(place, source, **spec), place))


@pytest.mark.parametrize("after_tasks", [1, 3])
@slow_except_on("place", "iceberg-sql-s3", "lance-disk")
def test_each_row_of_each_source_is_in_the_sink_once_though_a_driver_dies(place: Place, tmp_path: Path, after_tasks: int) -> None:
    place.create(SCHEMA)
    iceberg, lance = source_beside(place, "iceberg"), source_beside(place, "lance")
    iceberg.append(rows_of(range(500, 600)))
    lance.append(rows_of(range(600, 700)))
    source = union_of(tmp_path, iceberg, lance)

    def die(number: int) -> None:
        if number == after_tasks:
            raise Killed

    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings, between_tasks=die)
    reconciler = reconciler_for(manifest_for(place, source), place, drivers, store)
    while not drivers.started:
        reconciler.step()
    drivers.finish()

    ended = run(place, source)

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert_exactly_once(place, range(700))
    plan = Ledger(store, ended.key).plans.read_plan(2)
    assert plan is not None
    assert plan.done_rows > 0


@slow_except_on("place", "iceberg-sql-disk", "lance-s3")
def test_the_next_epoch_takes_of_each_source_what_came_since(place: Place, tmp_path: Path) -> None:
    place.create(SCHEMA)
    iceberg, lance = source_beside(place, "iceberg"), source_beside(place, "lance")
    iceberg.append(rows_of(range(500, 600)))
    lance.append(rows_of(range(600, 700)))
    source = union_of(tmp_path, iceberg, lance)
    run(place, source)
    write_csv(tmp_path / "csv" / "b.csv", range(700, 720))
    iceberg.append(rows_of(range(720, 740)))
    lance.append(rows_of(range(740, 750)))

    ended = run(place, source, runNonce="2")

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert_exactly_once(place, range(750))
    taken = Ledger(open_store(place.checkpoint_uri, place.settings), ended.key).inputs.read_input()
    assert taken is not None
    assert [(file.source, file.fragment) for file in taken.files] == [(1, None), (2, None), (3, 1)]


def test_where_takes_rows_of_sources_that_have_its_column_and_columns_are_united(place: Place, tmp_path: Path) -> None:
    place.create(SCHEMA)
    table = source_beside(place, "iceberg")
    table.append(rows_of(range(100, 200)))
    pq.write_table(pa.table({"id": pa.array(range(50), pa.int16())}), tmp_path / "narrow.parquet")
    source = {"union": [{"files": {"format": "parquet", "paths": [str(tmp_path / "*.parquet")]}}, table.section()]}

    ended = run(place, source | {"where": "text is null or text = 'zeile 150'"})

    assert isinstance(ended.outcome, Finish), ended.outcome
    rows = sorted(place.rows(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == [*range(50), 150]
    assert [row["text"] for row in rows] == [None] * 50 + ["zeile 150"]


def test_a_file_that_two_sources_mean_under_two_names_is_refused(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = union_of(tmp_path)
    (tmp_path / "more").symlink_to(tmp_path / "csv")
    source["union"].append({"files": {"format": "csv", "paths": [str(tmp_path / "more")]}})

    ended = run(disk_place, source)

    assert isinstance(ended.outcome, Stall), ended.outcome
    assert ended.outcome.reason == reasons.MANIFEST_INVALID
    assert "the sources 1 and 2 both have the file" in ended.outcome.message
    assert disk_place.rows() == []

    del source["union"][-1]
    assert isinstance(run(disk_place, source).outcome, Finish)


def test_sources_that_cannot_be_united_are_both_named(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = union_of(tmp_path)
    (tmp_path / "csv" / "a.csv").write_text("id,text\n007,bond\n")

    ended = run(disk_place, source)

    assert isinstance(ended.outcome, Stall), ended.outcome
    assert "a.csv has string in the column 'id'" in ended.outcome.message
    assert "part-0.parquet has int64 in the column 'id'" in ended.outcome.message
    assert "source.files.types" in ended.outcome.message

    for member in source["union"]:
        if member.get("files", {}).get("format") == "csv":
            member["files"]["types"] = {"id": "int64"}
    assert isinstance(run(disk_place, source).outcome, Finish)
