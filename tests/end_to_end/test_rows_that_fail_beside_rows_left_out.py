"""Poison rows where `where` or a table's deletes have left out others: a row is named by the place where it lies, whatever was
left out before it; what was left out is done, and neither read nor quarantined. And poison rows of tables, in later epochs.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from checkpoint_commit.catalogs.source_tables import describe
from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.loop.reconcile import Reconciler, Round
from checkpoint_formats.iceberg.plan import columns_of, find_files
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.manifest.sources.source import IcebergSource
from checkpoint_protocol.records import DeleteFile, InputRecord, QuarantinedRow
from checkpoint_protocol.records.inputs import SourceFile
from tests.support.checks import assert_exactly_once
from tests.support.places import Place
from tests.support.records import position_of
from tests.support.slow import slow_except_on
from tests.support.source_places import IcebergSourceTable, LanceSourceTable, SourceTable, source_beside
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

ROWS = 400
WHERE = "id >= 10 and id not in (120, 121, 250)"
LEFT_OUT = {*range(10), 120, 121, 250}
DELETED = {0, 55, 122, 124, 399}
#: 5 and 121 are left out, so that nothing fails on them.
POISON = (5, 11, 121, 123, 249, 251, 398)
FAILING = {11, 123, 249, 251, 398}

_numbers = itertools.count()

#: Takes the ids that a step fails on, and returns the step.
Poisonous = Callable[..., dict[str, Any]]


@pytest.fixture
def poison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Poisonous:
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def step(*ids: int, kind: str = "row") -> dict[str, Any]:
        name = f"left_out_code_{next(_numbers)}"
        seen = "{row['id']}" if kind == "row" else "set(row['id'].to_pylist())"
        text = f"def work(row):\n    if {set(ids) or 'set()'} & {seen}: raise ValueError('poison')\n    return row\n"
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        return {"call": f"{name}:work", "input": kind}

    return step


def prepared(place: Place, section: dict[str, Any], step: dict[str, Any], **spec: Any) -> Reconciler:
    return reconciler_for(manifest_for(place, section, steps=[step], onRowError="Quarantine", **spec), place)


def run(place: Place, section: dict[str, Any], step: dict[str, Any], **spec: Any) -> Round:
    return drive(prepared(place, section, step, **spec))


def counts(ended: Round) -> tuple[int, int, int]:
    """Return the rows that were read, written and quarantined by a committed epoch."""
    assert isinstance(ended.outcome, Finish), ended.outcome
    assert ended.commit is not None
    return ended.commit.rows_read, ended.commit.rows_written, ended.commit.rows_quarantined


def quarantined(reconciler: Reconciler) -> list[tuple[SourceFile, QuarantinedRow]]:
    """Return the rows that the only attempt's seals quarantine, with their files."""
    ledger = reconciler.current_ledger()
    record = ledger.inputs.read_input()
    assert record is not None
    rows = [row for seal in ledger.chains.counted_seals([1]) for row in ledger.quarantine.quarantined_rows(seal)]
    return [(record.files[position_of(row).file], row) for row in rows]


# --- where the rows lie ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["row", "arrow"])
@slow_except_on("disk_place", "iceberg-sql-disk")
def test_poison_rows_of_parquet_are_placed_by_their_numbers_though_where_leaves_rows_out(
    disk_place: Place, tmp_path: Path, poison: Poisonous, kind: str
) -> None:
    disk_place.create(SCHEMA)
    section = {"files": {"format": "parquet", "paths": [str(write_inputs(tmp_path / "in"))]}, "where": WHERE}
    reconciler = prepared(disk_place, section, poison(*POISON, kind=kind))

    ended = drive(reconciler)

    assert counts(ended) == (ROWS - len(LEFT_OUT), ROWS - len(LEFT_OUT | FAILING), len(FAILING))
    assert_exactly_once(disk_place, set(range(ROWS)) - LEFT_OUT - FAILING)
    found = {(Path(file.path).name, position_of(row).start, position_of(row).end) for file, row in quarantined(reconciler)}
    assert found == {(f"part-{n // 100}.parquet", n % 100, n % 100 + 1) for n in FAILING}
    assert counts(run(disk_place, section, poison(), runNonce="2", quarantine={"retry": "Only"})) == (len(FAILING),) * 2 + (0,)
    assert_exactly_once(disk_place, set(range(ROWS)) - LEFT_OUT)


