"""Upserts of Iceberg tables that ask for copy-on-write: data files are written anew without the rows that go.

What upserts of both ways have in common is in `test_upserts_iceberg.py` and `test_upserts_iceberg_late.py`.
"""

from __future__ import annotations

import datetime
import uuid
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from checkpoint_commit.iceberg.changes.merges import done_merges, named_staged, read_merged, with_rest
from checkpoint_control.decision.actions import BeginStage, EndStage, Finish, Stall
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.records import IcebergDeletes, IcebergRewrite
from tests.support.iceberg_upserts import BY_TEXT, COPY_ON_WRITE, DELETE, IGNORE, World, rows_of, stages_of, step_until, those
from tests.support.places import IcebergPlace, on_disk
from tests.support.position_deletes import delete_by_value, delete_first_row
from tests.support.writes import drive, reconciler_for


@pytest.fixture
def bare(tmp_path: Path) -> World:
    """No table yet."""
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    return World(place, tmp_path / "input", COPY_ON_WRITE)


@pytest.fixture
def here(bare: World) -> World:
    bare.create()
    return bare


def test_files_with_replaced_rows_are_written_anew_in_one_snapshot_and_others_stay(here: World) -> None:
    for start in (0, 10, 20):
        here.place.append(rows_of(those(range(start, start + 10), "old")))
    before = set(here.place.data_files())

    here.upsert(rows_of(those(range(5, 15), "new")))

    assert here.rows() == sorted([*those(range(5), "old"), *those(range(5, 15), "new"), *those(range(15, 30), "old")], key=repr)
    assert here.delete_files() == []
    assert len(before & set(here.place.data_files())) == 1
    operation, said = here.said()
    assert operation == "overwrite"
    assert (said["added-data-files"], said["added-records"]) == ("3", "20")
    assert (said["deleted-data-files"], said["deleted-records"]) == ("2", "20")
    assert (said["total-data-files"], said["total-records"]) == ("4", "30")
    assert len(here.place.keys()) == 1


def test_rows_are_deleted_by_key_and_what_stays_of_their_files_is_written_anew(here: World) -> None:
    here.place.append(rows_of(those(range(10), "old")))

    here.upsert(rows_of(those(range(4), "gone")), sink=DELETE)

    assert here.rows() == those(range(4, 10), "old")
    assert here.said()[0] == "overwrite"
    assert here.delete_files() == []


def test_a_file_of_which_no_row_stays_is_taken_out_and_nothing_takes_its_place(here: World) -> None:
    here.place.append(rows_of(those(range(3), "old")))

    here.upsert(rows_of(those(range(3), "new")))

    assert here.rows() == those(range(3), "new")
    assert len(here.place.data_files()) == 1
    here.upsert(rows_of(those(range(3), "gone")), sink=DELETE)
    assert here.rows() == []
    assert here.said()[0] == "delete"


def test_a_table_of_format_version_1_is_upserted_too(bare: World) -> None:
    bare.create(BY_TEXT, properties={"format-version": "1"})
    bare.place.append(rows_of([*those(range(5), "DE"), *those(range(5, 10), "FR")]))

    bare.upsert(rows_of(those(range(3, 12), "IT")))
    bare.upsert(rows_of([(1, "a"), (1, "b")]), sink={"onDuplicate": "Last", "orderBy": "text"})
    bare.upsert(rows_of([(2, "gone"), (8, "gone")]), sink=DELETE)
    bare.upsert(rows_of([(4, "not taken"), (2, "US"), (5, "not taken")]), sink=IGNORE)

    assert bare.place.table().format_version == 1
    assert bare.rows() == sorted(
        [(0, "DE"), (1, "b"), (2, "US"), *((number, "IT") for number in (*range(3, 8), *range(9, 12)))], key=repr
    )


@pytest.mark.parametrize("when_matched", ["Update", "Delete"])
@pytest.mark.parametrize("merge_mode", ["copy-on-write", "merge-on-read"])
def test_the_mode_of_merges_goes_before_that_of_updates_and_deletes(bare: World, merge_mode: str, when_matched: str) -> None:
    other = {"copy-on-write": "merge-on-read", "merge-on-read": "copy-on-write"}[merge_mode]
    bare.create(properties={"write.merge.mode": merge_mode, "write.update.mode": other, "write.delete.mode": other})
    bare.place.append(rows_of(those(range(5), "old")))

    bare.upsert(rows_of([(1, "new")]), sink={"whenMatched": when_matched})

    assert bool(bare.delete_files()) == (merge_mode == "merge-on-read")


