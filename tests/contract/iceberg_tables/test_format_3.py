"""Iceberg tables of format version 3 by the committer's port: ids of rows, defaults and types, under each kind of catalog."""

from __future__ import annotations

import datetime
import json
import re
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table.update import UpgradeFormatVersionUpdate
from pyiceberg.transforms import (
    BucketTransform,
    HourTransform,
)

from checkpoint_commit.catalogs.format_3 import find_unknown
from checkpoint_commit.catalogs.source_tables import load_source
from checkpoint_commit.changes import StagedChange
from checkpoint_commit.outcomes import Landed, Refused
from checkpoint_commit.sinks.registry import format_of
from checkpoint_formats.iceberg.file_io import open_file_io
from checkpoint_formats.iceberg.manifests_3 import read_manifests
from checkpoint_formats.iceberg.stager import IcebergStager
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.manifest.sources.source import IcebergSource
from checkpoint_protocol.records import Append, OverwriteAll
from checkpoint_work.steps.values.schema_cast import fit
from tests.contract.iceberg_tables.worlds import FLAT, OTHER, SECOND, RealWorld, make_world, refused
from tests.support.format_3 import point_at, upgrade_by_hand
from tests.support.places import IcebergPlace, on_disk
from tests.support.records import KEY, appended
from tests.support.rest_tables import create_3


@pytest.fixture(params=["rest-disk", "sql-disk", "glue-s3"])
def any_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> RealWorld:
    """A real world without a table, with a catalog whose server writes the metadata, or one whose clients do."""
    made = make_world(request.param, tmp_path, request)
    assert isinstance(made, RealWorld)
    return made


def create_in_3(world: RealWorld) -> None:
    world.create(FLAT)
    upgrade_to_3(world)


def upgrade_to_3(world: RealWorld) -> None:
    table = world.place.table()
    if isinstance(table.catalog, RestCatalog):
        table.catalog.commit_table(table, (), (UpgradeFormatVersionUpdate(**{"format-version": 3}),))
    else:
        upgrade_by_hand(world.place)


def first_row_ids(world: RealWorld) -> list[tuple[int, int | None]]:
    """Of each manifest of the head, in the list's order: its rows, and the id that these begin with."""
    table = world.place.table()
    head = table.current_snapshot()
    assert head is not None
    manifests = read_manifests(head, open_file_io(table.metadata_location, world.place.settings, None))
    return [((each.added_rows_count or 0) + (each.existing_rows_count or 0), each[15]) for each in manifests]


def lineage(world: RealWorld) -> tuple[int | None, int | None, int | None]:
    """Where the rows of the head begin, how many ids it took, and the next one that is free."""
    metadata = world.place.table().metadata
    head = metadata.current_snapshot()
    assert head is not None
    return head.first_row_id, head.added_rows, getattr(metadata, "next_row_id", None)


def test_rows_of_a_table_of_format_version_3_get_ids_and_those_before_keep_theirs(any_catalog: RealWorld) -> None:
    create_in_3(any_catalog)
    any_catalog.commit(1, 2, 3)
    assert (lineage(any_catalog), first_row_ids(any_catalog)) == ((0, 3, 3), [(3, 0)])

    any_catalog.commit(4, 5, key=SECOND)

    assert (lineage(any_catalog), first_row_ids(any_catalog)) == ((3, 2, 5), [(2, 3), (3, 0)])
    assert any_catalog.place.table().metadata.format_version == 3
    assert any_catalog.ids() == [1, 2, 3, 4, 5]
    assert any_catalog.loaded(SECOND)[1].committed == SECOND.snapshot_id


def test_rows_from_before_a_table_became_version_3_get_ids_with_the_first_commit_after(any_catalog: RealWorld) -> None:
    any_catalog.create(FLAT)
    any_catalog.append_as_stranger()
    upgrade_to_3(any_catalog)

    any_catalog.commit(1, 2)

    assert (lineage(any_catalog), first_row_ids(any_catalog)) == ((0, 3, 3), [(2, 0), (1, 2)])
    assert any_catalog.ids() == [1, 2, 1_000_000]


def test_a_tombstone_takes_no_ids_of_rows(any_catalog: RealWorld) -> None:
    create_in_3(any_catalog)
    any_catalog.commit(1, key=OTHER)
    port, state = any_catalog.loaded()

    assert port.block_commit(state, KEY) == Landed(KEY.snapshot_id)

    assert (lineage(any_catalog), first_row_ids(any_catalog)) == ((1, 0, 1), [(1, 0)])
    assert any_catalog.loaded()[1].is_tombstone
    assert any_catalog.ids() == [1]


def test_a_table_that_became_version_3_while_the_write_was_running_takes_what_was_staged(any_catalog: RealWorld) -> None:
    any_catalog.create(FLAT)
    target, files = any_catalog.target(), any_catalog.stage(1)
    upgrade_to_3(any_catalog)
    port, state = any_catalog.loaded()

    assert port.find_incompatibility(state, [target], appended(files)) is None
    assert isinstance(port.swap(state, KEY, appended(files)), Landed)
    assert any_catalog.ids() == [1]


