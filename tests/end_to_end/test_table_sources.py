"""Tables as sources: what is read is what the table held when the epoch began, each row once, whatever happens meanwhile."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_formats.iceberg.reader import IcebergReader
from checkpoint_formats.lance.reader import LanceReader
from checkpoint_protocol import reasons
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import PinnedIceberg
from checkpoint_protocol.records.formats.lance import PinnedLance
from checkpoint_protocol.rows.positions import merge
from checkpoint_protocol.store.object_store import open_store
from checkpoint_work.tasks.rows_by_position import ranges_of
from tests.support.checks import assert_exactly_once
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.places import Place
from tests.support.slow import slow_except_on
from tests.support.source_places import IcebergSourceTable, LanceSourceTable, SourceTable, source_beside
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of


def fill(source: SourceTable, files: int = 4, rows: int = 100, first: int = 0) -> None:
    for number in range(files):
        source.append(rows_of(range(first + number * rows, first + (number + 1) * rows)))


def run(place: Place, section: dict[str, Any], **spec: Any) -> Any:
    """Run to the end with drivers that live."""
    return drive(reconciler_for(manifest_for(place, section, **spec), place))


def interrupt(place: Place, section: dict[str, Any], after_tasks: int = 2, **spec: Any) -> None:
    """Run a write whose driver dies after some tasks, and whose runner dies with it."""

    def die(number: int) -> None:
        if number == after_tasks:
            raise Killed

    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings, between_tasks=die)
    reconciler = reconciler_for(manifest_for(place, section, **spec), place, drivers, store)
    while not drivers.started:
        reconciler.step()
    drivers.finish()


def ledger_of(place: Place, ended: Any) -> Ledger:
    return Ledger(open_store(place.checkpoint_uri, place.settings), ended.key)


def assert_stalled(ended: Any, reason: str, *words: str) -> None:
    assert isinstance(ended.outcome, Stall), ended.outcome
    assert ended.outcome.reason == reason, ended.outcome
    for word in words:
        assert word in ended.outcome.message


@pytest.fixture(params=["iceberg", "lance"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts how often each data file or fragment was read."""
    counts: Counter[str] = Counter()
    for reader in (IcebergReader, LanceReader):
        real = reader.read

        def counting(self: Any, file: Any, *arguments: Any, real: Any = real) -> Any:
            counts[file.path] += 1
            return real(self, file, *arguments)

        monkeypatch.setattr(reader, "read", counting)
    return counts


# --- one epoch ------------------------------------------------------------------------------------------------------------


@slow_except_on("place", "iceberg-rest-disk", "iceberg-sql-s3", "lance-disk")
def test_each_row_of_a_source_table_is_in_the_sink_once(place: Place, kind: str) -> None:
    place.create(SCHEMA)
    source = source_beside(place, kind)
    fill(source)

    ended = run(place, source.section())

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert_exactly_once(place, range(400))


@slow_except_on("place", "iceberg-sql-disk", "lance-s3")
def test_a_resume_reads_only_what_is_missing_and_opens_no_file_that_is_done(
    place: Place, kind: str, opened: Counter[str]
) -> None:
    place.create(SCHEMA)
    source = source_beside(place, kind)
    fill(source)
    interrupt(place, source.section())
    first = set(opened)
    opened.clear()

    ended = run(place, source.section())

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert_exactly_once(place, range(400))
    ledger = ledger_of(place, ended)
    plan, recorded = ledger.plans.read_plan(2), ledger.inputs.read_input()
    assert plan is not None
    assert recorded is not None
    assert plan.done_files > 0
    assert plan.done_rows > 0
    missing = {recorded.files[piece.file].path for task in plan.tasks for piece in task}
    assert set(opened) == missing
    assert len(first - missing) == plan.done_files