@pytest.mark.parametrize(("name", "sink"), [("write.update.mode", {}), ("write.delete.mode", DELETE)])
def test_the_mode_of_updates_or_deletes_counts_where_merges_have_none(
    tmp_path: Path, name: str, sink: dict[str, Any], bare: World
) -> None:
    world = World(bare.place, tmp_path / "more")
    world.create(properties={name: "copy-on-write"})
    world.place.append(rows_of(those(range(5), "old")))

    world.upsert(rows_of([(1, "new")]), sink=sink)

    assert world.delete_files() == []
    assert world.said()[0] == "overwrite"


# --- what a file that is written anew has -----------------------------------------------------------------------------------


def test_columns_that_were_added_and_renamed_since_a_file_was_written_are_as_the_table_has_them(here: World) -> None:
    here.place.append(rows_of(those(range(3), "old")))
    with here.place.table().update_schema() as update:
        update.rename_column("text", "label")
        update.add_column("more", StringType())
    here.place.append(pa.table({"id": pa.array([3], pa.int64()), "label": ["old"], "more": ["kept"]}))
    with here.place.table().update_schema() as update:
        update.rename_column("more", "rest")
    new = pa.table({"id": pa.array([1], pa.int64()), "label": ["new"], "rest": ["given"]})
    here.upsert(new)

    assert sorted(tuple(row.values()) for row in here.place.rows()) == [
        *((0, "old", None), (1, "new", "given"), (2, "old", None), (3, "old", "kept")),
    ]
    here.upsert(new.set_column(0, "id", pa.array([0], pa.int64())))
    assert sorted(tuple(row.values()) for row in here.place.rows())[1:] == [
        *((1, "new", "given"), (2, "old", None), (3, "old", "kept")),
    ]


TYPES: dict[str, tuple[IcebergType, list[Any]]] = {
    "int": (IntegerType(), [-5, None, 7]),
    "double": (DoubleType(), [float("inf"), None, -0.0]),
    "string": (StringType(), ["", None, "ä" * 9]),
    "uuid": (UUIDType(), [uuid.UUID(int=1).bytes, None, uuid.UUID(int=2**127).bytes]),
    "fixed": (FixedType(3), [b"\x00\x00\x00", None, b"\xff\x00a"]),
    "binary": (BinaryType(), [b"", None, b"\x00\xff"]),
    "decimal": (DecimalType(38, 2), [Decimal("-0.01"), None, Decimal("999999999999999999999999999999999999.99")]),
    "timestamptz": (TimestamptzType(), [datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC), None, None]),
    "list": (ListType(11, StringType(), element_required=False), [["a", None], None, []]),
    "required list": (ListType(11, LongType(), element_required=True), [[1, 2], None, []]),
    "map": (MapType(11, StringType(), 12, DecimalType(9, 2), value_required=False), [[("a", Decimal("1.20"))], None, []]),
    "struct": (
        StructType(NestedField(11, "x", LongType(), required=True), NestedField(12, "y", StringType(), required=False)),
        [{"x": 1, "y": None}, None, {"x": 2, "y": "b"}],
    ),
    "list of structs": (
        ListType(11, StructType(NestedField(12, "x", LongType(), required=True)), element_required=True),
        [[{"x": 1}], None, []],
    ),
}


@pytest.mark.parametrize("name", TYPES)
def test_values_of_each_type_and_nulls_are_what_they_were(bare: World, name: str) -> None:
    kind, values = TYPES[name]
    catalog = bare.place.opened()
    catalog.create_namespace(bare.place.name.split(".")[0])
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "value", kind, required=False))
    table = catalog.create_table(bare.place.name, schema, properties=dict(COPY_ON_WRITE))
    columns = schema_to_pyarrow(schema, include_field_ids=False)
    given = pa.table([pa.array(range(len(values)), pa.int64()), pa.array(values, columns.field(1).type)], schema=columns)
    table.append(given)
    before = bare.place.rows()

    bare.upsert(given.slice(0, 1))

    assert bare.said()[0] == "overwrite"
    key = {row["id"]: row for row in bare.place.rows()}
    assert [repr(key[number]) for number in range(len(values))] == [repr(row) for row in before]


