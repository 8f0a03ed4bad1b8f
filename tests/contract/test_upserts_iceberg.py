"""Upserts of Iceberg tables by the production loop, with drivers in this process: what goes and stays, what others do meanwhile.

What readers of other kinds make of such tables, and every point at which something dies, is in tests/end_to_end/test_upserts.py.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.decision.actions import BeginStage, EndStage, Finish, Stall
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_control.writes.cleaning import CleanedEpoch, Cleaner
from checkpoint_control.writes.deletion import Deleted, delete_write
from checkpoint_protocol import reasons
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.store.object_store import open_store
from tests.support.direct_drivers import DirectDrivers
from tests.support.iceberg_upserts import (
    BY_TEXT,
    DELETE,
    IGNORE,
    WAYS,
    Row,
    World,
    rows_of,
    stages_of,
    step_until,
    those,
)
from tests.support.places import IcebergPlace, on_disk, on_s3
from tests.support.position_deletes import delete_first_row
from tests.support.slow import slow_except
from tests.support.writes import drive, manifest_for, reconciler_for


def read_by(stage: Ledger) -> list[str]:
    """Return the files that a merge has read."""
    record = stage.inputs.read_input()
    assert record is not None
    return [file.path for file in record.files]


@pytest.fixture(params=["sql-disk", "rest-disk", "sql-s3"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "sql-s3":
        place = on_s3(tmp_path, "iceberg", request.getfixturevalue("s3_server"))
    else:
        place = on_disk(tmp_path, "iceberg", request.getfixturevalue("rest_catalog") if request.param == "rest-disk" else None)
    assert isinstance(place, IcebergPlace)
    made = World(place, tmp_path / "input")
    made.create()
    return made


@pytest.fixture(params=WAYS)
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """No table yet, for what does not depend on the place."""
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    return World(place, tmp_path / "input", WAYS[request.param])


@pytest.fixture
def here(bare: World) -> World:
    bare.create()
    return bare


@pytest.fixture
def on_read(tmp_path: Path) -> World:
    """A table whose rows are deleted by their positions."""
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    made = World(place, tmp_path / "input")
    made.create()
    return made


def position_deletes(world: World) -> int | None:
    """Return how many rows the last snapshot has deleted by their positions; None where files are written anew."""
    return None if world.properties else int(world.said()[1]["added-position-deletes"])


# --- what goes and what stays ---------------------------------------------------------------------------------------------


def test_rows_take_the_place_of_those_with_their_keys_in_one_snapshot_and_others_are_added(world: World) -> None:
    world.place.append(rows_of(those(range(10), "old")))
    world.place.append(rows_of(those(range(10, 20), "old")))

    world.upsert(rows_of(those(range(5, 25), "new")))

    assert world.rows() == sorted([*those(range(5), "old"), *those(range(5, 25), "new")], key=repr)
    operation, said = world.said()
    assert operation == "overwrite"
    assert (said["added-records"], said["added-position-deletes"], said["added-delete-files"]) == ("20", "15", "2")
    assert (said["total-records"], said["total-position-deletes"]) == ("40", "15")
    assert len(world.place.keys()) == 1
    assert len(world.place.table().snapshots()) == 3


def test_a_delete_file_names_one_data_file_by_its_whole_path_so_that_readers_plan_it_for_that_one_only(on_read: World) -> None:
    on_read.place.append(rows_of(those(range(10), "old")))
    on_read.place.append(rows_of(those(range(10, 20), "old")))

    on_read.upsert(rows_of(those(range(20), "new")))

    planned = [
        (task.file.file_path, [delete.lower_bounds[2147483546].decode() for delete in task.delete_files])
        for task in on_read.place.table().scan().plan_files()
    ]
    assert sorted(bounds for _, bounds in planned if bounds) == sorted([path] for path, bounds in planned if bounds)
    assert sum(len(bounds) for _, bounds in planned) == len(on_read.delete_files()) == 2
    assert all(delete.lower_bounds == delete.upper_bounds for delete in on_read.delete_files())


def test_rows_are_deleted_by_key_and_nothing_is_added(on_read: World) -> None:
    on_read.place.append(rows_of(those(range(10), "old")))

    on_read.upsert(rows_of([*those(range(4), "gone"), (4, "gone"), (4, "gone again"), (99, "never ton_read")]), sink=DELETE)

    assert on_read.rows() == those(range(5, 10), "old")
    operation, said = on_read.said()
    assert operation == "delete"
    assert said["added-position-deletes"] == "5"
    assert "added-records" not in said


def test_keys_of_which_the_table_has_none_are_deleted_by_a_snapshot_without_files(here: World) -> None:
    here.place.append(rows_of(those(range(3), "old")))

    here.upsert(rows_of([(99, "never there")]), sink=DELETE)

    assert here.rows() == those(range(3), "old")
    assert len(here.place.keys()) == 1


def test_rows_with_new_keys_only_are_added_and_those_that_are_there_stay(here: World) -> None:
    here.place.append(rows_of([*those(range(5), "old"), (0, "old twin")]))

    here.upsert(rows_of(those(range(3, 6), "new")), rows_of([*those(range(6, 9), "new"), (0, "new")]), sink=IGNORE)

    assert here.rows() == sorted([*those(range(5), "old"), (0, "old twin"), *those(range(5, 9), "new")], key=repr)
    here.upsert(rows_of([(9, "newer")]), sink=IGNORE)
    assert here.said()[0] == "append"
    assert (9, "newer") in here.rows()


def test_an_upsert_into_a_table_without_rows_appends(here: World) -> None:
    begun = here.begin(rows_of(those(range(3), "new")))

    assert step_until(begun, BeginStage) == ("rewrite-0" if here.properties else "merge-0")
    assert isinstance(drive(begun).outcome, Finish)
    assert here.rows() == those(range(3), "new")
    assert here.said()[0] == "append"


def test_a_table_that_is_missing_is_made_and_upserted_next_time(bare: World) -> None:
    bare.upsert(rows_of(those(range(3), "new")), sink={"create": True})
    bare.upsert(rows_of(those(range(2, 5), "newer")))

    assert bare.rows() == sorted([*those(range(2), "new"), *those(range(2, 5), "newer")], key=repr)


def test_an_output_without_rows_changes_nothing_and_needs_no_merge(here: World) -> None:
    here.place.append(rows_of(those(range(3), "old")))
    begun = here.begin(rows_of([]))

    assert isinstance(drive(begun).outcome, Finish)
    assert stages_of(begun) == []
    assert len(here.place.table().snapshots()) == 1


def test_the_next_epoch_takes_what_is_new_in_the_source_only(here: World) -> None:
    first = here.manifest(rows_of(those(range(3), "one")))
    drive(reconciler_for(first, here.place))
    here.upsert(rows_of([(0, "another's")]))
    pq.write_table(rows_of([(2, "two"), (3, "two")]), here.folder / "1" / "more.parquet")

    again = first.model_copy(update={"spec": first.spec.model_copy(update={"run_nonce": "2"})})
    assert isinstance(drive(reconciler_for(again, here.place)).outcome, Finish)

    assert here.rows() == sorted([(0, "another's"), (1, "one"), (2, "two"), (3, "two")], key=repr)


def test_rows_that_are_deleted_already_are_not_deleted_again(here: World) -> None:
    here.place.append(rows_of(those(range(4), "old")))
    delete_first_row(here.place)

    here.upsert(rows_of(those(range(2), "new")))

    assert here.rows() == sorted([*those(range(2), "new"), *those(range(2, 4), "old")], key=repr)
    assert position_deletes(here) in (1, None)


def test_several_upserts_of_the_same_keys_leave_the_last(here: World) -> None:
    for text in ("one", "two", "three"):
        here.upsert(rows_of(those(range(5), text)))

    assert here.rows() == those(range(5), "three")


def test_a_row_moves_to_another_partition_and_each_delete_lies_in_that_of_its_data_file(bare: World) -> None:
    bare.create(BY_TEXT)
    bare.place.append(rows_of([*those(range(3), "DE"), *those(range(3, 6), "FR"), (6, None)]))
    with bare.place.table().update_spec() as update:
        update.add_field("id", BucketTransform(4), "id_bucket")
    bare.place.append(rows_of(those(range(7, 12), "DE")))

    bare.upsert(rows_of([*those(range(2, 4), "IT"), (6, "DE"), (8, None)]))

    expected = [*those(range(2), "DE"), *those(range(4, 6), "FR"), (7, "DE"), *those(range(9, 12), "DE")]
    assert bare.rows() == sorted([*expected, *those(range(2, 4), "IT"), (6, "DE"), (8, None)], key=repr)
    places = {task.file.file_path: (task.file.spec_id, task.file.partition) for task in bare.place.table().scan().plan_files()}
    for delete in bare.delete_files():
        data_file = delete.lower_bounds[2147483546].decode()
        assert places.get(data_file) in (None, (delete.spec_id, delete.partition))


def test_files_whose_statistics_say_that_they_have_none_of_the_keys_are_not_read(here: World) -> None:
    for start in range(0, 100, 10):
        here.place.append(rows_of(those(range(start, start + 10), "old")))
    begun = here.begin(rows_of(those(range(15, 18), "new")))

    assert isinstance(drive(begun).outcome, Finish)
    (stage,) = stages_of(begun)
    assert len(read_by(stage)) == 1
    assert (15, "new") in here.rows()
    assert len(here.rows()) == 100


def test_a_branch_is_upserted_and_main_stays(here: World) -> None:
    here.place.append(rows_of(those(range(3), "old")))
    iceberg = {"catalog": here.place.catalog, "table": here.place.name, "branch": "staging"}

    here.upsert(rows_of([(0, "new")]), sink={"iceberg": iceberg})
    here.upsert(rows_of([(1, "newer")]), sink={"iceberg": iceberg})

    assert here.rows() == those(range(3), "old")
    staged = here.place.table().scan().use_ref("staging").to_arrow().to_pylist()
    assert sorted((row["id"], row["text"]) for row in staged) == [(0, "new"), (1, "newer"), (2, "old")]


# --- keys -----------------------------------------------------------------------------------------------------------------

_DAY = datetime.datetime(2026, 11, 24, 7, 30, 0, 5)  # noqa: DTZ001 - as a column without a zone has it
KEYS: dict[str, tuple[IcebergType, list[Any]]] = {
    "int": (IntegerType(), [-5, 0, 7]),
    "long": (LongType(), [-(2**63), 0, 2**63 - 1]),
    "string": (StringType(), ["", 'it\'s "ä"', "x" * 300]),
    "boolean": (BooleanType(), [True, False]),
    "date": (DateType(), [datetime.date(1900, 1, 1), datetime.date(2026, 2, 28)]),
    "timestamp": (TimestampType(), [_DAY, _DAY + datetime.timedelta(microseconds=1)]),
    "timestamptz": (TimestamptzType(), [_DAY.replace(tzinfo=datetime.UTC), datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC)]),
    "time": (TimeType(), [datetime.time(0, 0), datetime.time(23, 59, 59, 999999)]),
    "decimal": (DecimalType(38, 2), [Decimal("-0.01"), Decimal("999999999999999999999999999999999999.99")]),
    "uuid": (UUIDType(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes]),
    "fixed": (FixedType(3), [b"\x00\x00\x00", b"\xff\x00a"]),
    "binary": (BinaryType(), [b"", b"\x00", b"\x00\xff"]),
}


@pytest.mark.parametrize("name", KEYS)
def test_each_type_that_can_be_a_key_is_matched_by_value(bare: World, name: str) -> None:
    kind, values = KEYS[name]
    catalog = bare.place.opened()
    catalog.create_namespace(bare.place.name.split(".")[0])
    schema = Schema(NestedField(1, "a.b\"c'", kind, required=False), NestedField(2, "n", IntegerType(), required=False))
    table = catalog.create_table(bare.place.name, schema, properties=dict(bare.properties))
    arrow = pa.schema([("a.b\"c'", table.scan().to_arrow().schema.field(0).type), ("n", pa.int32())])
    plain = arrow.set(0, pa.field("a.b\"c'", pa.binary(16))) if name == "uuid" else arrow
    given = pa.table([pa.array(values, plain.field(0).type), pa.array(range(len(values)), pa.int32())], schema=plain)

    bare.upsert(given, sink={"upsertKeys": ["a.b\"c'"]})
    bare.upsert(given.slice(1), sink={"upsertKeys": ["a.b\"c'"]})

    assert len(bare.place.rows()) == len(values)
    assert position_deletes(bare) in (len(values) - 1, None)


def test_rows_are_matched_by_all_of_several_keys(bare: World) -> None:
    bare.create()
    bare.place.append(rows_of([(1, "a"), (1, "b"), (2, "a")]))

    bare.upsert(rows_of([(1, "b"), (2, "b")]), sink={"upsertKeys": ["text", "id"]})

    assert bare.rows() == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert position_deletes(bare) in (1, None)


def test_a_key_column_that_was_renamed_is_found_in_the_files_from_before(here: World) -> None:
    here.place.append(rows_of(those(range(3), "old")))
    with here.place.table().update_schema() as update:
        update.rename_column("id", "number")
    renamed = rows_of([(1, "new")]).rename_columns(["number", "text"])

    here.upsert(renamed, sink={"upsertKeys": ["number"]})

    assert sorted((row["number"], row["text"]) for row in here.place.rows()) == [(0, "old"), (1, "new"), (2, "old")]


def test_null_in_a_key_ends_the_attempt_and_names_the_row(here: World) -> None:
    done = drive(here.begin(rows_of([(1, "a"), (None, "b")])))

    assert isinstance(done.outcome, Stall)
    assert done.outcome.reason == reasons.OUTPUT_KEY_NULL
    assert "id = None; text = 'b'" in done.outcome.message
    assert here.place.table().current_snapshot() is None


def test_rows_of_the_table_whose_key_is_null_stay(here: World) -> None:
    here.place.append(rows_of([(None, "old"), (1, "old")]))

    here.upsert(rows_of([(1, "new")]))

    assert here.rows() == [(1, "new"), (None, "old")]


def test_rows_that_share_a_key_stop_the_write_and_the_last_counts_once_that_is_said(here: World) -> None:
    here.place.append(rows_of(those(range(3), "old")))
    manifest = here.manifest(rows_of([(1, "b"), (1, None), (2, "x")]), rows_of([(1, "c"), (1, "a"), (5, "y")]))
    begun = reconciler_for(manifest, here.place)

    stalled = drive(begun).outcome
    assert isinstance(stalled, Stall)
    assert stalled.reason == reasons.OUTPUT_KEY_REPEATED
    assert "id = 1 (4 rows)" in stalled.message

    sink = manifest.spec.sink.model_copy(update={"on_duplicate": "Last", "order_by": "text"})
    edited = manifest.model_copy(update={"spec": manifest.spec.model_copy(update={"sink": sink})})
    again = reconciler_for(edited, here.place)
    assert isinstance(drive(again).outcome, Finish)
    assert here.rows() == sorted([(0, "old"), (1, "c"), (2, "x"), (5, "y")], key=repr)
    assert again.observer.current_ledger.attempts.list_attempts() == [1]


def test_with_last_and_ignore_only_the_last_row_of_a_new_key_is_added(here: World) -> None:
    here.place.append(rows_of([(1, "old")]))
    last = {**IGNORE, "onDuplicate": "Last", "orderBy": "text"}

    here.upsert(rows_of([(1, "a"), (1, "b"), (2, "a"), (2, "b")]), rows_of([(2, "c"), (3, "a")]), sink=last)

    assert here.rows() == [(1, "old"), (2, "c"), (3, "a")]


# --- tables that are refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bare", ["merge-on-read"], indirect=True)
@pytest.mark.parametrize(
    ("properties", "when_matched", "said"),
    [
        ({"format-version": "1"}, "Update", "has format version 1, which has no deletes of rows"),
    ],
    ids=["format-1"],
)
def test_tables_that_want_it_otherwise_are_refused_with_the_way_out(
    bare: World, properties: dict[str, str], when_matched: str, said: str
) -> None:
    bare.create(properties=properties)
    manifest = bare.manifest(rows_of([(1, "a")]), sink={"whenMatched": when_matched})

    done = drive(reconciler_for(manifest, bare.place))

    assert isinstance(done.outcome, Stall)
    assert done.outcome.reason == reasons.TABLE_UNSUPPORTED
    assert f"the table {bare.place.catalog}.{bare.place.name} {said}" in done.outcome.message
    assert "sink.mode: Upsert" in done.outcome.message
    with bare.place.table().transaction() as transaction:
        transaction.upgrade_table_version(2)
    assert isinstance(drive(reconciler_for(manifest, bare.place)).outcome, Finish), "the way out is one"


@pytest.mark.parametrize("bare", ["merge-on-read"], indirect=True)
@pytest.mark.parametrize(("name", "sink"), [("write.delete.mode", {}), ("write.update.mode", DELETE)])
def test_a_mode_that_does_not_concern_the_upsert_is_in_nobodys_way(bare: World, name: str, sink: dict[str, Any]) -> None:
    bare.create(properties={name: "copy-on-write"})
    bare.place.append(rows_of([(1, "old"), (2, "old")]))

    bare.upsert(rows_of([(1, "new")]), sink=sink)

    assert bare.rows() == ([(2, "old")] if sink else [(1, "new"), (2, "old")])


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ({"upsertKeys": ["no"]}, "spec.sink.upsertKeys.0: there is no column 'no' (there are id, text); correct it"),
        ({"onDuplicate": "Last", "orderBy": "no"}, "spec.sink.orderBy: there is no column 'no' (there are id, text)"),
    ],
)
def test_columns_that_the_table_has_not_are_named(here: World, sink: dict[str, Any], said: str) -> None:
    done = drive(here.begin(rows_of([(1, "a")]), sink=sink))

    assert isinstance(done.outcome, Stall)
    assert done.outcome.message == said


# --- what others do meanwhile ---------------------------------------------------------------------------------------------


def test_rows_that_others_append_after_the_merge_are_matched_by_another_one_that_reads_only_them(world: World) -> None:
    world.place.append(rows_of(those(range(10), "old")))
    begun = world.begin(rows_of(those(range(5, 15), "new")))
    step_until(begun, EndStage)
    before = set(world.place.data_files())
    world.place.append(rows_of([(7, "theirs"), (12, "theirs"), (99, "theirs")]))

    assert isinstance(drive(begun).outcome, Finish)

    assert world.rows() == sorted([*those(range(5), "old"), *those(range(5, 15), "new"), (99, "theirs")], key=repr)
    stages = stages_of(begun)
    assert len(stages) == 2
    assert sorted(len(read_by(stage)) for stage in stages) == [1, 1]
    assert sum(not before & set(read_by(stage)) for stage in stages) == 1


def test_rows_that_others_append_while_the_merge_runs_or_before_it_begins_are_matched(here: World) -> None:
    here.place.append(rows_of(those(range(3), "old")))
    begun = here.begin(rows_of(those(range(5), "new")))
    step_until(begun, BeginStage)
    here.place.append(rows_of([(1, "theirs")]))

    assert isinstance(drive(begun).outcome, Finish)

    assert here.rows() == those(range(5), "new")


def test_rows_of_others_that_have_none_of_the_keys_need_no_other_merge(here: World) -> None:
    here.place.append(rows_of(those(range(10), "old")))
    begun = here.begin(rows_of(those(range(5, 8), "new")))
    step_until(begun, EndStage)
    here.place.append(rows_of(those(range(100, 110), "theirs")))

    assert isinstance(drive(begun).outcome, Finish)
    assert len(stages_of(begun)) == 1
    assert len(here.rows()) == 20


def compact(world: World) -> None:
    """Put all rows into one file anew."""
    table = world.place.table()
    table.overwrite(table.scan().to_arrow())


OTHERS: dict[str, Callable[[World], object]] = {
    "a delete of rows": lambda world: world.place.table().delete("id == 2"),
    "a compaction": compact,
    "a position delete": lambda world: delete_first_row(world.place),
    "all rows deleted": lambda world: world.place.table().delete(),
    "an upsert of another": lambda world: world.upsert(rows_of(those(range(2, 6), "theirs"))),
    "a column more": lambda world: _add_a_column(world),
}


def _add_a_column(world: World) -> None:
    with world.place.table().update_schema() as update:
        update.add_column("more", StringType())


@pytest.mark.parametrize("moment", [BeginStage, EndStage])
@pytest.mark.parametrize("what", OTHERS)
def test_whatever_others_do_to_the_rows_each_key_of_the_upsert_is_there_once(
    here: World, what: str, moment: type[BeginStage | EndStage]
) -> None:
    here.place.append(rows_of(those(range(4), "old")))
    here.place.append(rows_of(those(range(4, 8), "old")))
    begun = here.begin(rows_of(those(range(2, 10), "new")))
    step_until(begun, moment)
    OTHERS[what](here)
    expected = {row for row in here.rows() if row[0] not in range(2, 10)} | set(those(range(2, 10), "new"))

    assert isinstance(drive(begun).outcome, Finish)

    assert here.rows() == sorted(expected, key=repr)


def test_a_table_that_was_rolled_back_behind_the_merge_is_merged_as_a_whole(here: World) -> None:
    here.place.append(rows_of(those(range(3), "old")))
    first = here.place.table().current_snapshot()
    assert first is not None
    here.place.append(rows_of(those(range(3, 6), "old")))
    begun = here.begin(rows_of(those(range(2, 5), "new")))
    step_until(begun, EndStage)
    here.place.table().manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    here.place.append(rows_of([(3, "theirs")]))

    assert isinstance(drive(begun).outcome, Finish)
    assert here.rows() == sorted([*those(range(2), "old"), *those(range(2, 5), "new")], key=repr)


def test_a_table_that_moves_after_each_merge_stops_the_write_and_is_named(here: World) -> None:
    begun = here.begin(rows_of(those(range(3), "new")))
    for _ in range(8):
        step_until(begun, EndStage)
        here.place.append(rows_of([(1, "theirs")]))

    stalled = drive(begun).outcome

    assert isinstance(stalled, Stall)
    assert stalled.reason == reasons.COMMIT_CONTENDED
    head = here.place.table().current_snapshot()
    assert head is not None
    assert f"snapshot {head.snapshot_id} (append)" in stalled.message
    again = reconciler_for(manifest_of(begun, here), here.place)
    assert isinstance(drive(again).outcome, Finish)
    assert here.rows() == those(range(3), "new")


def manifest_of(begun: Reconciler, world: World) -> CheckpointedWrite:
    """Return the manifest of a write that was begun, to run it again."""
    template = manifest_for(world.place, world.folder / "1", name="write-1")
    return template.model_copy(update={"spec": begun.observer.write.spec})


# --- once, whoever tries --------------------------------------------------------------------------------------------------


def test_an_upsert_that_is_committed_is_not_done_again_though_others_have_moved_the_table(world: World) -> None:
    world.place.append(rows_of(those(range(3), "old")))
    manifest = world.manifest(rows_of(those(range(1, 4), "new")))
    begun = reconciler_for(manifest, world.place)
    assert isinstance(drive(begun).outcome, Finish)
    world.place.append(rows_of([(2, "theirs")]))
    ledger = begun.observer.current_ledger
    ledger.store.delete([ledger.at.commit_record])  # died before it was noted

    assert isinstance(drive(reconciler_for(manifest, world.place)).outcome, Finish)

    assert world.rows() == sorted([(0, "old"), *those(range(1, 4), "new"), (2, "theirs")], key=repr)
    assert len(world.place.keys()) == 1
    assert len(stages_of(begun)) == 1


def test_of_two_runners_one_commits_and_the_other_finds_it(world: World) -> None:
    world.place.append(rows_of(those(range(10), "old")))
    manifest = world.manifest(rows_of(those(range(5, 15), "new")))
    store = open_store(manifest.spec.checkpoint.uri, world.place.settings)
    drivers = DirectDrivers(store, world.place.settings)
    runners = [reconciler_for(manifest, world.place, drivers, store) for _ in range(2)]
    ended: set[int] = set()
    for _ in range(2_000):
        for number, runner in enumerate(runners):
            if number not in ended and (done := runner.step()).outcome is not None:
                assert isinstance(done.outcome, Finish), done.outcome
                ended.add(number)
        drivers.wait_a_moment()
        if len(ended) == len(runners):
            break
    assert world.rows() == sorted([*those(range(5), "old"), *those(range(5, 15), "new")], key=repr)
    assert len(world.place.keys()) == 1


def test_a_write_that_is_forgotten_in_its_merge_leaves_no_file(here: World) -> None:
    here.place.append(rows_of(those(range(10), "old")))
    manifest = here.manifest(rows_of(those(range(5, 15), "new")))
    begun = reconciler_for(manifest, here.place)
    step_until(begun, EndStage)
    uid = begun.observer.write.uid
    own = Path(here.place.table().location().removeprefix("file://")) / "data" / f"cw-{uid}"
    assert len(list(own.iterdir())) == 2

    assert isinstance(
        delete_write(begun.observer.store, uid, open_sink(begun.observer.write.spec.sink, here.place.settings)), Deleted
    )

    assert not list(own.iterdir())
    assert here.rows() == those(range(10), "old")


def test_clean_up_of_a_committed_epoch_leaves_its_delete_files(here: World) -> None:
    here.place.append(rows_of(those(range(10), "old")))
    begun = here.begin(rows_of(those(range(5, 15), "new")))
    assert isinstance(drive(begun).outcome, Finish)
    rows, observer = here.rows(), begun.observer
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)

    (cleaned,) = Cleaner(observer.store, here.place.settings, tomorrow).clean(observer.write.uid)

    assert isinstance(cleaned, CleanedEpoch)
    assert cleaned.objects > 0
    assert cleaned.data_files == 0
    assert here.rows() == rows


# --- against a model ------------------------------------------------------------------------------------------------------

_ROWS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("abc")), max_size=6)
_KINDS = st.sampled_from(["append", "update", "delete", "ignore", "last"])
_STEPS = st.lists(st.tuples(_KINDS, _ROWS, _ROWS), max_size=5)
_SINKS: dict[str, dict[str, Any]] = {
    "update": {},
    "delete": DELETE,
    "ignore": IGNORE,
    "last": {"onDuplicate": "Last", "orderBy": "text"},
}


@pytest.mark.parametrize("way", slow_except(WAYS, "merge-on-read"))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
def test_any_sequence_of_upserts_and_appends_of_others_in_between_is_what_it_is_on_a_list(
    steps: list[tuple[str, list[tuple[int, str]], list[tuple[int, str]]]], way: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("model")
    place = on_disk(folder, "iceberg")
    assert isinstance(place, IcebergPlace)
    world = World(place, folder / "input", WAYS[way])
    world.create(BY_TEXT)
    model: list[Row] = []
    for kind, given_rows, theirs in steps:
        rows: list[Row] = list(given_rows)
        if kind == "append":
            place.append(rows_of(rows))
            model += rows
            continue
        if kind in ("update", "ignore"):
            rows = list(dict(rows).items())
        begun = world.begin(rows_of(rows), sink=_SINKS[kind])
        if rows:
            step_until(begun, EndStage)
            if theirs:
                place.append(rows_of(list(theirs)))
                model += theirs
        assert isinstance(drive(begun).outcome, Finish)
        keys = {number for number, _ in rows}
        if kind == "ignore":
            there = {number for number, _ in model}
            model += [row for row in rows if row[0] not in there]
        else:
            model = [row for row in model if row[0] not in keys]
            if kind == "update":
                model += rows
            elif kind == "last":
                model += [max(row for row in rows if row[0] == key) for key in keys]
    assert world.rows() == sorted(model, key=repr)