def test_a_change_that_was_packed_before_the_table_became_version_3_is_made_anew(any_catalog: RealWorld) -> None:
    any_catalog.create(FLAT)
    port = any_catalog.port()
    change = port.pack(Append(), KEY, [any_catalog.target()], any_catalog.stage(1))
    upgrade_to_3(any_catalog)
    port.load(KEY)
    state = port.load(KEY)
    assert state is not None

    with pytest.raises(Retryable, match="loaded again"):
        port.find_incompatibility(state, [any_catalog.target()], change)


def test_rows_of_a_table_of_version_3_are_overwritten_and_the_new_ones_get_new_ids(any_catalog: RealWorld) -> None:
    create_in_3(any_catalog)
    any_catalog.commit(1, 2, 3)
    target = any_catalog.target()
    port, state = any_catalog.loaded(SECOND)
    files = any_catalog.stage(4)

    assert isinstance(port.swap(state, SECOND, StagedChange(OverwriteAll(base=target.base), files)), Landed)

    assert any_catalog.ids() == [4]
    assert lineage(any_catalog) == (3, 1, 4)
    assert first_row_ids(any_catalog) == [(1, 3), (0, 4)], "of those that went none is given again"


@pytest.mark.parametrize("name", ["sql-disk", "glue-s3"])
@pytest.mark.parametrize(
    ("place", "member", "said"),
    [
        ((), {"encryption-keys": [{"key-id": "k"}]}, "encryption-keys"),
        ((), {"new": -1}, "new"),
        (("snapshots", 0), {"key-id": "k"}, "snapshots[0].key-id"),
        (("schemas", 0, "fields", 0), {"new": {"a": 1}}, "schemas[0].fields[0].new"),
    ],
)
def test_a_table_whose_metadata_would_lose_something_is_refused_and_taken_without_that(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    name: str,
    place: tuple[str | int, ...],
    member: dict[str, Any],
    said: str,
) -> None:
    world = make_world(name, tmp_path, request)
    assert isinstance(world, RealWorld)
    world.create(FLAT)
    world.append_as_stranger()
    upgrade_by_hand(world.place)
    target, files, right = world.target(), world.stage(1), world.place.table().metadata_location
    upgrade_by_hand(world.place, place, member)

    assert f"its metadata says {said}, which pyiceberg would leave out" in refused(world)
    port, state = world.loaded()
    with pytest.raises(NeedsChange, match=re.escape(said)):
        port.find_incompatibility(state, [target], appended(files))
    point_at(world.place, right)
    world.commit(2)
    assert world.ids() == [2, 1_000_000]


def test_a_list_that_lost_a_member_on_the_way_is_named(tmp_path: Path) -> None:
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    world = RealWorld(place)
    world.create(FLAT)
    world.append_as_stranger()
    upgrade_by_hand(place)
    table = place.table()
    fewer = table.metadata.model_copy(update={"snapshots": []})

    assert find_unknown(fewer, table.io.new_input(table.metadata_location)) == "snapshots"
    assert find_unknown(table.metadata, table.io.new_input(table.metadata_location)) is None


@pytest.mark.parametrize("kind", ["unknown", "geography"])
def test_a_table_with_a_column_of_a_type_that_is_not_written_is_refused_with_the_column(on_rest: RealWorld, kind: str) -> None:
    create_3(on_rest.place, {"name": "id", "type": "long"}, {"name": "what", "type": kind})

    message = refused(on_rest)

    assert f"the column 'what' of the type {kind}" in message


@pytest.mark.parametrize("kind", ["variant", "geometry(srid:4326)"])
def test_a_table_with_a_type_that_pyiceberg_does_not_know_is_refused_with_the_type_and_not_tried_again(
    on_rest: RealWorld, kind: str
) -> None:
    create_3(on_rest.place, {"name": "id", "type": "long"}, {"name": "what", "type": kind})

    assert kind in refused(on_rest)
    source = IcebergSource(catalog=on_rest.place.catalog, table=on_rest.place.name)
    with pytest.raises(NeedsChange) as caught:
        load_source(source, on_rest.place.settings)
    assert kind in caught.value.message