@pytest.mark.parametrize("name", ["in.csv", "in.json", "in.csv.gz"])
def test_poison_rows_of_text_are_placed_by_their_lines_though_where_leaves_rows_out(
    iceberg_place: Place, tmp_path: Path, poison: Poisonous, name: str
) -> None:
    iceberg_place.create(SCHEMA)
    path = tmp_path / name
    if "csv" in name:
        with pa.output_stream(str(path), compression="gzip" if name.endswith("gz") else None) as out:
            pa.csv.write_csv(rows_of(range(ROWS)), out)
    else:
        path.write_text("".join(f'{{"id": {n}, "text": "zeile {n}"}}\n' + "\n" * (n % 3) for n in range(ROWS)))
    section = {"files": {"format": "json" if "json" in name else "csv", "paths": [str(path)]}, "where": WHERE}
    reconciler = prepared(iceberg_place, section, poison(*POISON))

    ended = drive(reconciler)

    assert counts(ended) == (ROWS - len(LEFT_OUT), ROWS - len(LEFT_OUT | FAILING), len(FAILING))
    places = [position_of(row) for _, row in quarantined(reconciler)]
    if name.endswith("gz"):
        assert {(where.start, where.end) for where in places} == {(n, n + 1) for n in FAILING}
    else:
        text = path.read_bytes()
        lines = {n: text.index(f"zeile {n}".encode() + b'"') for n in FAILING}
        assert sorted(sum(where.start <= at < (where.end or 0) for where in places) for at in lines.values()) == [1] * 5
        assert all(text[where.start : where.end].strip().count(b"\n") == 0 for where in places)
    assert counts(run(iceberg_place, section, poison(), runNonce="2", quarantine={"retry": "Only"})) == (len(FAILING),) * 2 + (0,)
    assert_exactly_once(iceberg_place, set(range(ROWS)) - LEFT_OUT)


def fill(source: SourceTable, files: int = 4, rows: int = 100, first: int = 0) -> None:
    for number in range(files):
        source.append(rows_of(range(first + number * rows, first + (number + 1) * rows)))


def put_input_with_deletes(reconciler: Reconciler, source: IcebergSourceTable, folder: Path) -> None:
    """Fix the input as a table would have it that has position deletes: pyiceberg writes none."""
    table = describe(IcebergSource(catalog="test", table=source.name), source.table())
    files = []
    for number, file in enumerate(find_files(table, None, source.place.settings.for_drivers(), None, "Fail")):
        ids = pq.read_table(file.path.removeprefix("file://"))["id"].to_pylist()
        path = folder / f"deletes-{number}.parquet"
        gone = pa.array([at for at, n in enumerate(ids) if n in DELETED], pa.int64())
        pq.write_table(pa.table({"file_path": [file.path] * len(gone), "pos": gone}), path)
        assert file.iceberg is not None
        known = file.iceberg.model_copy(update={"deletes": (DeleteFile(path=str(path), format="parquet"),)})
        files.append(replace(file, iceberg=known))
    reconciler.current_ledger().inputs.put_input(
        InputRecord(token=new_token(), files=tuple(files), arrow_schema=encode_schema(columns_of(table)), tables=(table,))
    )


