"""Upserts of Iceberg tables of format version 3: rows that stay keep their ids, and a data file has one deletion vector at most.

What Spark reads of such tables is in tests/end_to_end/test_upserts_format_3.py.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.table.update import UpgradeFormatVersionUpdate

from checkpoint_control.decision.actions import EndStage, Finish, Stall
from checkpoint_formats.iceberg.manifests_3 import first_row_id_of_file
from checkpoint_protocol import reasons
from devtools.rest_catalog import RestCatalog
from tests.support.format_3 import Format3Place, on_rest
from tests.support.iceberg_upserts import BY_TEXT, COPY_ON_WRITE, DELETE, World, rows_of, step_until, those
from tests.support.writes import drive, reconciler_for

FORMAT_3 = {"format-version": "3"}


@pytest.fixture
def place(tmp_path: Path, rest_catalog: RestCatalog) -> Format3Place:
    return on_rest(tmp_path, rest_catalog)


@pytest.fixture
def on_write(place: Format3Place, tmp_path: Path) -> World:
    """A table whose data files are written anew."""
    made = World(place, tmp_path / "input", {**FORMAT_3, **COPY_ON_WRITE})
    made.create()
    return made


def lineage_in(place: Format3Place) -> dict[int, tuple[int | None, int | None]]:
    """Return, of rows that were written anew, the ids and sequence numbers that their data files have for them."""
    found: dict[int, tuple[int | None, int | None]] = {}
    for path in place.data_files():
        table = pq.read_table(path.removeprefix("file://"))
        if "_row_id" in table.column_names:
            columns = [table.column(name).to_pylist() for name in ("id", "_row_id", "_last_updated_sequence_number")]
            found |= {number: (row_id, sequence) for number, row_id, sequence in zip(*columns, strict=True)}
    return found


def inherited_in(place: Format3Place) -> dict[int, int]:
    """Return the ids that rows have by their places, where no data file has any for its rows."""
    found: dict[int, int] = {}
    for file in place.files(ManifestContent.DATA):
        first = first_row_id_of_file(file)
        assert first is not None
        rows = pq.read_table(file.file_path.removeprefix("file://"), columns=["id"]).column("id").to_pylist()
        found |= {number: first + place for place, number in enumerate(rows)}
    return found


# --- files that are written anew ----------------------------------------------------------------------------------------------


def test_rows_that_stay_keep_their_ids_and_the_number_of_their_last_update(on_write: World, place: Format3Place) -> None:
    place.append(rows_of(those(range(5), "old")))
    place.append(rows_of(those(range(5, 10), "old")))

    on_write.upsert(rows_of(those(range(7, 12), "new")))
    assert on_write.rows() == sorted([*those(range(7), "old"), *those(range(7, 12), "new")], key=repr)
    assert lineage_in(place) == {5: (5, 2), 6: (6, 2)}

    on_write.upsert(rows_of([(5, "newer"), (8, "newer")]))
    assert lineage_in(place) == {6: (6, 2), 7: (10, 3), 9: (12, 3), 10: (13, 3), 11: (14, 3)}


def test_rows_of_a_file_that_is_read_in_several_batches_keep_their_ids(on_write: World, place: Format3Place) -> None:
    place.append(rows_of(those(range(600_000), "old")))
    before = inherited_in(place)
    gone = range(7, 600_000, 50_000)

    on_write.upsert(rows_of(those(gone, "new")))

    assert len(before) == 600_000
    assert lineage_in(place) == {number: (row_id, 1) for number, row_id in before.items() if number not in gone}


def test_of_staged_files_that_are_written_anew_the_rows_are_new(on_write: World, place: Format3Place) -> None:
    place.append(rows_of([(1, "old"), (2, "old")]))

    on_write.upsert(rows_of([(2, "a"), (2, "b"), (3, "a")]), sink={"onDuplicate": "Last", "orderBy": "text"})

    assert on_write.rows() == [(1, "old"), (2, "b"), (3, "a")]
    assert lineage_in(place) == {1: (0, 1), 2: (None, None), 3: (None, None)}


def test_files_with_and_without_partitions_say_nothing_of_the_ids_in_their_metrics(place: Format3Place, tmp_path: Path) -> None:
    world = World(place, tmp_path / "input", {**FORMAT_3, **COPY_ON_WRITE})
    world.create(BY_TEXT)
    place.append(rows_of([(1, "DE"), (2, "DE"), (3, "FR"), (4, None)]))

    world.upsert(rows_of([(2, "FR")]))
    world.upsert(rows_of([(3, "gone")]), sink=DELETE)

    assert world.rows() == [(1, "DE"), (2, "FR"), (4, None)]
    assert lineage_in(place) == {1: (0, 1)}


def test_rows_that_got_their_ids_after_they_were_written_anew_keep_them(place: Format3Place, tmp_path: Path) -> None:
    world = World(place, tmp_path / "input", COPY_ON_WRITE)
    world.create()
    place.append(rows_of(those(range(4), "old")))
    begun = world.begin(rows_of([(2, "new")]))
    step_until(begun, EndStage)
    table = place.table()
    table.catalog.commit_table(table, (), (UpgradeFormatVersionUpdate(**{"format-version": 3}),))
    place.append(rows_of([(9, "theirs")]))
    (first,) = [first_row_id_of_file(file) for file in place.files(ManifestContent.DATA) if file.record_count == 4]

    assert isinstance(drive(begun).outcome, Finish)

    assert first is not None
    assert world.rows() == [(0, "old"), (1, "old"), (2, "new"), (3, "old"), (9, "theirs")]
    assert lineage_in(place) == {number: (first + number, 1) for number in (0, 1, 3)}


def test_a_table_with_a_column_that_has_the_name_of_one_of_row_lineage_is_refused(place: Format3Place, tmp_path: Path) -> None:
    world = World(place, tmp_path / "input", {**FORMAT_3, **COPY_ON_WRITE})
    world.create()
    with place.table().update_schema() as update:
        update.rename_column("text", "_row_id")

    manifest = world.manifest(rows_of([(1, "a")]).rename_columns(["id", "_row_id"]))
    done = drive(reconciler_for(manifest, place))

    assert isinstance(done.outcome, Stall)
    assert done.outcome.reason == reasons.TABLE_UNSUPPORTED
    assert "has the column '_row_id'" in done.outcome.message
    with place.table().update_schema() as update:
        update.rename_column("_row_id", "text")
    again = reconciler_for(world.manifest(rows_of([(1, "a")])), place)
    assert isinstance(drive(again).outcome, Finish)
