"""The table changes between staging and commit. Lance itself would accept all of these and read NULL, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import DoubleType, LongType, StringType

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_protocol import reasons
from checkpoint_protocol.store.object_store import local_path
from tests.support.checks import assert_exactly_once
from tests.support.places import IcebergPlace, LancePlace, Place
from tests.support.slow import slow_except_on
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

ROWS = 400


def sealed(place: Place, source: Path) -> Reconciler:
    """Return a loop whose write is sealed and closed, and not claimed."""
    reconciler = reconciler_for(manifest_for(place, source), place)
    while not (seen := reconciler.observer.observe()).attempts or not seen.attempts[-1].is_complete:
        reconciler.step()
        reconciler.observer.drivers.wait_a_moment()  # type: ignore[attr-defined]
    assert reconciler.current_ledger().commits.list_claims() == []
    return reconciler


def drop_column(place: Place) -> None:
    if isinstance(place, IcebergPlace):
        with place.table().update_schema() as update:
            update.delete_column("text")
    else:
        assert isinstance(place, LancePlace)
        place.dataset().drop_columns(["text"])


def drop_and_add_again(place: Place) -> None:
    drop_column(place)
    if isinstance(place, IcebergPlace):
        with place.table().update_schema() as update:
            update.add_column("text", StringType())
    else:
        assert isinstance(place, LancePlace)
        place.dataset().add_columns(pa.schema([("text", pa.string())]))


def retype(place: Place) -> None:
    if isinstance(place, IcebergPlace):
        with place.table().update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("id")
        with place.table().update_schema() as update:
            update.add_column("id", DoubleType())
    else:
        assert isinstance(place, LancePlace)
        place.dataset().alter_columns({"path": "id", "data_type": pa.int32()})


def drop_and_make_again(place: Place) -> None:
    if isinstance(place, IcebergPlace):
        place.opened().drop_table(place.name)
    else:
        assert isinstance(place, LancePlace)
        import shutil

        if (folder := local_path(place.uri)) is not None:
            data = folder / "data"
            kept = folder.parent / "kept"
            data.rename(kept)  # the staged files survive, so that only the identity can tell
            shutil.rmtree(folder)
            folder.mkdir()
            kept.rename(data)
    place.create(SCHEMA)


def add_required_column(place: Place) -> None:
    assert isinstance(place, IcebergPlace)
    with place.table().update_schema(allow_incompatible_changes=True) as update:
        update.add_column("must", LongType(), required=True)


def promote_is_a_retype(place: Place) -> None:
    retype(place)


CHANGES: dict[str, tuple[Callable[[Place], None], str]] = {
    "column dropped": (drop_column, reasons.SCHEMA_CHANGED),
    "column dropped and made again": (drop_and_add_again, reasons.SCHEMA_CHANGED),
    "column retyped": (retype, reasons.SCHEMA_CHANGED),
    "table dropped and made again": (drop_and_make_again, reasons.TABLE_REPLACED),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_staged_files_do_not_fit_is_refused_with_its_reason(disk_place: Place, tmp_path: Path, change: str) -> None:
    disk_place.create(SCHEMA)
    reconciler = sealed(disk_place, write_inputs(tmp_path / "in"))
    alter, reason = CHANGES[change]
    alter(disk_place)
    before = len(disk_place.rows())

    ended = drive(reconciler)

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reason, ended.outcome
    if "column" in change:
        assert "'text'" in ended.outcome.message or "'id'" in ended.outcome.message
    assert len(disk_place.rows()) == before
    assert disk_place.keys() == []

    if reason == reasons.TABLE_REPLACED:
        again = drive(reconciler_for(manifest_for(disk_place, tmp_path / "in", name="again"), disk_place))
        assert isinstance(again.outcome, Finish)
        assert len(disk_place.rows()) > before


def test_a_required_column_that_is_new_is_refused(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    from tests.end_to_end.conftest import make_place

    place = make_place("iceberg-sql-disk", tmp_path, request)
    place.create(SCHEMA)
    reconciler = sealed(place, write_inputs(tmp_path / "in"))
    add_required_column(place)

    ended = drive(reconciler)

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.SCHEMA_CHANGED
    assert "'must'" in ended.outcome.message


def test_a_new_nullable_column_reads_as_null_in_the_committed_rows(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    reconciler = sealed(disk_place, write_inputs(tmp_path / "in"))
    if isinstance(disk_place, IcebergPlace):
        with disk_place.table().update_schema() as update:
            update.add_column("extra", StringType())
    else:
        assert isinstance(disk_place, LancePlace)
        disk_place.dataset().add_columns(pa.schema([("extra", pa.string())]))

    ended = drive(reconciler)

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert_exactly_once(disk_place, range(ROWS))
    assert {row["extra"] for row in disk_place.rows()} == {None}
    assert {row["text"] for row in disk_place.rows()} == {f"zeile {n}" for n in range(ROWS)}


def test_a_staged_file_that_a_cleaner_removed_is_named_and_nothing_is_committed(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    reconciler = sealed(disk_place, write_inputs(tmp_path / "in"))
    staged = [
        path
        for pattern in ("**/cw-*/*.parquet", "**/rows.lance/data/*.lance")
        for path in Path(disk_place.base_uri).glob(pattern)
    ]
    staged[0].unlink()

    ended = drive(reconciler)

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.STAGED_FILE_MISSING
    assert staged[0].name in ended.outcome.message
    assert disk_place.rows() == []

    again = drive(reconciler_for(manifest_for(disk_place, tmp_path / "in", name="again"), disk_place))
    assert isinstance(again.outcome, Finish)
    assert len(disk_place.rows()) > 0


def test_a_staged_file_that_was_written_over_is_refused(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    reconciler = sealed(disk_place, write_inputs(tmp_path / "in"))
    staged = next(
        path
        for pattern in ("**/cw-*/*.parquet", "**/rows.lance/data/*.lance")
        for path in Path(disk_place.base_uri).glob(pattern)
    )
    staged.write_bytes(staged.read_bytes() + b"!")

    ended = drive(reconciler)

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.STAGED_FILE_MISSING
    assert disk_place.rows() == []


@slow_except_on("place", "iceberg-rest-disk", "lance-s3")
def test_rows_that_a_stranger_appends_between_stage_and_commit_are_there_too(place: Place, tmp_path: Path) -> None:
    place.create(SCHEMA)
    reconciler = sealed(place, write_inputs(tmp_path / "in"))
    place.append(rows_of(range(900, 950)))

    ended = drive(reconciler)

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert_exactly_once(place, [*range(ROWS), *range(900, 950)])
    assert len(place.keys()) == 1