@pytest.mark.parametrize("kind", ["iceberg", "lance"])
@slow_except_on("disk_place", "lance-disk")
def test_poison_rows_of_a_table_are_placed_by_their_numbers_though_where_and_deletes_leave_rows_out(
    disk_place: Place, tmp_path: Path, poison: Poisonous, kind: str
) -> None:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, kind)
    fill(source)
    section = source.section(where=WHERE)
    if isinstance(source, LanceSourceTable):
        source.delete(f"id in ({', '.join(map(str, DELETED))})")
    reconciler = prepared(disk_place, section, poison(*POISON))
    if isinstance(source, IcebergSourceTable):
        put_input_with_deletes(reconciler, source, tmp_path)

    ended = drive(reconciler)

    gone = LEFT_OUT | DELETED
    assert counts(ended) == (ROWS - len(gone), ROWS - len(gone | FAILING), len(FAILING))
    assert_exactly_once(disk_place, set(range(ROWS)) - gone - FAILING)
    found = []
    for file, row in quarantined(reconciler):
        if file.fragment is not None:
            first = file.fragment * 100
        else:
            first = pq.read_table(file.path.removeprefix("file://"))["id"][0].as_py()
        assert position_of(row).end == position_of(row).start + 1
        found.append(first + position_of(row).start)
    assert sorted(found) == sorted(FAILING)
    assert counts(run(disk_place, section, poison(), runNonce="2", quarantine={"retry": "Also"})) == (len(FAILING),) * 2 + (0,)
    assert_exactly_once(disk_place, set(range(ROWS)) - gone)


# --- poison rows of tables, again -----------------------------------------------------------------------------------------


@pytest.fixture(params=["iceberg", "lance"])
def source(request: pytest.FixtureRequest, disk_place: Place) -> SourceTable:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, str(request.param))
    fill(source, files=2)
    return source


@slow_except_on("disk_place", "lance-disk")
def test_an_epoch_that_only_tries_rows_of_a_table_again_leaves_what_was_appended_to_the_next(
    source: SourceTable, disk_place: Place, poison: Poisonous
) -> None:
    assert counts(run(disk_place, source.section(), poison(3, 123, 124))) == (200, 197, 3)
    fill(source, files=1, rows=10, first=200)

    assert counts(run(disk_place, source.section(), poison(124), runNonce="2", quarantine={"retry": "Only"})) == (3, 2, 1)
    assert_exactly_once(disk_place, set(range(200)) - {124})
    assert counts(run(disk_place, source.section(), poison(), runNonce="3", quarantine={"retry": "Also"})) == (11, 11, 0)
    assert counts(run(disk_place, source.section(), poison(), runNonce="4", quarantine={"retry": "Also"})) == (0, 0, 0)
    assert_exactly_once(disk_place, range(210))


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_a_first_epoch_that_only_tries_again_takes_nothing_of_a_table_and_the_next_all(
    source: SourceTable, disk_place: Place, poison: Poisonous
) -> None:
    assert counts(run(disk_place, source.section(), poison(), quarantine={"retry": "Only"})) == (0, 0, 0)
    fill(source, files=1, rows=10, first=200)

    assert counts(run(disk_place, source.section(), poison(), runNonce="2")) == (210, 210, 0)
    assert_exactly_once(disk_place, range(210))


@slow_except_on("disk_place", "lance-disk")
def test_rows_that_a_compaction_has_moved_since_an_epoch_that_only_tried_again_are_taken_by_the_next(
    disk_place: Place, poison: Poisonous
) -> None:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, "lance")
    assert isinstance(source, LanceSourceTable)
    source.has_stable_row_ids = True
    fill(source, files=2)
    assert counts(run(disk_place, source.section(), poison(3))) == (200, 199, 1)
    fill(source, files=1, rows=10, first=200)
    assert counts(run(disk_place, source.section(), poison(), runNonce="2", quarantine={"retry": "Only"})) == (1, 1, 0)
    source.compact()

    assert counts(run(disk_place, source.section(), poison(), runNonce="3")) == (10, 10, 0)
    assert_exactly_once(disk_place, range(210))