@slow_except_on("disk_place", "lance-disk")
def test_a_table_that_moves_between_attempts_is_read_as_it_was_at_the_first(disk_place: Place, kind: str) -> None:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, kind)
    fill(source)
    interrupt(disk_place, source.section())
    fill(source, files=1, first=400)
    source.delete("id < 150")

    ended = run(disk_place, source.section())

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert_exactly_once(disk_place, range(400))


def test_deleted_rows_are_not_taken_and_are_covered(disk_place: Place, kind: str) -> None:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, kind)
    fill(source)
    source.delete("id in (0, 7, 99, 150, 399)")
    interrupt(disk_place, source.section(), after_tasks=3)

    ended = run(disk_place, source.section())

    expected = set(range(400)) - {0, 7, 99, 150, 399}
    assert isinstance(ended.outcome, Finish), ended.outcome
    assert_exactly_once(disk_place, expected)
    assert ended.commit.rows_read == len(expected)


def test_where_and_columns_are_pushed_into_the_table(disk_place: Place, kind: str, opened: Counter[str]) -> None:
    disk_place.create(pa.schema([("text", pa.string())]))
    source = source_beside(disk_place, kind)
    fill(source)

    section = source.section(columns=["text"], where="id >= 150 and id < 160 or id = 399")
    ended = run(disk_place, section)

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert sorted(row["text"] for row in disk_place.rows()) == sorted(f"zeile {n}" for n in (*range(150, 160), 399))
    assert ended.commit.rows_read == 11
    recorded = ledger_of(disk_place, ended).inputs.read_input()
    assert recorded is not None
    if kind == "iceberg":  # by the manifests' statistics two of the four files cannot have such rows
        assert len(recorded.files) == len(opened) == 2


def test_an_empty_table_is_committed_without_a_version(disk_place: Place, kind: str) -> None:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, kind)
    source.append(rows_of([]))

    ended = run(disk_place, source.section())

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert disk_place.keys() == []


def test_the_sink_is_made_from_what_a_table_gives(disk_place: Place, kind: str) -> None:
    source = source_beside(disk_place, kind)
    fill(source)

    section = source.section(columns=["id"], where="text = 'zeile 399'")
    ended = run(disk_place, section, sink={**disk_place.sink(), "create": True})

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert disk_place.rows() == [{"id": 399}]


def test_what_a_person_must_change_is_said(disk_place: Place, kind: str) -> None:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, kind)
    missing = run(disk_place, source.section(), name="missing")
    fill(source, files=1)

    column = run(disk_place, source.section(columns=["id", "txt"]), name="column")
    unknown = run(disk_place, source.section(where="nr > 1"), name="unknown")
    mistyped = run(disk_place, source.section(where="id = 'a'"), name="mistyped")
    broken = run(disk_place, source.section(where="id = "), name="broken")

    assert_stalled(missing, reasons.SOURCE_MISSING, "correct source." + kind)
    assert_stalled(column, reasons.MANIFEST_INVALID, "no column 'txt'", "id, text")
    assert_stalled(unknown, reasons.MANIFEST_INVALID, "spec.source.where", "no column 'nr'")
    assert_stalled(mistyped, reasons.MANIFEST_INVALID, "int64", "without quotes")
    assert_stalled(broken, reasons.MANIFEST_INVALID, "spec.source.where", "at the end")
    assert disk_place.rows() == []

    assert isinstance(run(disk_place, source.section(), name="missing").outcome, Finish), "it was made"


def test_a_driver_is_told_of_the_table_without_its_catalog(iceberg_place: Place) -> None:
    iceberg_place.create(SCHEMA)
    source = source_beside(iceberg_place, "iceberg")
    fill(source)

    ended = run(iceberg_place, source.section())

    ledger = ledger_of(iceberg_place, ended)
    launch, recorded = ledger.attempts.read_launch(1), ledger.inputs.read_input()
    assert launch is not None
    assert recorded is not None
    assert launch.source_tables == recorded.tables
    assert isinstance(recorded.tables[0], PinnedIceberg)
    assert "sqlite" not in launch.model_dump_json()