def test_a_file_whose_rows_all_stay_is_passed_over_also_where_rows_have_uuids_in_lists(bare: World) -> None:
    catalog = bare.place.opened()
    catalog.create_namespace(bare.place.name.split(".")[0])
    kind = ListType(11, UUIDType(), element_required=False)
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "value", kind, required=False))
    table = catalog.create_table(bare.place.name, schema, properties=dict(COPY_ON_WRITE))
    for number in (0, 1):
        table.append(pa.table({"id": [number, number + 2], "value": pa.nulls(2, pa.list_(pa.uuid()))}))

    bare.upsert(pa.table({"id": [0]}))

    assert sorted(row["id"] for row in bare.place.rows()) == [0, 1, 2, 3]


def test_each_file_that_is_written_anew_lies_in_the_partition_and_under_the_spec_of_the_old_one(bare: World) -> None:
    bare.create(BY_TEXT)
    bare.place.append(rows_of([*those(range(3), "DE"), *those(range(3, 6), "FR"), (6, None), (7, None)]))
    with bare.place.table().update_spec() as update:
        update.add_field("id", BucketTransform(2), "id_bucket")
    bare.place.append(rows_of(those(range(8, 20), "DE")))
    old = {(task.file.spec_id, task.file.partition) for task in bare.place.table().scan().plan_files()}

    bare.upsert(rows_of([(2, "IT"), (3, "IT"), (6, "DE"), (8, None), (9, "IT")]))

    staying = [*those(range(2), "DE"), *those(range(4, 6), "FR"), (7, None), *those(range(10, 20), "DE")]
    assert bare.rows() == sorted([*staying, (2, "IT"), (3, "IT"), (6, "DE"), (8, None), (9, "IT")], key=repr)
    places = [(task.file.spec_id, task.file.partition) for task in bare.place.table().scan().plan_files()]
    assert {place for place in places if place[0] == 0} == {place for place in old if place[0] == 0}
    scan = bare.place.table().scan(row_filter="text == 'FR'")
    assert len(list(scan.plan_files())) == 1
    assert scan.to_arrow().num_rows == 2


def test_a_spec_whose_column_was_dropped_keeps_its_files(bare: World) -> None:
    bare.create(BY_TEXT)
    bare.place.append(rows_of([*those(range(3), "DE"), *those(range(3, 6), "FR")]))
    with bare.place.table().update_spec() as update:
        update.remove_field("text")
    with bare.place.table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("text")

    bare.upsert(rows_of(those(range(2, 4), "")).select(["id"]))

    assert sorted(row["id"] for row in bare.place.rows()) == list(range(6))
    assert bare.said()[0] == "overwrite"


def test_statistics_of_a_file_that_is_written_anew_leave_it_out_where_its_rows_are_not_asked_for(here: World) -> None:
    here.place.append(rows_of(those(range(10), "old")))

    here.upsert(rows_of(those(range(5, 20), "new")))

    assert len(list(here.place.table().scan(row_filter="id < 5").plan_files())) == 1
    assert len(list(here.place.table().scan(row_filter="id >= 5").plan_files())) == 1
    assert here.place.table().scan(row_filter="id < 5").to_arrow().num_rows == 5


def test_duckdb_reads_what_was_written_anew(here: World, tmp_path: Path) -> None:
    here.place.append(rows_of(those(range(10), "old")))
    delete_first_row(here.place)
    here.upsert(rows_of(those(range(5, 15), "new")))

    connection = duckdb.connect()
    files = [path.removeprefix("file://") for path in here.place.data_files()]
    found = connection.sql("SELECT id, text FROM read_parquet($files)", params={"files": files}).fetchall()
    connection.close()

    assert sorted(found, key=repr) == here.rows() == sorted([*those(range(1, 5), "old"), *those(range(5, 15), "new")], key=repr)


# --- segments, attempts and ways --------------------------------------------------------------------------------------------


def test_a_file_that_is_read_in_several_segments_is_written_anew_by_all_of_them(here: World) -> None:
    here.place.append(rows_of(those(range(300_000), "old")))
    checkpoint = {"uri": here.place.checkpoint_uri, "interval": "0.01s", "minimumBytes": "1"}
    begun = here.begin(rows_of([(1, "new"), (2, "new")]), checkpoint=checkpoint)

    assert isinstance(drive(begun).outcome, Finish)

    (stage,) = stages_of(begun)
    seals = list(stage.chains.counted_seals([1]))
    anew = [file for seal in seals for file in seal.files if isinstance(file, IcebergRewrite)]
    assert len(anew) > 1
    assert {file.data_file for file in anew} == {anew[0].data_file}
    assert sum(file.rows for file in anew) == 300_000
    assert (len(here.rows()), len(set(here.rows()))) == (300_000, 300_000)
    assert {(1, "new"), (2, "new")} <= set(here.rows())


