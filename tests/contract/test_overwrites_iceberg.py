"""Overwrites of Iceberg tables, on two catalogs, disk and S3: what goes, what stays, what others did meanwhile, and crashes.

What readers of other kinds make of such tables is in tests/end_to_end/test_read_back.py.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType

from checkpoint_commit.changes import StagedChange, changes_nothing
from checkpoint_commit.iceberg import commit as iceberg
from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_commit.outcomes import CommitOutcome, Committed, Landed, Refused, Rejected
from checkpoint_commit.results import Results
from checkpoint_formats.stagers import stager_for
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import (
    IcebergTarget,
    Operation,
    OverwriteAll,
    OverwritePartitions,
    OverwriteWhere,
    StagedFile,
)
from tests.support.places import IcebergPlace, on_disk, on_s3
from tests.support.position_deletes import delete_first_row
from tests.support.records import DIGEST, KEY, ledger_over
from tests.support.stores import MemoryStore

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "country", StringType(), required=False),
    NestedField(3, "at", TimestampType(), required=False),
    NestedField(4, "share", DoubleType(), required=False),
)
BY_COUNTRY = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="country"))
BY_DAY = PartitionSpec(PartitionField(source_id=3, field_id=1000, transform=DayTransform(), name="at_day"))
ARROW = pa.schema([("id", pa.int64()), ("country", pa.string()), ("at", pa.timestamp("us")), ("share", pa.float64())])
DAY = datetime.datetime(2026, 11, 24, 7, 30)  # noqa: DTZ001 - as a column without a zone has it

Row = tuple[int, str | None]
THERE: list[Row] = [(1, "DE"), (2, "DE"), (3, "FR"), (4, None)]


def rows_of(rows: Iterable[Row], at: datetime.datetime = DAY) -> pa.Table:
    columns = list(rows)
    return pa.table(
        [[number for number, _ in columns], [country for _, country in columns], [at] * len(columns), [0.5] * len(columns)],
        schema=ARROW,
    )


@dataclass
class World:
    """A table with rows of a stranger, and the writes of one epoch."""

    place: IcebergPlace

    def create(self, spec: PartitionSpec = BY_COUNTRY) -> None:
        catalog = self.place.opened()
        catalog.create_namespace_if_not_exists(self.place.name.split(".")[0])
        catalog.create_table(self.place.name, SCHEMA, partition_spec=spec)

    def port(self, *, replaces_others: bool = False) -> PyicebergTable:
        return PyicebergTable(self.place.catalog, self.place.name, self.place.settings, replaces_others=replaces_others)

    def target(self) -> IcebergTarget:
        target = self.port().describe()
        assert target is not None
        return target

    def stage(self, operation: Operation, rows: pa.Table, key: EpochKey = KEY) -> tuple[StagedFile, ...]:
        stager = stager_for(operation, self.target(), key, "1-0", 1 << 20, self.place.settings.for_drivers())
        assert stager.arrow_schema is not None
        return tuple(stager.stage(iter(rows.cast(stager.arrow_schema).to_batches())))

    def commit(
        self,
        operation: Operation,
        files: tuple[StagedFile, ...],
        target: IcebergTarget,
        ledger: Ledger | None = None,
        *,
        replaces_others: bool = False,
    ) -> CommitOutcome:
        change = StagedChange(operation, files)
        results = Results(change, (target,), rows_read=0, rows_written=0, attempts=1, code_digests=(DIGEST,))
        port = self.port(replaces_others=replaces_others)
        return iceberg.commit(port, ledger or ledger_over(MemoryStore()), results, lambda _: None)

    def overwrite(self, make: Callable[[IcebergTarget], Operation], rows: pa.Table) -> CommitOutcome:
        target = self.target()
        operation = make(target)
        return self.commit(operation, self.stage(operation, rows), target)

    def rows(self) -> list[Row]:
        return sorted(((row["id"], row["country"]) for row in self.place.rows()), key=repr)


@pytest.fixture(params=["sql-disk", "rest-disk", "sql-s3"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "sql-s3":
        place = on_s3(tmp_path, "iceberg", request.getfixturevalue("s3_server"))
    else:
        place = on_disk(tmp_path, "iceberg", request.getfixturevalue("rest_catalog") if request.param == "rest-disk" else None)
    assert isinstance(place, IcebergPlace)
    made = World(place)
    made.create()
    place.append(rows_of(THERE))
    return made


@pytest.fixture
def on_this_disk(tmp_path: Path) -> World:
    """No table yet, for what does not depend on the place."""
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    return World(place)


@pytest.fixture
def by_country(on_this_disk: World) -> World:
    on_this_disk.create()
    on_this_disk.place.append(rows_of(THERE))
    return on_this_disk


def everything(target: IcebergTarget) -> OverwriteAll:
    return OverwriteAll(base=target.base)


def where(text: str) -> Callable[[IcebergTarget], OverwriteWhere]:
    return lambda target: OverwriteWhere(base=target.base, where=text)


def partitions(target: IcebergTarget) -> OverwritePartitions:
    return OverwritePartitions(base=target.base)


# --- what goes and what stays ---------------------------------------------------------------------------------------------


def test_overwrite_all_leaves_the_new_rows_only_in_one_snapshot_that_says_what_it_took_out(world: World) -> None:
    outcome = world.overwrite(everything, rows_of([(7, "IT")]))

    assert isinstance(outcome, Committed)
    assert world.rows() == [(7, "IT")]
    snapshot = world.place.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    said = snapshot.summary.additional_properties
    assert snapshot.summary.operation.value == "overwrite"
    assert (said["added-records"], said["deleted-records"], said["deleted-data-files"]) == ("1", "4", "3")
    assert (said["total-records"], said["total-data-files"], said["total-delete-files"]) == ("1", "1", "0")
    assert len(world.place.table().snapshots()) == 2
    assert world.place.keys() == [str(KEY)]


def test_overwrite_where_replaces_the_rows_of_the_condition_and_no_others(world: World) -> None:
    assert isinstance(world.overwrite(where("country = 'DE'"), rows_of([(7, "DE")])), Committed)

    assert world.rows() == [(3, "FR"), (4, None), (7, "DE")]


def test_a_negated_condition_leaves_null_where_it_is_as_in_sql(by_country: World) -> None:
    assert isinstance(by_country.overwrite(where("country != 'DE'"), rows_of([(7, "FR")])), Committed)

    assert by_country.rows() == [(1, "DE"), (2, "DE"), (4, None), (7, "FR")]


def test_overwrite_partitions_replaces_those_that_the_output_has_null_among_them(world: World) -> None:
    assert isinstance(world.overwrite(partitions, rows_of([(7, "FR"), (8, None), (9, "IT")])), Committed)

    assert world.rows() == [(1, "DE"), (2, "DE"), (7, "FR"), (8, None), (9, "IT")]


def test_overwrite_partitions_of_a_table_without_partitions_replaces_all(on_this_disk: World) -> None:
    world = on_this_disk
    world.create(PartitionSpec())
    world.place.append(rows_of([(1, "DE"), (2, "FR")]))

    assert isinstance(world.overwrite(partitions, rows_of([(7, "DE")])), Committed)
    assert world.rows() == [(7, "DE")]


def test_days_are_replaced_by_a_condition_on_times_and_as_partitions(on_this_disk: World) -> None:
    world = on_this_disk
    world.create(BY_DAY)
    later = DAY + datetime.timedelta(days=1)
    world.place.append(rows_of([(1, "DE")]))
    world.place.append(rows_of([(2, "DE")], later))
    whole_day = "at >= '2026-11-24T00:00:00' and at < '2026-11-25T00:00:00'"

    assert isinstance(world.overwrite(where(whole_day), rows_of([(7, "DE")])), Committed)
    assert world.rows() == [(2, "DE"), (7, "DE")]


def test_an_output_without_rows_empties_the_table_or_the_condition_and_leaves_partitions_alone(by_country: World) -> None:
    nothing = rows_of([])
    target = by_country.target()
    of_partitions = StagedChange(partitions(target), by_country.stage(partitions(target), nothing))
    assert changes_nothing(of_partitions, has_table=True)
    assert not changes_nothing(StagedChange(everything(target), ()), has_table=True)
    assert changes_nothing(StagedChange(everything(target), ()), has_table=False)

    assert isinstance(by_country.overwrite(where("country = 'DE'"), nothing), Committed)
    assert by_country.rows() == [(3, "FR"), (4, None)]
    target = by_country.target()
    assert isinstance(
        by_country.commit(everything(target), (), target, ledger_over(MemoryStore(), key=EpochKey(KEY.uid, 2))), Committed
    )
    assert by_country.rows() == []


def test_delete_files_of_what_is_replaced_go_with_it(on_this_disk: World) -> None:
    world = on_this_disk
    world.create()
    world.place.append(rows_of([(1, "DE"), (2, "FR")]))
    delete_first_row(world.place)
    assert world.rows() == [(2, "FR")]

    assert isinstance(world.overwrite(everything, rows_of([(7, "DE")])), Committed)
    table = world.place.table()
    head = table.current_snapshot()
    assert head is not None
    live = [
        entry
        for manifest in head.manifests(table.io)
        if manifest.content == ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    ]
    assert [entry.status for entry in live] == [ManifestEntryStatus.DELETED]
    assert world.rows() == [(7, "DE")]


# --- rows that are not to be put there ------------------------------------------------------------------------------------


def test_a_row_outside_the_condition_is_refused_by_its_values_before_anything_is_staged(by_country: World) -> None:
    with pytest.raises(NeedsChange, match=r"a row with country = 'FR', for which sink\.where is not true") as caught:
        by_country.overwrite(where("country = 'DE'"), rows_of([(7, "DE"), (8, "FR")]))

    assert caught.value.reason == reasons.OUTPUT_OUTSIDE_WHERE


def test_a_file_with_rows_on_both_sides_of_the_condition_is_refused_before_the_work_and_at_the_commit(by_country: World) -> None:
    target = by_country.target()
    operation = where("id <= 1")(target)

    with pytest.raises(NeedsChange, match="data files are replaced as a whole") as caught:
        by_country.port().refuse_operation(operation)
    assert caught.value.reason == reasons.TABLE_UNSUPPORTED
    outcome = by_country.commit(operation, by_country.stage(operation, rows_of([(0, "DE")])), target)
    assert isinstance(outcome, Rejected)
    assert by_country.rows() == [(1, "DE"), (2, "DE"), (3, "FR"), (4, None)]

    of_a_partition = where("country = 'DE'")(target)
    by_country.port().refuse_operation(of_a_partition)
    assert isinstance(by_country.overwrite(where("country = 'DE'"), rows_of([(7, "DE")])), Committed)
    assert by_country.rows() == [(3, "FR"), (4, None), (7, "DE")]


def test_a_condition_on_a_column_that_is_not_there_names_the_sinks_field(by_country: World) -> None:
    with pytest.raises(NeedsChange, match=r"spec\.sink\.where: there is no column 'nation'"):
        by_country.port().refuse_operation(where("nation = 'DE'")(by_country.target()))


def test_partitions_of_a_table_with_files_of_another_spec_are_refused(by_country: World) -> None:
    with by_country.place.table().update_spec() as update:
        update.add_field("at", DayTransform(), "at_day")
    target = by_country.target()

    with pytest.raises(NeedsChange, match="another partition spec"):
        by_country.port().refuse_operation(partitions(target))
    assert isinstance(by_country.overwrite(partitions, rows_of([(7, "DE")])), Rejected)
    assert isinstance(by_country.overwrite(where("country = 'DE'"), rows_of([(7, "DE")])), Committed)
    assert by_country.rows() == [(3, "FR"), (4, None), (7, "DE")]


# --- what others do meanwhile ---------------------------------------------------------------------------------------------


MAKERS: dict[str, Callable[[IcebergTarget], Operation]] = {
    "all": everything,
    "where": where("country = 'DE'"),
    "partitions": partitions,
}


@pytest.mark.parametrize("mode", MAKERS)
def test_rows_that_others_put_there_since_the_epoch_began_stop_it_unless_they_are_to_be_replaced(world: World, mode: str) -> None:
    target = world.target()
    operation = MAKERS[mode](target)
    files = world.stage(operation, rows_of([(7, "DE")]))
    world.place.append(rows_of([(5, "DE")]))
    before = world.rows()

    outcome = world.commit(operation, files, target)

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.TABLE_WRITTEN_MEANWHILE
    assert "sink.onConcurrent: Replace" in outcome.message
    assert world.rows() == before
    assert isinstance(world.commit(operation, files, target, replaces_others=True), Committed)
    assert (5, "DE") not in world.rows()
    assert (7, "DE") in world.rows()


@pytest.mark.parametrize("mode", ["where", "partitions"])
def test_rows_that_others_put_elsewhere_stay(by_country: World, mode: str) -> None:
    target = by_country.target()
    operation = MAKERS[mode](target)
    files = by_country.stage(operation, rows_of([(7, "DE")]))
    by_country.place.append(rows_of([(5, "FR")]))

    assert isinstance(by_country.commit(operation, files, target), Committed)
    assert by_country.rows() == [(3, "FR"), (4, None), (5, "FR"), (7, "DE")]


def test_rows_that_others_delete_meanwhile_are_in_nobodys_way(by_country: World) -> None:
    target = by_country.target()
    operation = where("country = 'DE'")(target)
    files = by_country.stage(operation, rows_of([(7, "DE")]))
    by_country.place.table().delete("country == 'FR'")

    assert isinstance(by_country.commit(operation, files, target), Committed)
    assert by_country.rows() == [(4, None), (7, "DE")]


def test_a_compaction_meanwhile_is_in_nobodys_way_and_an_update_is(on_this_disk: World) -> None:
    world = on_this_disk
    world.create()
    world.place.append(rows_of([(1, "DE"), (2, "DE")]))
    target = world.target()
    operation = where("country = 'DE'")(target)
    files = world.stage(operation, rows_of([(7, "DE")]))
    world.place.table().delete("id == 1")  # by writing the file again without the row
    assert isinstance(world.commit(operation, files, target), Rejected)
    metadata = Path(world.place.table().metadata_location.removeprefix("file://"))
    text = metadata.read_text()
    assert text.count('"operation":"overwrite"') == 1
    metadata.write_text(text.replace('"operation":"overwrite"', '"operation":"replace"'))

    assert isinstance(world.commit(operation, files, target), Committed)
    assert world.rows() == [(7, "DE")]


def test_an_append_that_was_expired_from_the_history_cannot_be_ruled_out(by_country: World) -> None:
    target = by_country.target()
    operation = everything(target)
    files = by_country.stage(operation, rows_of([(7, "DE")]))
    by_country.place.table().delete("country == 'FR'")
    table = by_country.place.table()
    table.maintenance.expire_snapshots().by_ids([target.snapshot_id or 0]).commit()

    outcome = by_country.commit(operation, files, target)

    assert isinstance(outcome, Rejected)
    assert "no longer reaches back" in outcome.message


def test_of_a_table_that_was_made_by_the_epoch_all_rows_are_of_others(on_this_disk: World) -> None:
    world = on_this_disk
    world.create()
    target = world.target()
    operation = OverwriteAll(base=None)
    files = world.stage(operation, rows_of([(7, "DE")]))
    world.place.append(rows_of([(5, "FR")]))

    assert isinstance(world.commit(operation, files, target), Rejected)
    assert world.rows() == [(5, "FR")]


# --- once, whoever tries --------------------------------------------------------------------------------------------------


def test_an_overwrite_that_is_committed_again_changes_nothing(world: World) -> None:
    target, ledger = world.target(), ledger_over(MemoryStore())
    operation = everything(target)
    files = world.stage(operation, rows_of([(7, "DE")]))
    first = world.commit(operation, files, target, ledger)
    world.place.append(rows_of([(8, "DE")]))

    again = world.commit(operation, files, target, ledger)

    assert isinstance(first, Committed)
    assert again == Committed(first.table_identity, first.commit_id, by_us=False)
    assert world.rows() == [(7, "DE"), (8, "DE")]


def test_of_two_overwrites_from_one_load_one_lands_and_the_other_is_refused(world: World) -> None:
    target = world.target()
    operation = everything(target)
    change = StagedChange(operation, world.stage(operation, rows_of([(7, "DE")])))
    one, other = world.port(), world.port()
    mine, theirs = one.load(KEY), other.load(KEY)
    assert mine is not None
    assert theirs is not None

    assert isinstance(one.swap(mine, KEY, change), Landed)
    assert isinstance(other.swap(theirs, KEY, change), Refused)
    assert world.rows() == [(7, "DE")]


# --- against a model ------------------------------------------------------------------------------------------------------

_COUNTRIES = st.sampled_from(["DE", "FR", "IT", None])
_ROWS = st.lists(st.tuples(st.integers(0, 99), _COUNTRIES), max_size=5)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), _ROWS),
        st.tuples(st.just("all"), _ROWS),
        st.tuples(st.just("where"), _ROWS.map(lambda rows: [(number, "DE") for number, _ in rows])),
        st.tuples(st.just("partitions"), _ROWS),
    ),
    max_size=5,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
def test_any_sequence_of_overwrites_and_appends_of_others_is_what_it_is_on_a_list(
    steps: list[tuple[str, list[Row]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = on_disk(tmp_path_factory.mktemp("model"), "iceberg")
    assert isinstance(place, IcebergPlace)
    world = World(place)
    world.create()
    model: list[Row] = []
    for number, (kind, rows) in enumerate(steps):
        if kind == "append":
            place.append(rows_of(rows))
            model += rows
            continue
        target = world.target()
        operation = MAKERS[kind](target)
        key = EpochKey(KEY.uid, number + 1)
        files = world.stage(operation, rows_of(rows), key)
        change = StagedChange(operation, files)
        if not changes_nothing(change, has_table=True):
            assert isinstance(world.commit(operation, files, target, ledger_over(MemoryStore(), key=key)), Committed)
        gone = {"all": lambda row: True, "where": lambda row: row[1] == "DE"}.get(
            kind, lambda row, countries=frozenset(country for _, country in rows): row[1] in countries
        )
        model = [row for row in model if not gone(row)] + rows
    assert world.rows() == sorted(model, key=repr)