def test_rows_that_failed_are_tried_again_beside_what_a_compaction_has_put_together(disk_place: Place, poison: Poisonous) -> None:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, "lance")
    assert isinstance(source, LanceSourceTable)
    source.has_stable_row_ids = True
    fill(source, files=1)
    fill(source, files=2, rows=10, first=100)
    assert counts(run(disk_place, source.section(), poison(3))) == (120, 119, 1)
    fill(source, files=1, rows=10, first=120)
    source.dataset().optimize.compact_files(target_rows_per_fragment=100)  # the fragment of the row is large enough
    assert [fragment.physical_rows for fragment in source.dataset().get_fragments()] == [100, 30]

    assert counts(run(disk_place, source.section(), poison(), runNonce="2", quarantine={"retry": "Also"})) == (11, 11, 0)
    assert_exactly_once(disk_place, range(130))


def rewrite(source: SourceTable) -> None:
    if isinstance(source, LanceSourceTable):
        source.dataset().optimize.compact_files()
    else:
        source.delete("id = 0")


@slow_except_on("disk_place", "lance-disk")
def test_rows_whose_file_was_rewritten_stop_a_retry(source: SourceTable, disk_place: Place, poison: Poisonous) -> None:
    run(disk_place, source.section(), poison(3, 123))
    rewrite(source)

    ended = run(disk_place, source.section(), poison(), runNonce="2", quarantine={"retry": "Also"})

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.SOURCE_CHANGED
    assert "onReplaced" in ended.outcome.message
    assert_exactly_once(disk_place, set(range(200)) - {3, 123})


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_with_process_rows_that_failed_in_a_rewritten_file_come_with_the_new_file_and_not_twice(
    source: SourceTable, disk_place: Place, poison: Poisonous
) -> None:
    run(disk_place, source.section(), poison(3, 123))
    rewrite(source)

    ended = run(disk_place, source.section(), poison(), runNonce="2", quarantine={"retry": "Also"}, onReplaced="Process")

    assert isinstance(ended.outcome, Finish), ended.outcome
    twice = set(range(1, 100)) if isinstance(source, IcebergSourceTable) else set(range(200))
    expected = {n: 2 if n in twice - {3, 123} else 1 for n in range(200)}
    assert Counter(row["id"] for row in disk_place.rows()) == expected


@slow_except_on("disk_place", "lance-disk")
def test_rows_of_a_fragment_that_got_a_column_stop_a_retry_that_says_the_way_out(disk_place: Place, poison: Poisonous) -> None:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, "lance")
    assert isinstance(source, LanceSourceTable)
    fill(source, files=2)
    section = source.section(columns=["id", "text"])
    run(disk_place, section, poison(3))
    source.dataset().add_columns({"more": "id + 1"})

    ended = run(disk_place, section, poison(), runNonce="2", quarantine={"retry": "Only"})

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.SOURCE_CHANGED
    for words in ("1 quarantined rows", "fragment 0", "has changed since", "quarantine.retry: Never"):
        assert words in ended.outcome.message
    passed_over = run(disk_place, section, poison(), runNonce="2", quarantine={"retry": "Also"}, onReplaced="Process")
    assert counts(passed_over) == (0, 0, 0)


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_a_retry_alone_that_needs_an_expired_snapshot_says_the_way_out(disk_place: Place, poison: Poisonous) -> None:
    disk_place.create(SCHEMA)
    source = source_beside(disk_place, "iceberg")
    assert isinstance(source, IcebergSourceTable)
    fill(source, files=2)
    run(disk_place, source.section(), poison(3, 123))
    before = source.table().current_snapshot()
    assert before is not None
    fill(source, files=1, rows=10, first=200)
    Path(before.manifest_list.removeprefix("file://")).unlink()

    ended = run(disk_place, source.section(), poison(), runNonce="2", quarantine={"retry": "Only"})

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.SOURCE_CHANGED
    assert "quarantine.retry: Also" in ended.outcome.message
    assert counts(run(disk_place, source.section(), poison(), runNonce="2", quarantine={"retry": "Also"})) == (12, 12, 0)
    assert_exactly_once(disk_place, range(210))