def test_a_default_that_pyiceberg_cannot_read_is_refused_with_its_type(tmp_path: Path) -> None:
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    world = RealWorld(place)
    world.create(FLAT)
    path = Path(place.table().metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata["schemas"][0]["fields"][0] |= {"type": "timestamp_ns", "initial-default": "2020-01-02T03:04:05.000006007"}
    path.write_text(json.dumps(metadata))

    message = refused(world)

    assert "timestamp_ns" in message
    assert "drop the column, or its default" in message


_MOMENT = datetime.datetime.fromisoformat("2020-01-02T03:04:05.000006")
#: Of each type of version 3 that has one: its default as the table's metadata have it, and as rows have it.
DEFAULTS: dict[str, tuple[str, Any, Any]] = {
    "flag": ("boolean", True, True),
    "int": ("int", 5, 5),
    "long": ("long", 1 << 40, 1 << 40),
    "float": ("float", 1.5, 1.5),
    "double": ("double", -2.5, -2.5),
    "amount": ("decimal(9,2)", "14.20", Decimal("14.20")),
    "day": ("date", "2020-02-03", datetime.date(2020, 2, 3)),
    "time": ("time", "01:02:03.000004", datetime.time(1, 2, 3, 4)),
    "at": ("timestamp", "2020-01-02T03:04:05.000006", _MOMENT),
    "utc": (
        "timestamptz",
        "2020-01-02T03:04:05.000006+00:00",
        datetime.datetime.fromisoformat("2020-01-02T03:04:05.000006+00:00"),
    ),
    "text": ("string", "größe", "größe"),
    "uid": ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7", uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")),
    "fixed": ("fixed[2]", "00FF", b"\x00\xff"),
    "raw": ("binary", "00FF", b"\x00\xff"),
}


def test_columns_that_rows_lack_have_the_tables_default_and_those_without_one_are_null(on_rest: RealWorld) -> None:
    place = {
        "type": "struct",
        "fields": [
            {"id": 101, "name": "a", "type": "long", "required": False},
            {"id": 102, "name": "b", "type": "long", "required": True, "initial-default": 8, "write-default": 9},
        ],
    }
    create_3(
        on_rest.place,
        {"name": "id", "type": "long"},
        {"name": "place", "type": place},
        {"name": "must", "type": "int", "required": True, "initial-default": 1, "write-default": 2},
        *(
            {"name": name, "type": kind, "initial-default": default, "write-default": default}
            for name, (kind, default, _) in DEFAULTS.items()
        ),
        {"name": "without", "type": "string"},
    )
    sink = Sink.model_validate(on_rest.place.sink())
    needed = format_of(sink).examine(on_rest.place.settings).columns
    assert needed is not None
    assert not any(needed.values()), "validate asks for no column"
    target = on_rest.target()
    stager = IcebergStager(target, KEY, "1-0", 1 << 20, on_rest.place.settings.for_drivers())
    given = pa.record_batch({"id": [1, 2], "place": [{"a": 7}, None]})
    files = stager.stage(iter([fit(given, stager.arrow_schema)]))
    port, state = on_rest.loaded()

    assert port.find_incompatibility(state, [target], appended(files)) is None
    assert isinstance(port.swap(state, KEY, appended(files)), Landed)

    defaults = {name: value for name, (_, _, value) in DEFAULTS.items()}
    first, second = sorted(on_rest.place.rows(), key=lambda row: row["id"])
    assert first == {"id": 1, "place": {"a": 7, "b": 9}, "must": 2, **defaults, "without": None}
    assert second == {**first, "id": 2, "place": None}
    assert pq.read_schema(files[0].path.removeprefix("file://")).field("must").metadata.keys() == {b"PARQUET:field_id"}


def test_nanoseconds_are_kept_found_by_a_filter_and_partitioned_by_their_microseconds(on_rest: RealWorld) -> None:
    create_3(
        on_rest.place,
        {"name": "id", "type": "long"},
        {"name": "ns", "type": "timestamp_ns"},
        {"name": "nstz", "type": "timestamptz_ns"},
    )
    with on_rest.place.table().update_spec() as update:
        update.add_field("ns", HourTransform(), "h")
        update.add_field("nstz", BucketTransform(4), "b")
    values = [1_600_000_000_123_456_789, -1, None]
    batch = pa.record_batch(
        {"id": [1, 2, 3], "ns": pa.array(values, pa.timestamp("ns")), "nstz": pa.array(values, pa.timestamp("ns", "UTC"))}
    )

    files = on_rest.stage_batch(batch)
    port, state = on_rest.loaded()
    assert isinstance(port.swap(state, KEY, appended(files)), Landed)

    found = pa.concat_tables([pq.read_table(file.path.removeprefix("file://")) for file in files]).sort_by("id")
    assert found["ns"].cast(pa.int64()).to_pylist() == found["nstz"].cast(pa.int64()).to_pylist() == values
    hours = {task.file.partition[0] for task in on_rest.place.table().scan().plan_files()}
    assert hours == {444_444, -1, None}


@pytest.mark.parametrize("name", ["sql-disk", "glue-s3"])
def test_a_snapshot_is_refused_whose_sequence_number_another_branch_has_taken_since_and_is_made_anew(
    tmp_path: Path, request: pytest.FixtureRequest, name: str
) -> None:
    world = make_world(name, tmp_path, request)
    assert isinstance(world, RealWorld)
    create_in_3(world)
    world.commit(1, key=OTHER)
    files = world.stage(2)
    port, state = world.loaded()
    upgrade_by_hand(world.place, (), {"last-sequence-number": 2})

    assert isinstance(port.swap(state, KEY, appended(files)), Refused)

    port, state = world.loaded()
    assert isinstance(port.swap(state, KEY, appended(files)), Landed)
    assert [snapshot.sequence_number for snapshot in world.place.table().snapshots()] == [1, 3]
    assert world.ids() == [1, 2]