def test_a_property_that_changes_after_a_merge_has_begun_leaves_that_merge_and_takes_another(here: World) -> None:
    here.place.append(rows_of(those(range(10), "old")))
    begun = here.begin(rows_of(those(range(5, 15), "new")))
    assert step_until(begun, BeginStage).startswith("rewrite-")
    with here.place.table().transaction() as transaction:
        transaction.set_properties({"write.merge.mode": "merge-on-read"})

    assert isinstance(drive(begun).outcome, Finish)

    assert here.rows() == sorted([*those(range(5), "old"), *those(range(5, 15), "new")], key=repr)
    for stage in stages_of(begun):
        kinds = {
            type(file)
            for attempt in stage.attempts.list_attempts()
            for seal in stage.chains.counted_seals([attempt])
            for file in seal.files
        }
        assert kinds <= ({IcebergRewrite} if stage.key.stage.startswith("rewrite-") else {IcebergDeletes})


@pytest.mark.parametrize("first", ["copy-on-write", "merge-on-read"])
def test_what_merges_of_both_ways_have_found_is_in_one_snapshot(here: World, first: str) -> None:
    second = {"copy-on-write": "merge-on-read", "merge-on-read": "copy-on-write"}[first]
    with here.place.table().transaction() as transaction:
        transaction.set_properties({"write.merge.mode": first})
    here.place.append(rows_of(those(range(10), "old")))
    begun = here.begin(rows_of(those(range(5, 15), "new")))
    step_until(begun, EndStage)
    with here.place.table().transaction() as transaction:
        transaction.set_properties({"write.merge.mode": second})
    here.place.append(rows_of(those(range(12, 18), "theirs")))

    assert isinstance(drive(begun).outcome, Finish)

    expected = [*those(range(5), "old"), *those(range(5, 15), "new"), *those(range(15, 18), "theirs")]
    assert here.rows() == sorted(expected, key=repr)
    said = here.said()[1]
    assert (said["deleted-data-files"], said["added-position-delete-files"]) == ("1", "1")


# --- rows of staged files that are left out -----------------------------------------------------------------------------------


def test_staged_files_are_written_anew_without_the_rows_that_all_merges_have_named(here: World) -> None:
    here.place.append(rows_of(those(range(5), "old")))
    begun = here.begin(rows_of(those(range(3, 9), "new")), rows_of(those(range(9, 12), "new")), sink=IGNORE)
    names = [step_until(begun, EndStage)]
    for theirs in (7, 8):
        here.place.append(rows_of([(theirs, "theirs")]))
        names += [step_until(begun, EndStage) for _ in range(2)]
    here.place.append(rows_of([(11, "theirs")]))

    assert isinstance(drive(begun).outcome, Finish)

    new = [(number, "new") for number in (5, 6, 9, 10)]
    assert here.rows() == sorted([*those(range(5), "old"), *new, *((number, "theirs") for number in (7, 8, 11))], key=repr)
    assert [name.rpartition("-")[0].startswith("rewrite-staged") for name in names] == [False, False, True, False, True]
    operation, said = here.said()
    assert (operation, said["added-data-files"], said["added-records"]) == ("append", "2", "4")
    assert here.delete_files() == []
    paths = set(here.place.data_files())
    staged = {
        path for seal in begun.observer.current_ledger.chains.counted_seals([1]) for file in seal.files for path in file.paths
    }
    assert not paths & staged, "both had rows that are left out"


def test_a_staged_file_of_which_no_row_is_new_is_left_out(here: World) -> None:
    here.place.append(rows_of(those(range(5), "old")))

    here.upsert(rows_of(those(range(3), "new")), sink=IGNORE)

    assert here.rows() == those(range(5), "old")
    assert len(here.place.data_files()) == 1
    assert len(here.place.keys()) == 1


def test_rows_are_left_out_by_their_positions_once_the_table_asks_for_that(here: World) -> None:
    here.place.append(rows_of(those(range(5), "old")))
    begun = here.begin(rows_of(those(range(3, 9), "new")), sink=IGNORE)
    assert step_until(begun, EndStage).startswith("merge-")
    assert step_until(begun, EndStage).startswith("rewrite-staged-")
    with here.place.table().transaction() as transaction:
        transaction.set_properties({"write.merge.mode": "merge-on-read"})

    assert isinstance(drive(begun).outcome, Finish)

    assert here.rows() == sorted([*those(range(5), "old"), *those(range(5, 9), "new")], key=repr)
    assert len(here.delete_files()) == 1


