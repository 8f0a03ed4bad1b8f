"""Upserts of Iceberg tables of format version 3: rows that stay keep their ids, and a data file has one deletion vector at most.

What Spark reads of such tables is in tests/end_to_end/test_upserts_format_3.py.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import FileFormat, ManifestContent
from pyiceberg.table.update import UpgradeFormatVersionUpdate

from checkpoint_commit.iceberg.changes.change import TableVersion
from checkpoint_commit.iceberg.changes.merges import Merged
from checkpoint_commit.iceberg.changes.vectors import find_outdated_vectors
from checkpoint_control.decision.actions import EndStage, Finish, Stall
from checkpoint_formats.iceberg.deletion_vectors import decode
from checkpoint_formats.iceberg.file_io import open_file_io
from checkpoint_formats.iceberg.manifests_3 import blob_place_of, first_row_id_of_file, referenced_data_file
from checkpoint_protocol import reasons
from checkpoint_protocol.records import IcebergDeletes
from devtools.rest_catalog import RestCatalog
from tests.support.format_3 import Format3Place, on_rest
from tests.support.iceberg_upserts import BY_TEXT, COPY_ON_WRITE, DELETE, IGNORE, World, rows_of, stages_of, step_until, those
from tests.support.position_deletes import delete_first_row
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
    upgrade(place)
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


# --- deletion vectors ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def on_read(place: Format3Place, tmp_path: Path) -> World:
    """A table whose rows are deleted by vectors."""
    made = World(place, tmp_path / "input", FORMAT_3)
    made.create()
    return made


def vectors_in(place: Format3Place) -> dict[str, tuple[int, list[int]]]:
    """Return what each data file's one vector says that it has, and which rows it has, by its offset in its Puffin file."""
    found: dict[str, tuple[int, list[int]]] = {}
    for file in place.files(ManifestContent.DELETES):
        path, at = referenced_data_file(file), blob_place_of(file)
        assert path is not None
        assert at is not None
        assert path not in found
        blob = Path(file.file_path.removeprefix("file://")).read_bytes()[at.offset : at.offset + at.length]
        found[path] = file.record_count, list(decode(blob))
    return found


def test_a_vector_takes_the_place_of_the_one_before_and_has_its_rows(on_read: World, place: Format3Place) -> None:
    place.append(rows_of(those(range(5), "old")))
    (old,) = place.data_files()
    place.append(rows_of(those(range(5, 10), "old")))

    on_read.upsert(rows_of([(1, "new"), (7, "new")]))
    on_read.upsert(rows_of([(3, "newer")]))

    assert on_read.rows() == sorted(
        [*((n, "old") for n in (0, 2, 4, 5, 6, 8, 9)), (1, "new"), (7, "new"), (3, "newer")], key=repr
    )
    assert vectors_in(place)[old] == (2, [1, 3])
    assert sorted(vectors_in(place).values()) == [(1, [2]), (2, [1, 3])]
    said = on_read.said()[1]
    assert (said["added-dvs"], said["removed-dvs"]) == ("1", "1")
    assert (said["added-position-deletes"], said["removed-position-deletes"], said["total-position-deletes"]) == ("2", "1", "3")
    assert said["total-delete-files"] == "2"


def test_a_vector_that_others_put_after_the_merge_is_united_with_that_of_the_upsert(on_read: World, place: Format3Place) -> None:
    place.append(rows_of(those(range(6), "old")))
    (old,) = place.data_files()
    on_read.upsert(rows_of([(5, "new")]))
    begun = on_read.begin(rows_of([(1, "ours")]))
    step_until(begun, EndStage)
    on_read.upsert(rows_of([(0, "gone"), (3, "gone")]), sink=DELETE)

    assert isinstance(drive(begun).outcome, Finish)

    assert on_read.rows() == [(1, "ours"), (2, "old"), (4, "old"), (5, "new")]
    assert vectors_in(place)[old] == (4, [0, 1, 3, 5])
    assert len(stages_of(begun)) == 1


