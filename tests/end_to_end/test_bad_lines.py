"""Lines of text that cannot be read, met after much is sealed: each way out that a message names ends with every row once."""

from __future__ import annotations

import gzip
import hashlib
import threading
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.loop.reconcile import Reconciler, Round
from checkpoint_control.views.inspection import inspect_store
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from tests.support.checks import assert_exactly_once
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.places import Place
from tests.support.slow import slow_except_on
from tests.support.waiting import patience
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for

ROWS = 60_000
BAD = 50_000


def write_text(path: Path, bad: str, rows: int = ROWS) -> Path:
    """Write rows beyond the sample from which types are taken, and a line in the place of one of them."""
    if ".csv" in path.name:
        lines = ["id,text", *(f"{n},{'y' * 100}" for n in range(rows))]
        lines[BAD + 1] = bad
    else:
        lines = [f'{{"id": {n}, "text": "{"y" * 100}"}}' for n in range(rows)]
        lines[BAD] = bad
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def prepared(place: Place, path: Path, /, **spec: Any) -> Reconciler:
    kind = "csv" if ".csv" in path.name else "json"
    spec["files"] = {"format": kind, **spec.get("files", {})}
    return reconciler_for(manifest_for(place, path, **spec), place)


def stopped(place: Place, path: Path, /, **spec: Any) -> Stall:
    """Run the write until it stops at its bad line, with the tasks before sealed; a compressed file is one task."""
    reconciler = prepared(place, path, **spec)
    outcome = drive(reconciler).outcome
    assert isinstance(outcome, Stall)
    if path.suffix != ".gz":
        assert rows_sealed(reconciler) > 10_000
    return outcome


def rows_sealed(reconciler: Reconciler) -> int:
    ledger = reconciler.current_ledger()
    return sum(seal.rows_read for seal in ledger.chains.counted_seals(ledger.attempts.list_attempts()))


def finished(place: Place, path: Path, /, **spec: Any) -> Round:
    ended = drive(prepared(place, path, **spec))
    assert isinstance(ended.outcome, Finish), ended.outcome
    return ended