@pytest.mark.parametrize("broken", ["not all rows", "another file's deletes", "what no merge names"])
def test_results_that_do_not_leave_out_what_merges_have_named_are_refused(here: World, broken: str) -> None:
    here.place.append(rows_of(those(range(5), "old")))
    begun = here.begin(rows_of(those(range(3, 9), "new")), sink=IGNORE)
    step_until(begun, EndStage)
    step_until(begun, EndStage)
    merge, rest = sorted(stages_of(begun), key=lambda stage: stage.key.stage)
    ledger = replace(rest, key=rest.key.of_stage(""))
    done = done_merges(ledger)
    merged = read_merged(ledger, done[next(iter(done))], done)
    named = dict(named_staged(merged, lambda path: True))
    assert with_rest(ledger, merged, named) is not None
    match broken:
        case "not all rows":
            named = {path: names | {"/more.parquet"} for path, names in named.items()}
        case "another file's deletes":
            named = dict.fromkeys(named, frozenset({"/other.parquet"}))
        case _:
            named = {}

    with pytest.raises(NeedsChange, match="do not take the place") as caught:
        with_rest(ledger, merged, named)
    assert caught.value.reason == reasons.STAGED_RESULT_REFUSED
    assert merge.key.stage in merged.stages


# --- deletes of others ------------------------------------------------------------------------------------------------------


def test_rows_that_others_delete_in_a_file_after_it_was_written_anew_do_not_come_back(here: World) -> None:
    here.place.append(rows_of(those(range(10), "old")))
    begun = here.begin(rows_of(those(range(5, 15), "new")))
    step_until(begun, EndStage)
    delete_first_row(here.place)

    assert isinstance(drive(begun).outcome, Finish)

    assert here.rows() == sorted([*those(range(1, 5), "old"), *those(range(5, 15), "new")], key=repr)
    assert [stage.key.stage.count("-") for stage in stages_of(begun)] == [1, 1], "both have read all"


def test_rows_that_others_delete_in_another_partition_need_no_other_merge(bare: World) -> None:
    bare.create(BY_TEXT)
    bare.place.append(rows_of(those(range(5, 15), "old")))
    bare.place.append(rows_of(those(range(90, 99), "theirs")))
    begun = bare.begin(rows_of(those(range(5, 15), "new")))
    step_until(begun, EndStage)
    delete_first_row(bare.place)

    assert isinstance(drive(begun).outcome, Finish)

    assert bare.rows() == sorted([*those(range(5, 15), "new"), *those(range(91, 99), "theirs")], key=repr)
    assert len(stages_of(begun)) == 1


def test_equality_deletes_of_what_was_written_anew_stop_the_write_by_name(here: World) -> None:
    here.place.append(rows_of(those(range(10), "old")))
    before = here.place.table().current_snapshot()
    assert before is not None
    manifest = here.manifest(rows_of(those(range(5, 15), "new")))
    begun = reconciler_for(manifest, here.place)
    step_until(begun, EndStage)
    delete_by_value(here.place, 2)

    done = drive(begun)

    assert isinstance(done.outcome, Stall)
    assert done.outcome.reason == reasons.TABLE_UNSUPPORTED
    assert "has equality deletes, which may be of rows of" in done.outcome.message
    here.place.table().manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
    here.place.table().delete("id == 2")  # what a rewrite of the data file makes of it
    assert isinstance(drive(reconciler_for(manifest, here.place)).outcome, Finish)
    assert here.rows() == sorted([*those(range(2), "old"), *those(range(3, 5), "old"), *those(range(5, 15), "new")], key=repr)


def test_equality_deletes_of_all_partitions_stop_the_write_too(here: World) -> None:
    with here.place.table().update_spec() as update:
        update.add_identity("text")
    here.place.append(rows_of(those(range(10), "old")))
    begun = here.begin(rows_of(those(range(5, 15), "new")))
    step_until(begun, EndStage)
    delete_by_value(here.place, 2, everywhere=True)

    done = drive(begun)

    assert isinstance(done.outcome, Stall)
    assert done.outcome.reason == reasons.TABLE_UNSUPPORTED