def test_rows_that_ignore_and_last_leave_out_are_in_vectors_of_staged_files(on_read: World, place: Format3Place) -> None:
    place.append(rows_of([(1, "old")]))
    place.append(rows_of([(4, "old")]))

    on_read.upsert(rows_of(those(range(6), "new")), sink=IGNORE)
    assert on_read.rows() == [(0, "new"), (1, "old"), (2, "new"), (3, "new"), (4, "old"), (5, "new")]
    assert list(vectors_in(place).values()) == [(2, [1, 4])]

    on_read.upsert(rows_of([(2, "a"), (2, "b"), (9, "a")]), sink={"onDuplicate": "Last", "orderBy": "text"})
    assert on_read.rows() == [(0, "new"), (1, "old"), (2, "b"), (3, "new"), (4, "old"), (5, "new"), (9, "a")]
    assert sorted(vectors_in(place).values()) == [(1, [0]), (3, [1, 2, 4])]


def test_position_deletes_from_before_the_table_got_format_3_are_in_the_vector(place: Format3Place, tmp_path: Path) -> None:
    world = World(place, tmp_path / "input")
    world.create()
    place.append(rows_of(those(range(5), "old")))
    (old,) = place.data_files()
    delete_first_row(place)
    upgrade(place)

    world.upsert(rows_of([(3, "new")]))

    assert world.rows() == [(1, "old"), (2, "old"), (3, "new"), (4, "old")]
    (vector,) = [each for each in place.files(ManifestContent.DELETES) if referenced_data_file(each) == old]
    assert vector.record_count == 2


@pytest.mark.parametrize("is_deleted", [False, True])
def test_what_a_merge_has_found_before_the_table_got_format_3_becomes_a_vector(
    place: Format3Place, tmp_path: Path, *, is_deleted: bool
) -> None:
    world = World(place, tmp_path / "input")
    world.create()
    place.append(rows_of(those(range(5), "old")))
    begun = world.begin(rows_of([(3, "new")]))
    step_until(begun, EndStage)
    if is_deleted:
        delete_first_row(place)
    upgrade(place)
    rest = [row for row in world.rows() if row[0] != 3]

    assert isinstance(drive(begun).outcome, Finish)

    assert world.rows() == sorted([*rest, (3, "new")], key=repr)
    vectors = [each for each in place.files(ManifestContent.DELETES) if each.file_format == FileFormat.PUFFIN]
    assert [each.record_count for each in vectors] == [2 if is_deleted else 1]


def test_rows_that_came_back_after_the_merge_are_not_deleted_again_by_its_vector(on_read: World, place: Format3Place) -> None:
    place.append(rows_of(those(range(4), "old")))
    (old,) = place.data_files()
    before = version_of(place)
    on_read.upsert(rows_of([(0, "gone")]), sink=DELETE)
    now = version_of(place)
    (vector,) = place.files(ManifestContent.DELETES)
    found = IcebergDeletes(
        path="2.puffin", size_bytes=99, rows=1, data_file=old, content_offset=4, content_size_bytes=50, cardinality=2
    )
    merged = Merged(None, (found,), included={old: frozenset({vector.file_path})})

    assert find_outdated_vectors(now, merged) is None
    assert find_outdated_vectors(before, merged) == f"other deletes of rows of {old}"


def test_a_broken_vector_of_others_stops_the_write_until_the_table_is_rolled_back(on_read: World, place: Format3Place) -> None:
    place.append(rows_of(those(range(4), "old")))
    before = place.table().current_snapshot()
    assert before is not None
    manifest = on_read.manifest(rows_of([(1, "ours")]))
    begun = reconciler_for(manifest, place)
    step_until(begun, EndStage)
    on_read.upsert(rows_of([(0, "gone")]), sink=DELETE)
    (vector,) = place.files(ManifestContent.DELETES)
    at, file = blob_place_of(vector), Path(vector.file_path.removeprefix("file://"))
    assert at is not None
    data = bytearray(file.read_bytes())
    data[at.offset + at.length - 1] ^= 1
    file.write_bytes(data)

    done = drive(begun)

    assert isinstance(done.outcome, Stall)
    assert done.outcome.reason == reasons.TABLE_UNSUPPORTED
    assert "cannot be read: its checksum is wrong; roll the table" in done.outcome.message
    place.table().manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
    assert isinstance(drive(reconciler_for(manifest, place)).outcome, Finish)
    assert on_read.rows() == [(0, "old"), (1, "ours"), (2, "old"), (3, "old")]


def version_of(place: Format3Place) -> TableVersion:
    table = place.table()
    io = open_file_io(table.metadata_location, place.settings, None)
    return TableVersion(place.name, table.metadata, table.current_snapshot(), io, place.settings)


def upgrade(place: Format3Place) -> None:
    table = place.table()
    table.catalog.commit_table(table, (), (UpgradeFormatVersionUpdate(**{"format-version": 3}),))