BAD_LINES = {
    "in.csv": ("oops,zzz", "column 'id'"),
    "in.json": ('{"id": "oops"}', "JSON"),
    "in.json.gz": ('{"id": 1, ', "JSON"),
    "in.csv.gz": ('oops,"z\nz"', "column 'id'"),
    "fields.csv.gz": ('1,"z\nz",2', "Expected 2 columns, got 3"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_after_much_was_sealed_is_set_apart_as_the_message_advises(
    disk_place: Place, tmp_path: Path, name: str
) -> None:
    disk_place.create(SCHEMA)
    bad, what = BAD_LINES[name]
    source = write_text(tmp_path / name, bad)
    refused = stopped(disk_place, source)
    assert refused.reason == reasons.SOURCE_UNREADABLE
    place = "near row" if name.endswith(".csv.gz") else "line at byte"
    for part in (str(source), place, what, "set onRowError: Quarantine"):
        assert part in refused.message

    ended = finished(disk_place, source, onRowError="Quarantine")

    assert ended.commit is not None
    assert (ended.commit.rows_read, ended.commit.rows_written, ended.commit.rows_quarantined) == (ROWS, ROWS - 1, 1)
    assert_exactly_once(disk_place, [number for number in range(ROWS) if number != BAD])
    shown = inspect_store(prepared(disk_place, source).observer.store)
    assert shown.errors == ()
    (row,) = [row for attempt in shown.writes[0].epochs[0].attempts for row in attempt.quarantined]
    assert (row.file, row.step, row.error) == (str(source), "(source)", reasons.SOURCE_UNREADABLE)
    if name.endswith(".gz"):
        assert (row.start, row.end) == (BAD, BAD + 1)
    else:
        assert source.read_bytes()[row.start : row.end] == f"{bad}\n".encode()


@pytest.mark.parametrize("name", ["in.csv", "in.csv.gz"])
def test_lines_that_were_set_apart_are_taken_by_a_later_epoch_that_can_read_them(
    disk_place: Place, tmp_path: Path, name: str
) -> None:
    disk_place.create(SCHEMA)
    source = write_text(tmp_path / name, "n/a,zzz")
    finished(disk_place, source, onRowError="Quarantine")

    again = {"onRowError": "Quarantine", "runNonce": "2", "quarantine": {"retry": "Only"}}
    ended = finished(disk_place, source, files={"csv": {"nullValues": ["", "n/a"]}}, **again)

    assert ended.commit is not None
    assert (ended.commit.rows_read, ended.commit.rows_quarantined) == (1, 0)
    ids = [row["id"] for row in disk_place.rows()]
    assert ids.count(None) == 1
    assert sorted(number for number in ids if number is not None) == [number for number in range(ROWS) if number != BAD]


def test_more_bad_lines_than_the_limit_allows_stop_the_write(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = tmp_path / "in.csv"
    source.write_text("id,text\n" + "1,x\n" * 10 + "oops,x\n" * 20)

    ended = drive(
        prepared(disk_place, source, files={"types": {"id": "int64"}}, onRowError="Quarantine", quarantine={"maxRows": 5})
    )

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.TOO_MANY_ROW_ERRORS
    assert "(source)" in ended.outcome.message
    assert disk_place.rows() == []


# --- how text is read may be edited ---------------------------------------------------------------------------------------


def test_a_type_that_holds_all_values_lets_the_write_go_on_after_what_is_sealed(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(pa.schema([("id", pa.float64()), ("text", pa.string())]))
    source = write_text(tmp_path / "in.csv", "0.5,zzz")
    assert "give the column a type that holds all its values by source.files.types" in stopped(disk_place, source).message

    ended = finished(disk_place, source, files={"types": {"id": "float64"}})

    assert ended.commit is not None
    assert ended.commit.attempts > 1
    assert len(ended.commit.read_digests) == 2
    assert sorted(row["id"] for row in disk_place.rows()) == sorted([0.5, *(n for n in range(ROWS) if n != BAD)])


def test_a_text_that_stands_for_null_may_be_named_after_rows_are_sealed(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_text(tmp_path / "in.csv", "n/a,zzz")
    assert "name what stands for NULL in source.files.csv.nullValues" in stopped(disk_place, source).message

    finished(disk_place, source, files={"csv": {"nullValues": ["", "n/a"]}})

    ids = [row["id"] for row in disk_place.rows()]
    assert sorted(number for number in ids if number is not None) == [number for number in range(ROWS) if number != BAD]
    assert ids.count(None) == 1


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_a_field_of_json_that_comes_up_late_may_be_named_by_types(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA.append(pa.field("late", pa.int64())))
    source = write_text(tmp_path / "in.json", f'{{"id": {BAD}, "text": "x", "late": 7}}')
    assert "name the field" in stopped(disk_place, source).message

    finished(disk_place, source, files={"types": {"late": "int64"}})

    assert_exactly_once(disk_place, range(ROWS))
    assert [row["late"] for row in disk_place.rows() if row["late"] is not None] == [7]


@slow_except_on("disk_place", "lance-disk")
def test_a_late_field_that_the_table_lacks_is_named_and_then_dropped_by_a_step(
    disk_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "without_late.py").write_text("def work(rows): return rows.drop_columns(['late'])")
    monkeypatch.syspath_prepend(tmp_path)
    disk_place.create(SCHEMA)
    source = write_text(tmp_path / "in.json", f'{{"id": {BAD}, "text": "x", "late": 7}}')
    assert f"{source}: line at byte " in (said := stopped(disk_place, source).message)
    assert "unexpected field 'late'" in said
    lacked = drive(prepared(disk_place, source, files={"types": {"late": "int64"}})).outcome
    assert isinstance(lacked, Stall)
    assert "drop it in a step (or by source.columns, as long as nothing is sealed)" in lacked.message

    finished(disk_place, source, files={"types": {"late": "int64"}}, steps=[{"call": "without_late:work", "input": "arrow"}])

    assert_exactly_once(disk_place, range(ROWS))


def test_a_stray_quote_may_be_made_part_of_the_text_after_rows_are_sealed(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_text(tmp_path / "in.csv", f'{BAD},"5 inch')
    assert "set source.files.csv.quote: '' if the quote is part of the text" in stopped(disk_place, source).message

    finished(disk_place, source, files={"csv": {"quote": ""}})

    assert_exactly_once(disk_place, range(ROWS))
    assert [row["text"] for row in disk_place.rows() if row["id"] == BAD] == ['"5 inch']


@pytest.mark.parametrize(("option", "value"), [("multiLine", True), ("header", False), ("escape", "\\"), ("compression", "None")])
@slow_except_on("disk_place", "lance-disk")
def test_what_says_where_rows_begin_is_refused_once_rows_are_sealed_and_undoing_it_goes_on(
    disk_place: Place, tmp_path: Path, option: str, value: Any
) -> None:
    disk_place.create(SCHEMA)
    source = write_text(tmp_path / "in.csv", "oops,zzz")
    stopped(disk_place, source)

    with pytest.raises(NeedsChange, match=r"spec\.source is not what .* undo the change") as refused:
        prepared(disk_place, source, files={"compression": value} if option == "compression" else {"csv": {option: value}})
    assert refused.value.reason == reasons.IDENTITY_CHANGED

    finished(disk_place, source, onRowError="Quarantine")
    assert_exactly_once(disk_place, [number for number in range(ROWS) if number != BAD])


def test_the_delimiter_of_rows_that_are_known_by_number_is_refused_by_name_and_setting_it_back_goes_on(
    disk_place: Place, tmp_path: Path
) -> None:
    disk_place.create(SCHEMA)
    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(2):
        lines = ["id,text", *(f"{n},{hashlib.sha256(bytes([n])).hexdigest()}" for n in range(part * 50, part * 50 + 50))]
        (folder / f"{part}.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    spec: dict[str, Any] = {"files": {"format": "csv", "types": {"id": "int64"}}}
    first = reconciler_for(manifest_for(disk_place, folder, **spec), disk_place)
    drivers = first.observer.drivers
    assert isinstance(drivers, DirectDrivers)
    drivers.parallelism = 4

    def die(number: int) -> None:
        if number and drivers.started == 1:
            raise Killed

    drivers.between_tasks = die
    while not first.step().seen.attempts or not rows_sealed_of_closed(first):
        drivers.wait_a_moment()

    spec["files"]["csv"] = {"delimiter": ";"}
    refused = drive(reconciler_for(manifest_for(disk_place, folder, **spec), disk_place)).outcome
    assert isinstance(refused, Stall)
    assert "source.files.csv.delimiter is ';', and was ','" in refused.message

    spec["files"].pop("csv")
    assert isinstance(drive(reconciler_for(manifest_for(disk_place, folder, **spec), disk_place)).outcome, Finish)
    assert_exactly_once(disk_place, range(100))


def rows_sealed_of_closed(reconciler: Reconciler) -> int:
    ledger = reconciler.current_ledger()
    closed = [number for number in ledger.attempts.list_attempts() if ledger.attempts.read_closed(number) is not None]
    return sum(seal.rows_read for seal in ledger.chains.counted_seals(closed))


# --- while nothing is sealed ----------------------------------------------------------------------------------------------


def test_with_nothing_sealed_the_whole_source_may_be_edited(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    old, new = tmp_path / "old.csv", tmp_path / "new.json"
    old.write_text("id,text\noops,x\n")
    new.write_text("".join(f'{{"id": {n}, "text": "x"}}\n' for n in range(50)))
    types = {"types": {"id": "int64"}}
    assert isinstance(drive(prepared(disk_place, old, files=types)).outcome, Stall)

    ended = finished(disk_place, new)

    assert ended.commit is not None
    assert (ended.commit.rows_read, ended.commit.input_since) == (50, ended.commit.attempts)
    assert_exactly_once(disk_place, range(50))
    shown = inspect_store(prepared(disk_place, new).observer.store)
    assert (shown.errors, shown.strays) == ((), ())
    with pytest.raises(NeedsChange, match="undo the change"):
        prepared(disk_place, old, files=types)  # what the write began with is not what is committed

    with new.open("a") as more:
        more.write("")
    (tmp_path / "new2.json").write_text('{"id": 50, "text": "x"}\n')
    with pytest.raises(NeedsChange):
        prepared(disk_place, tmp_path / "new*.json", runNonce="2")


def test_a_later_epoch_knows_the_input_that_was_committed_and_takes_new_files_only(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    (tmp_path / "old.csv").write_text("id,text\noops,x\n")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("id,text\n" + "".join(f"{n},x\n" for n in range(10)))
    types = {"format": "csv", "types": {"id": "int64"}}
    assert isinstance(drive(prepared(disk_place, tmp_path / "old.csv", files=types)).outcome, Stall)
    finished(disk_place, folder, files=types)
    (folder / "b.csv").write_text("id,text\n10,x\n")

    finished(disk_place, folder, files=types, runNonce="2")

    assert_exactly_once(disk_place, range(11))


def test_with_nothing_sealed_a_mended_file_is_taken_as_it_is_by_then(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = tmp_path / "in.csv"
    types = {"types": {"id": "int64"}}
    source.write_text("id,text\noops,x\n")
    assert isinstance(drive(prepared(disk_place, source, files=types)).outcome, Stall)
    source.write_text("id,text\n1,x\n")
    changed = drive(prepared(disk_place, source, files=types)).outcome

    if isinstance(changed, Stall):
        assert changed.reason == reasons.SOURCE_CHANGED
        finished(disk_place, source, files=types)
    assert_exactly_once(disk_place, [1])


def test_an_edit_closes_an_open_attempt_without_seals_and_its_driver_counts_for_nothing(
    disk_place: Place, tmp_path: Path
) -> None:
    """The old driver goes on, and seals all that it reads: nobody counts it."""
    disk_place.create(SCHEMA)
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("id,text\n" + "".join(f"{n},old\n" for n in range(100, 120)))
    new.write_text("id,text\n" + "".join(f"{n},new\n" for n in range(10)))
    first = prepared(disk_place, old)
    drivers = first.observer.drivers
    assert isinstance(drivers, DirectDrivers)
    gate = threading.Event()
    drivers.between_tasks = lambda _: cast(None, gate.wait(patience(60)))
    while first.current_ledger().plans.read_plan(1) is None:
        first.step()

    second = prepared(disk_place, new)
    second.observer.drivers = drivers
    second.step()
    assert (closed := second.current_ledger().attempts.read_closed(1)) is not None
    assert not any(closed.chain_lengths)
    gate.set()
    ended = drive(second)
    drivers.finish()

    assert isinstance(ended.outcome, Finish)
    assert_exactly_once(disk_place, range(10))
    assert first.current_ledger().seals.list_links(1), "the old driver has sealed"