# --- what is pinned -------------------------------------------------------------------------------------------------------


def test_a_named_snapshot_is_read_under_the_names_that_it_had(iceberg_place: Place) -> None:
    iceberg_place.create(SCHEMA)
    source = source_beside(iceberg_place, "iceberg")
    assert isinstance(source, IcebergSourceTable)
    fill(source, files=2)
    snapshot = source.table().current_snapshot()
    assert snapshot is not None
    with source.table().update_schema() as update:
        update.rename_column("text", "words")
    fill_renamed = rows_of(range(200, 300)).rename_columns(["id", "words"])
    source.append(fill_renamed)

    section = source.section()
    section["iceberg"]["snapshotId"] = snapshot.snapshot_id
    ended = run(iceberg_place, {**section, "where": "text like 'zeile 1%'"})

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert_exactly_once(iceberg_place, [n for n in range(200) if str(n).startswith("1")])


def test_a_branch_is_read_at_its_head(iceberg_place: Place) -> None:
    iceberg_place.create(SCHEMA)
    source = source_beside(iceberg_place, "iceberg")
    assert isinstance(source, IcebergSourceTable)
    fill(source, files=2)
    table = source.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_branch(snapshot.snapshot_id, "audit").commit()
    source.table().append(rows_of(range(200, 250)), branch="audit")
    fill(source, files=1, first=1000)

    section = source.section()
    section["iceberg"]["branch"] = "audit"
    ended = run(iceberg_place, section)
    section["iceberg"]["branch"] = "audti"
    unknown = run(iceberg_place, section, name="unknown")

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert_exactly_once(iceberg_place, range(250))
    assert_stalled(unknown, reasons.SOURCE_MISSING, "audti", "audit, main")


def test_a_named_version_of_a_dataset_is_read(lance_place: Place) -> None:
    lance_place.create(SCHEMA)
    source = source_beside(lance_place, "lance")
    assert isinstance(source, LanceSourceTable)
    fill(source, files=2)
    section = source.section()
    section["lance"]["version"] = source.dataset().version
    fill(source, files=1, first=1000)

    ended = run(lance_place, section)
    section["lance"]["version"] = 99
    unknown = run(lance_place, section, name="unknown")

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert_exactly_once(lance_place, range(200))
    recorded = ledger_of(lance_place, ended).inputs.read_input()
    assert recorded is not None
    assert recorded.tables == (PinnedLance(uri=source.uri, at_version=2),)
    assert_stalled(unknown, reasons.SOURCE_MISSING, "version 99")


def test_files_of_an_expired_snapshot_that_are_gone_stop_the_write_and_are_named(iceberg_place: Place) -> None:
    iceberg_place.create(SCHEMA)
    source = source_beside(iceberg_place, "iceberg")
    assert isinstance(source, IcebergSourceTable)
    fill(source)
    paths = sorted(task.file.file_path for task in source.table().scan().plan_files())
    snapshot = source.table().current_snapshot()
    assert snapshot is not None
    interrupt(iceberg_place, source.section())
    for path in paths:
        Path(path.removeprefix("file://")).unlink()

    ended = run(iceberg_place, source.section())

    assert_stalled(ended, reasons.SOURCE_CHANGED, str(snapshot.snapshot_id), "/data/", "expire_snapshots")
    assert iceberg_place.rows() == []

    source.catalog.drop_table(source.name)
    fill(source, files=1)
    assert isinstance(run(iceberg_place, source.section(), name="again").outcome, Finish)


def test_a_version_that_was_cleaned_up_stops_the_write_and_is_named(lance_place: Place) -> None:
    lance_place.create(SCHEMA)
    source = source_beside(lance_place, "lance")
    assert isinstance(source, LanceSourceTable)
    fill(source)
    version = source.dataset().version
    interrupt(lance_place, source.section())
    source.dataset().optimize.compact_files()
    source.dataset().cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    ended = run(lance_place, source.section())

    assert_stalled(ended, reasons.SOURCE_CHANGED, f"version {version}", source.uri, "cleanup_old_versions")
    assert lance_place.rows() == []

    assert isinstance(run(lance_place, source.section(), name="again").outcome, Finish)


