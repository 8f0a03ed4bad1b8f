"""What the input may be, and how it may change between attempts and epochs."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_protocol import reasons
from checkpoint_protocol.store.object_store import open_store
from tests.support.checks import assert_exactly_once
from tests.support.command_line import CommandLine
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.places import IcebergPlace, Place
from tests.support.slow import slow_except_on
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

ROWS = 400


def interrupted(place: Place, source: Path, /, after_tasks: int = 2, **spec: object) -> None:
    """Run a write whose driver dies after some tasks, and whose runner dies with it."""

    def die(number: int) -> None:
        if number == after_tasks:
            raise Killed

    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings, between_tasks=die)
    reconciler = reconciler_for(manifest_for(place, source, **spec), place, drivers, store)  # type: ignore[arg-type]
    while not drivers.started:
        reconciler.step()
    drivers.finish()


def finish(place: Place, source: Path, /, **spec: object) -> tuple[object, DirectDrivers]:
    reconciler = reconciler_for(manifest_for(place, source, **spec), place)  # type: ignore[arg-type]
    ended = drive(reconciler)
    assert isinstance(reconciler.observer.drivers, DirectDrivers)
    return ended, reconciler.observer.drivers


def columns_of(place: Place) -> list[str]:
    schema = place.table().schema().as_arrow() if isinstance(place, IcebergPlace) else place.dataset().schema  # type: ignore[attr-defined]
    return [f"{field.name}: {str(field.type).removeprefix('large_')}" for field in schema]


def test_no_rows_end_as_committed_and_make_no_version(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in", files=3, rows=0)

    ended, _ = finish(disk_place, source)

    assert isinstance(ended.outcome, Finish)  # type: ignore[attr-defined]
    assert ended.commit.commit_id is None  # type: ignore[attr-defined]
    assert disk_place.keys() == []
    assert disk_place.rows() == []


@pytest.mark.parametrize(("name", "data"), [("in.csv", b"id,text\n"), ("in.csv.gz", gzip.compress(b"id,text\n", mtime=0))])
def test_a_header_without_rows_makes_the_table_of_its_columns(place: Place, tmp_path: Path, name: str, data: bytes) -> None:
    source = tmp_path / name
    source.write_bytes(data)
    files = {"format": "csv", "types": {"id": "int64"}}

    ended, _ = finish(place, source, files=files, sink={**place.sink(), "create": True})

    assert isinstance(ended.outcome, Finish), ended.outcome  # type: ignore[attr-defined]
    assert columns_of(place) == ["id: int64", "text: string"]
    assert place.rows() == []


def test_files_without_rows_make_the_table_that_steps_declare(disk_place: Place, tmp_path: Path) -> None:
    source = write_inputs(tmp_path / "in", files=1, rows=0)
    steps = [{"call": "unused:unused", "input": "row", "output": {"n": "int64"}}]

    ended, _ = finish(disk_place, source, steps=steps, sink={**disk_place.sink(), "create": True})

    assert isinstance(ended.outcome, Finish), ended.outcome  # type: ignore[attr-defined]
    assert columns_of(disk_place) == ["n: int64"]


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_files_without_rows_make_no_table_of_what_only_the_steps_know(disk_place: Place, tmp_path: Path) -> None:
    source = write_inputs(tmp_path / "in", files=1, rows=0)
    manifest = manifest_for(
        disk_place, source, steps=[{"call": "json:dumps", "input": "row"}], sink={**disk_place.sink(), "create": True}
    )
    ended = drive(reconciler_for(manifest, disk_place))

    assert isinstance(ended.outcome, Finish), ended.outcome
    code, output = CommandLine(tmp_path / "cli", disk_place, manifest).run()
    assert code == 0, output
    assert "no table yet" in output
    assert "show rows" not in output


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_folders_are_columns_of_the_table_and_epochs_go_on_by_them(disk_place: Place, tmp_path: Path, format: str) -> None:
    def put(country: str, number: int) -> None:
        folder = tmp_path / "in" / "_year=2025" / f"country={country}"
        folder.mkdir(parents=True)
        if format == "parquet":
            pq.write_table(pa.table({"id": [number]}), folder / "x.parquet")
        else:
            (folder / "x.csv").write_text(f"id\n{number}\n")

    put("NO", 1)
    put("__HIVE_DEFAULT_PARTITION__", 2)
    spec = {"files": {"format": format}, "sink": {**disk_place.sink(), "create": True}}
    source = tmp_path / "in" / "**" / f"*.{format}"
    ended, _ = finish(disk_place, source, **spec)
    assert isinstance(ended.outcome, Finish), ended.outcome  # type: ignore[attr-defined]

    put("SE", 3)
    ended, _ = finish(disk_place, source, **spec, runNonce="2")
    assert isinstance(ended.outcome, Finish), ended.outcome  # type: ignore[attr-defined]

    assert sorted(disk_place.rows(), key=lambda row: row["id"]) == [
        {"id": 1, "_year": 2025, "country": "NO"},
        {"id": 2, "_year": 2025, "country": None},
        {"id": 3, "_year": 2025, "country": "SE"},
    ]


def test_one_row_among_empty_files_is_committed(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in", files=3, rows=0)
    pq.write_table(rows_of([7]), source / "zz.parquet")

    ended, _ = finish(disk_place, source)

    assert isinstance(ended.outcome, Finish)  # type: ignore[attr-defined]
    assert_exactly_once(disk_place, [7])


def test_what_was_sealed_is_not_computed_again(place: Place, tmp_path: Path) -> None:
    place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    interrupted(place, source)

    ended, _ = finish(place, source)

    plan = ended.seen  # type: ignore[attr-defined]
    assert [attempt.number for attempt in plan.attempts] == [1, 2]
    store = open_store(place.checkpoint_uri, place.settings)
    from checkpoint_protocol.ledger import Ledger

    ledger = Ledger(store, ended.key)  # type: ignore[attr-defined]
    first, second = (list(ledger.chains.counted_seals([number])) for number in (1, 2))
    assert sum(seal.rows_read for seal in first) > 0
    assert sum(seal.rows_read for seal in first) + sum(seal.rows_read for seal in second) == ROWS
    plan_record = ledger.plans.read_plan(2)
    assert plan_record is not None
    assert plan_record.done_rows == sum(seal.rows_read for seal in first)
    assert_exactly_once(place, range(ROWS))


def test_a_file_replaced_while_rows_of_it_are_missing_stops_the_write_and_names_it(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    interrupted(disk_place, source)
    time.sleep(0.01)
    pq.write_table(rows_of(range(300, 400)), source / "part-3.parquet", row_group_size=7)

    ended, _ = finish(disk_place, source)

    assert isinstance(ended.outcome, Stall)  # type: ignore[attr-defined]
    assert ended.outcome.reason == reasons.SOURCE_CHANGED  # type: ignore[attr-defined]
    assert "part-3.parquet" in ended.outcome.message  # type: ignore[attr-defined]
    assert disk_place.rows() == []


def test_a_file_that_is_gone_while_rows_of_it_are_missing_stops_the_write_and_names_it(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    interrupted(disk_place, source)
    (source / "part-2.parquet").unlink()

    ended, _ = finish(disk_place, source)

    assert isinstance(ended.outcome, Stall)  # type: ignore[attr-defined]
    assert ended.outcome.reason == reasons.SOURCE_CHANGED  # type: ignore[attr-defined]
    assert "part-2.parquet" in ended.outcome.message  # type: ignore[attr-defined]


def test_a_file_that_is_gone_after_all_its_rows_were_sealed_does_not_matter(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    interrupted(disk_place, source, after_tasks=4)
    (source / "part-0.parquet").unlink()

    ended, _ = finish(disk_place, source)

    assert isinstance(ended.outcome, Finish), ended.outcome  # type: ignore[attr-defined]
    assert_exactly_once(disk_place, range(ROWS))


def test_new_files_wait_for_the_next_epoch_which_takes_exactly_them(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    interrupted(disk_place, source)
    pq.write_table(rows_of(range(400, 450)), source / "part-9.parquet")
    finish(disk_place, source)
    assert_exactly_once(disk_place, range(ROWS))

    finish(disk_place, source)
    assert_exactly_once(disk_place, range(ROWS))
    ended, _ = finish(disk_place, source, runNonce="2")

    assert ended.commit.rows_read == 50  # type: ignore[attr-defined]
    assert_exactly_once(disk_place, range(450))
    assert len(disk_place.keys()) == 2


def test_a_new_nonce_waits_for_the_unfinished_epoch(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    interrupted(disk_place, source)
    pq.write_table(rows_of(range(400, 450)), source / "part-9.parquet")

    ended, _ = finish(disk_place, source, runNonce="2")

    assert ended.key.epoch == 2  # type: ignore[attr-defined]
    assert_exactly_once(disk_place, range(450))
    assert len(disk_place.keys()) == 2


def test_a_known_file_with_new_content_stops_the_next_epoch_unless_told_what_to_do(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in", files=2)
    finish(disk_place, source)
    time.sleep(0.01)
    pq.write_table(rows_of(range(500, 520)), source / "part-0.parquet")

    stopped, _ = finish(disk_place, source, runNonce="2")
    assert isinstance(stopped.outcome, Stall)  # type: ignore[attr-defined]
    assert stopped.outcome.reason == reasons.SOURCE_CHANGED  # type: ignore[attr-defined]
    assert "onReplaced" in stopped.outcome.message  # type: ignore[attr-defined]

    finish(disk_place, source, runNonce="2", onReplaced="Process")
    assert_exactly_once(disk_place, [*range(200), *range(500, 520)])


def test_a_known_file_with_new_content_is_passed_over_when_told_so(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in", files=2)
    finish(disk_place, source)
    time.sleep(0.01)
    pq.write_table(rows_of(range(500, 520)), source / "part-0.parquet")

    ended, _ = finish(disk_place, source, runNonce="2", onReplaced="Skip")

    assert ended.commit.commit_id is None  # type: ignore[attr-defined]
    assert_exactly_once(disk_place, range(200))


def test_the_table_is_made_from_the_output_and_keeps_every_type(disk_place: Place, tmp_path: Path) -> None:
    import datetime
    from decimal import Decimal

    table = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "Größe €": pa.array(["ä", None, "𝄞"], pa.string()),
            "tags": pa.array([["a", "b"], [], None], pa.list_(pa.string())),
            "place": pa.array([{"lat": 1.5, "names": ["x"]}, None, {"lat": None, "names": None}]),
            "amount": pa.array([Decimal("1.10"), None, Decimal("-99999999.99")], pa.decimal128(10, 2)),
            "at": pa.array([1_767_323_045_000_006, None, -31_536_000_000_000], pa.timestamp("us")),
            "utc": pa.array([datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), None, None], pa.timestamp("us", "UTC")),
            "on": pa.array([datetime.date(2026, 2, 28), None, datetime.date(1900, 1, 1)], pa.date32()),
            "raw": pa.array([b"\x00\xff", b"", None], pa.binary()),
            "flag": pa.array([True, None, False]),
            "ratio": pa.array([1.5, float("inf"), None], pa.float64()),
        }
    )
    source = tmp_path / "in put ü"
    source.mkdir()
    pq.write_table(table, source / "tätä #1.parquet")

    ended, _ = finish(disk_place, source, sink={**disk_place.sink(), "create": True})

    assert isinstance(ended.outcome, Finish), ended.outcome  # type: ignore[attr-defined]
    assert sorted(disk_place.rows(), key=lambda row: row["id"]) == table.to_pylist()