def test_files_that_are_gone_after_all_their_rows_were_sealed_do_not_matter(disk_place: Place) -> None:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, "iceberg")
    assert isinstance(source, IcebergSourceTable)
    fill(source)
    interrupt(disk_place, source.section(), after_tasks=4)
    store = open_store(disk_place.checkpoint_uri, disk_place.settings)
    reconciler = reconciler_for(manifest_for(disk_place, source.section()), disk_place, DirectDrivers(store, disk_place.settings))
    ledger = reconciler.current_ledger()
    recorded = ledger.inputs.read_input()
    assert recorded is not None
    ledger.chains.close(1)
    covered = merge(piece for seal in ledger.chains.counted_seals([1]) for piece in ranges_of(seal))
    whole = [
        n for n, file in enumerate(recorded.files) if any(p.file == n and (p.start, p.end) == (0, file.end) for p in covered)
    ]
    assert whole
    for number in whole:
        Path(recorded.files[number].path.removeprefix("file://")).unlink()

    ended = run(disk_place, source.section())

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert_exactly_once(disk_place, range(400))


def test_a_source_that_is_the_sink_under_another_catalog_name_is_refused(iceberg_place: Place) -> None:
    iceberg_place.create(SCHEMA)
    settings = iceberg_place.settings
    twin = settings.model_copy(update={"catalogs": {**settings.catalogs, "twin": settings.catalogs["test"]}})
    iceberg_place.settings = twin
    section = {"iceberg": {"catalog": "twin", "table": iceberg_place.sink()["iceberg"]["table"]}}

    # A SQL catalog keeps its own name in each row: the table gets a row under the other name.
    with sqlite3.connect(settings.catalogs["test"].uri.removeprefix("sqlite:///")) as connection:
        columns = [row[1] for row in connection.execute("pragma table_info(iceberg_tables)") if row[1] != "catalog_name"]
        others = ", ".join(columns)
        connection.execute(f"insert into iceberg_tables (catalog_name, {others}) select 'twin', {others} from iceberg_tables")

    ended = run(iceberg_place, section)

    assert_stalled(ended, reasons.MANIFEST_INVALID, "source and sink are one table")


def test_a_dataset_that_is_the_sink_by_another_spelling_is_refused(lance_place: Place) -> None:
    lance_place.create(SCHEMA)
    uri = lance_place.sink()["lance"]["uri"]

    ended = run(lance_place, {"lance": {"uri": f"{uri}/"}})

    assert_stalled(ended, reasons.MANIFEST_INVALID, "source and sink are one table")

    another = source_beside(lance_place, "lance")
    fill(another, files=1)
    assert isinstance(run(lance_place, another.section()).outcome, Finish)


# --- later epochs ---------------------------------------------------------------------------------------------------------


def test_the_next_epoch_takes_exactly_what_was_appended_since(disk_place: Place, kind: str) -> None:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, kind)
    fill(source, files=2)
    run(disk_place, source.section())
    fill(source, files=2, rows=50, first=200)

    ended = run(disk_place, source.section(), runNonce="2")
    again = run(disk_place, source.section(), runNonce="3")

    assert ended.commit.rows_read == 100
    assert again.commit.rows_read == 0
    assert_exactly_once(disk_place, range(300))


def rewrite(source: SourceTable) -> str:
    """Rewrite files, as a compaction does; return what a message must name."""
    if isinstance(source, LanceSourceTable):
        source.dataset().optimize.compact_files()
        return "fragment 0"
    assert isinstance(source, IcebergSourceTable)
    source.delete("id = 0")
    snapshot = source.table().current_snapshot()
    assert snapshot is not None
    return str(snapshot.snapshot_id)


def test_rows_that_were_moved_since_the_last_epoch_are_not_taken_twice(disk_place: Place, kind: str) -> None:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, kind)
    fill(source, files=2)
    run(disk_place, source.section())
    name = rewrite(source)
    fill(source, files=1, rows=50, first=200)

    ended = run(disk_place, source.section(), runNonce="2")

    assert_stalled(ended, reasons.SOURCE_CHANGED, name, "onReplaced")
    assert_exactly_once(disk_place, range(200))


def test_a_compaction_of_an_iceberg_source_passes_without_a_loss_and_without_a_double(iceberg_place: Place) -> None:
    iceberg_place.create(SCHEMA)
    source = source_beside(iceberg_place, "iceberg")
    assert isinstance(source, IcebergSourceTable)
    fill(source, files=2)
    run(iceberg_place, source.section())
    fill(source, files=1, rows=50, first=200)
    source.compact()  # old and new rows lie in one file now
    fill(source, files=1, rows=50, first=250)

    ended = run(iceberg_place, source.section(), runNonce="2")
    assert isinstance(ended.outcome, Finish), ended.outcome
    assert ended.commit.rows_read == 100
    source.compact()
    again = run(iceberg_place, source.section(), runNonce="3")

    assert again.commit.rows_read == 0
    assert_exactly_once(iceberg_place, range(300))


def test_with_skip_only_what_was_appended_is_taken_although_files_were_rewritten(disk_place: Place) -> None:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, "iceberg")
    fill(source, files=2)
    run(disk_place, source.section())
    fill(source, files=1, rows=50, first=200)
    rewrite(source)

    ended = run(disk_place, source.section(), runNonce="2", onReplaced="Skip")

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert ended.commit.rows_read == 50
    assert_exactly_once(disk_place, range(250))


def test_with_process_rows_of_rewritten_files_come_again(disk_place: Place, kind: str) -> None:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, kind)
    fill(source, files=2)
    run(disk_place, source.section())
    rewrite(source)

    ended = run(disk_place, source.section(), runNonce="2", onReplaced="Process")

    assert isinstance(ended.outcome, Finish), ended.outcome
    counts = Counter(row["id"] for row in disk_place.rows())
    # Iceberg rewrote the file with the row that was deleted; Lance made one fragment of all.
    expected = dict.fromkeys(range(1, 100), 2) | {0: 1} | dict.fromkeys(range(100, 200), 1)
    assert counts == (expected if kind == "iceberg" else dict.fromkeys(range(200), 2))


def test_a_history_that_no_longer_reaches_back_to_the_last_epoch_stops_the_next_one(iceberg_place: Place) -> None:
    iceberg_place.create(SCHEMA)
    source = source_beside(iceberg_place, "iceberg")
    assert isinstance(source, IcebergSourceTable)
    fill(source, files=1)
    run(iceberg_place, source.section())
    source.catalog.drop_table(source.name)
    fill(source, files=1)

    ended = run(iceberg_place, source.section(), runNonce="2")

    assert_stalled(ended, reasons.SOURCE_CHANGED, "dropped and made again")
    assert_exactly_once(iceberg_place, range(100))

    assert isinstance(run(iceberg_place, source.section(), name="again").outcome, Finish)
    assert len(iceberg_place.rows()) == 200


def test_a_dataset_that_was_made_again_is_told_from_the_one_that_was_read(lance_place: Place) -> None:
    lance_place.create(SCHEMA)
    source = source_beside(lance_place, "lance")
    assert isinstance(source, LanceSourceTable)
    fill(source, files=2)
    interrupt(lance_place, source.section(), after_tasks=1)
    shutil.rmtree(source.uri)
    fill(source, files=2)

    ended = run(lance_place, source.section())

    assert_stalled(ended, reasons.SOURCE_CHANGED, "made again")

    assert isinstance(run(lance_place, source.section(), name="again").outcome, Finish)
