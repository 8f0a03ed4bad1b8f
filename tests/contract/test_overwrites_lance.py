"""Overwrites of Lance datasets, on disk and S3: what goes, what stays, what others did meanwhile, and crashes."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint_commit.changes import StagedChange
from checkpoint_commit.lance import commit as protocol
from checkpoint_commit.lance.changes.overwrite import LanceOverwriteWhere
from checkpoint_commit.lance.table import PylanceTable
from checkpoint_commit.outcomes import CommitBlocked, CommitOutcome, Committed, Landed, Presence, Refused, Rejected, Unknown
from checkpoint_commit.results import Results
from checkpoint_commit.sinks.registry import format_of
from checkpoint_formats.stagers import stager_for
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.records import (
    Append,
    ClaimRecord,
    LanceTarget,
    Operation,
    OverwriteAll,
    OverwritePartitions,
    OverwriteWhere,
    StagedFile,
)
from tests.support.places import LancePlace, on_disk, on_s3
from tests.support.records import DIGEST, KEY, TOKEN, ledger_over
from tests.support.stores import MemoryStore

SCHEMA = pa.schema([("id", pa.int64()), ("country", pa.string()), ("at", pa.timestamp("us")), ("share", pa.float64())])
DAY = datetime.datetime(2026, 11, 24, 7, 30)  # noqa: DTZ001 - as a column without a zone has it
OTHER = EpochKey("fedcba9876543210", 1)

Row = tuple[int, str | None]
Make = Callable[[LanceTarget], Operation]


def rows_of(rows: Iterable[Row]) -> pa.Table:
    columns = list(rows)
    return pa.table(
        [[number for number, _ in columns], [country for _, country in columns], [DAY] * len(columns), [0.5] * len(columns)],
        schema=SCHEMA,
    )


class FailsOn(PylanceTable):
    """The dataset as a committer has it that dies before, or after, its n-th request."""

    def __init__(self, place: LancePlace, request: int, *, after: bool) -> None:
        super().__init__(place.uri, place.settings)
        self.left, self.after = request, after

    def _request(self, *arguments: Any) -> Any:
        self.left -= 1
        if self.left < 0 and not self.after:
            raise Died
        answer = super()._request(*arguments)
        if self.left < 0:
            raise Died
        return answer


class Died(BaseException):
    """The committer dies here."""


@dataclass
class World:
    """A dataset with rows of a stranger, and the writes of one epoch."""

    place: LancePlace

    def port(self, *, replaces_others: bool = False) -> PylanceTable:
        return PylanceTable(self.place.uri, self.place.settings, replaces_others=replaces_others)

    def target(self) -> LanceTarget:
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
        target: LanceTarget,
        ledger: Ledger | None = None,
        port: PylanceTable | None = None,
        *,
        replaces_others: bool = False,
    ) -> CommitOutcome:
        port = port or self.port(replaces_others=replaces_others)
        change = port.pack(operation, KEY, [target], files)
        results = Results(change, (target,), rows_read=0, rows_written=0, attempts=1, code_digests=(DIGEST,))
        return protocol.commit(port, ledger or ledger_over(MemoryStore()), results, lambda _: None)

    def overwrite(self, make: Make, rows: Iterable[Row], key: EpochKey = KEY) -> CommitOutcome:
        target = self.target()
        operation = make(target)
        return self.commit(operation, self.stage(operation, rows_of(rows), key), target, ledger_over(MemoryStore(), key=key))

    def append(self, *rows: Row) -> None:
        self.place.append(rows_of(rows))

    def dataset(self) -> Any:
        return self.place.dataset()

    def rows(self) -> list[Row]:
        return sorted(((row["id"], row["country"]) for row in self.place.rows()), key=repr)

    def clean_all_but_the_latest(self) -> None:
        self.dataset().cleanup_old_versions(
            older_than=datetime.timedelta(0), delete_unverified=False, error_if_tagged_old_versions=False
        )


def made(place: Any) -> World:
    assert isinstance(place, LancePlace)
    place.create(SCHEMA)
    world = World(place)
    world.target()
    return world


@pytest.fixture(params=["disk", "s3"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    place = (
        on_s3(tmp_path, "lance", request.getfixturevalue("s3_server")) if request.param == "s3" else on_disk(tmp_path, "lance")
    )
    world = made(place)
    world.append((1, "DE"), (2, "DE"), (3, "FR"), (4, None))
    return world


@pytest.fixture
def on_this_disk(tmp_path: Path) -> World:
    world = made(on_disk(tmp_path, "lance"))
    world.append((1, "DE"), (2, "DE"), (3, "FR"), (4, None))
    return world


def everything(target: LanceTarget) -> OverwriteAll:
    return OverwriteAll(base=target.base)


def where(text: str) -> Make:
    return lambda target: OverwriteWhere(base=target.base, where=text)


MAKERS: dict[str, Make] = {"all": everything, "where": where("country = 'DE'")}


# --- what goes and what stays ---------------------------------------------------------------------------------------------


def test_overwrite_all_leaves_the_new_rows_only_in_one_version(world: World) -> None:
    before = world.dataset().version

    assert world.overwrite(everything, [(7, "IT")]) == Committed(world.target().identity, before + 1, by_us=True)

    assert world.rows() == [(7, "IT")]
    assert world.place.keys() == [str(KEY)]
    assert world.port().find_committed(KEY, world.target().identity, before + 1) is Presence.HERE


def test_an_output_without_rows_empties_the_dataset(world: World) -> None:
    assert isinstance(world.overwrite(everything, []), Committed)

    assert world.rows() == []


def test_an_overwrite_keeps_fields_identity_config_tags_and_row_ids_and_drops_indexes(on_this_disk: World) -> None:
    """What others have staged for the dataset goes on to fit, also after columns came and went."""
    world = on_this_disk
    world.dataset().drop_columns(["share"])
    world.dataset().add_columns(pa.field("share", pa.float64()))
    world.dataset().update_config({"theirs": "stays"})
    world.dataset().create_scalar_index("id", "BTREE")
    world.dataset().tags.create("before", world.dataset().version)
    theirs, before = world.stage(Append(), rows_of([(8, "IT")]), OTHER), world.target()

    assert isinstance(world.overwrite(everything, [(7, "IT")]), Committed)

    after = world.target()
    assert (after.identity, after.fields, after.arrow_schema) == (before.identity, before.fields, before.arrow_schema)
    assert after.storage_version == before.storage_version
    assert world.dataset().config()["theirs"] == "stays"
    assert world.dataset().tags.list()["before"]["version"] == before.at_version
    assert world.dataset().describe_indices() == []
    assert isinstance(world.commit(Append(), theirs, before, ledger_over(MemoryStore(), key=OTHER)), Committed)
    assert world.rows() == [(7, "IT"), (8, "IT")]


def test_a_column_that_was_added_after_staging_reads_null_and_one_that_was_dropped_stops_the_overwrite(world: World) -> None:
    target = world.target()
    files = world.stage(everything(target), rows_of([(7, "IT")]))
    world.dataset().add_columns(pa.field("later", pa.int32()))

    assert isinstance(world.commit(everything(target), files, target), Committed)
    assert [row["later"] for row in world.place.rows()] == [None]
    target = world.target()
    files = world.stage(everything(target), rows_of([(8, "IT")]).append_column("later", pa.array([1], pa.int32())))
    world.dataset().drop_columns(["later"])
    ledger = ledger_over(MemoryStore(), key=EpochKey(KEY.uid, 2))
    assert isinstance(outcome := world.commit(everything(target), files, target, ledger), Rejected)
    assert outcome.reason == reasons.SCHEMA_CHANGED
    assert world.rows() == [(7, "IT")]


@pytest.mark.parametrize("made_with", [{"enable_stable_row_ids": True}, {"data_storage_version": "legacy"}])
def test_datasets_of_other_makes_are_overwritten_as_what_they_are(tmp_path: Path, made_with: dict[str, Any]) -> None:
    place = on_disk(tmp_path, "lance")
    assert isinstance(place, LancePlace)
    lance.write_dataset(rows_of([(1, "DE"), (2, "FR")]), place.uri, **made_with)
    world = World(place)
    before = world.target()

    assert isinstance(world.overwrite(everything, [(7, "DE"), (8, "DE")]), Committed)

    assert world.rows() == [(7, "DE"), (8, "DE")]
    assert world.target().storage_version == before.storage_version
    assert world.dataset().has_stable_row_ids == ("enable_stable_row_ids" in made_with)
    world.append((9, "DE"))
    world.dataset().optimize.compact_files()
    assert world.rows() == [(7, "DE"), (8, "DE"), (9, "DE")]


@pytest.mark.parametrize("mode", ["all", "where"])
def test_vectors_and_blobs_are_what_they_were_after_an_overwrite(tmp_path: Path, mode: str) -> None:
    place = on_disk(tmp_path, "lance")
    assert isinstance(place, LancePlace)
    blob = pa.field("image", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([("country", pa.string()), ("vector", pa.list_(pa.float32(), 4)), blob])
    lance.write_dataset(pa.table([["DE"], [[0.0] * 4], [b"old"]], schema=schema), place.uri, data_storage_version="2.1")
    world = World(place)
    target = world.target()
    operation = MAKERS[mode](target)
    rows = pa.table([["DE", "DE"], [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]], [b"one", b"two" * 1000]], schema=schema)
    files = stager_for(operation, target, KEY, "1-0", 1 << 20, place.settings.for_drivers()).stage(iter(rows.to_batches()))

    assert isinstance(world.commit(operation, tuple(files), target), Committed)

    dataset = world.dataset()
    assert dataset.schema.field("vector").type == pa.list_(pa.float32(), 4)
    assert dataset.schema.field("image").metadata == blob.metadata
    assert dataset.to_table(columns=["vector"])["vector"].to_pylist() == rows["vector"].to_pylist()
    assert [blob.readall() for blob in dataset.take_blobs("image", indices=[0, 1])] == [b"one", b"two" * 1000]


def test_overwrite_where_replaces_the_rows_of_the_condition_and_no_others_of_the_same_fragment(world: World) -> None:
    version = world.dataset().version

    assert world.overwrite(where("country = 'DE'"), [(7, "DE")]) == Committed(world.target().identity, version + 1, by_us=True)

    assert world.rows() == [(3, "FR"), (4, None), (7, "DE")]
    assert world.place.keys() == [str(KEY)]


def test_a_negated_condition_leaves_null_where_it_is_as_in_sql(world: World) -> None:
    assert isinstance(world.overwrite(where("country != 'DE'"), [(7, "FR")]), Committed)

    assert world.rows() == [(1, "DE"), (2, "DE"), (4, None), (7, "FR")]


def test_an_output_without_rows_deletes_the_rows_of_the_condition_and_may_find_none(on_this_disk: World) -> None:
    world = on_this_disk

    assert isinstance(world.overwrite(where("country = 'DE'"), []), Committed)
    assert world.rows() == [(3, "FR"), (4, None)]
    version = world.dataset().version
    assert isinstance(world.overwrite(where("country = 'DE'"), [], EpochKey(KEY.uid, 2)), Committed)
    assert (world.rows(), world.dataset().version) == ([(3, "FR"), (4, None)], version + 1)


def test_fragments_of_which_no_row_is_left_go_and_deletes_of_others_stay_deleted(on_this_disk: World) -> None:
    world = on_this_disk
    world.append((5, "DE"), (6, "DE"))
    world.append((7, "FR"), (8, "DE"), (9, "FR"))
    world.dataset().delete("id in (1, 7)")

    assert isinstance(world.overwrite(where("country = 'DE' or id = 9"), [(10, "DE")]), Committed)

    assert world.rows() == [(10, "DE"), (3, "FR"), (4, None)]
    left = {fragment.fragment_id: fragment.count_rows() for fragment in world.dataset().get_fragments()}
    assert left == {0: 2, 3: 1}


def test_indexes_find_what_an_overwrite_where_has_put_and_not_what_it_took_out(on_this_disk: World) -> None:
    world = on_this_disk
    world.dataset().create_scalar_index("id", "BTREE")

    assert isinstance(world.overwrite(where("country = 'DE'"), [(7, "DE")]), Committed)

    found = [world.dataset().scanner(filter=f"id = {number}").to_table().num_rows for number in (1, 3, 7)]
    assert found == [0, 1, 1]
    assert [index.name for index in world.dataset().describe_indices()] == ["id_idx"]


def test_numbers_that_are_nan_and_times_are_taken_as_the_output_is_judged_by(tmp_path: Path) -> None:
    place = on_disk(tmp_path, "lance")
    assert isinstance(place, LancePlace)
    second = datetime.timedelta(seconds=1)
    rows = pa.table([[1, 2, 3, 4], ["DE"] * 4, [DAY, DAY + second, None, DAY], [float("nan"), 1.0, 2.0, None]], schema=SCHEMA)
    lance.write_dataset(rows, place.uri)
    world = World(place)

    assert isinstance(world.overwrite(where("share > 1.5 or share is nan"), []), Committed)
    assert [number for number, _ in world.rows()] == [2, 4]
    assert isinstance(world.overwrite(where("at > '2026-11-24T07:30:00'"), [], EpochKey(KEY.uid, 2)), Committed)
    assert [number for number, _ in world.rows()] == [4]


def test_a_row_outside_the_condition_is_refused_by_its_values_before_anything_is_staged(on_this_disk: World) -> None:
    with pytest.raises(NeedsChange, match=r"a row with country = 'FR', for which sink\.where is not true") as caught:
        on_this_disk.overwrite(where("country = 'DE'"), [(7, "DE"), (8, "FR")])

    assert caught.value.reason == reasons.OUTPUT_OUTSIDE_WHERE


def test_a_condition_that_does_not_fit_the_columns_is_refused_before_the_work_and_at_the_commit(on_this_disk: World) -> None:
    world = on_this_disk
    target = world.target()
    with pytest.raises(NeedsChange, match=r"spec\.sink\.where: there is no column 'nation'"):
        world.port().refuse_operation(where("nation = 'DE'")(target))
    world.port().refuse_operation(where("country = 'DE'")(target))

    assert isinstance(outcome := world.commit(where("nation = 'DE'")(target), (), target), Rejected)
    assert outcome.reason == reasons.MANIFEST_INVALID
    assert world.dataset().version == target.at_version


@pytest.mark.parametrize(("text", "problems"), [("nation = 'DE'", 1), ("country = 'DE'", 0)])
def test_validate_says_that_a_condition_does_not_fit_the_columns(on_this_disk: World, text: str, problems: int) -> None:
    sink = Sink.model_validate({**on_this_disk.place.sink(), "mode": "OverwriteWhere", "where": text})

    found = format_of(sink).examine(on_this_disk.place.settings).problems

    assert [field for field, _ in found] == ["spec.sink.where"] * problems


def test_partitions_are_refused_as_a_dataset_has_none(on_this_disk: World) -> None:
    target = on_this_disk.target()
    with pytest.raises(NeedsChange, match="OverwritePartitions is not done to datasets"):
        on_this_disk.port().refuse_operation(OverwritePartitions(base=target.base))


# --- what others do meanwhile ---------------------------------------------------------------------------------------------


def restore(world: World) -> None:
    """To what it was before it was emptied, so that rows come back."""
    version = world.dataset().version
    world.dataset().delete("true")
    world.dataset().optimize.compact_files()
    lance.dataset(world.place.uri, version=version, storage_options=world.place.options).restore()


#: What brings rows, or values, to the rows of DE.
BRING: dict[str, Callable[[World], object]] = {
    "append": lambda world: world.append((5, "DE")),
    "update": lambda world: world.dataset().update({"share": "0.7"}, where="country = 'DE'"),
    "overwrite": lambda world: lance.write_dataset(
        rows_of([(5, "DE")]), world.place.uri, mode="overwrite", storage_options=world.place.options
    ),
    "computed column": lambda world: world.dataset().add_columns({"double": "id * 2"}),
}
#: What does not. The dataset has two fragments when they begin, the second with the row 6.
BRING_NOTHING: dict[str, Callable[[World], object]] = {
    "delete": lambda world: world.dataset().delete("country = 'FR'"),
    "compaction": lambda world: world.dataset().optimize.compact_files(),
    "index": lambda world: world.dataset().create_scalar_index("id", "BTREE"),
    "config": lambda world: world.dataset().update_config({"a": "b"}),
    "fence": lambda world: world.port().fence(world.dataset().version),
    "column of NULLs": lambda world: world.dataset().add_columns(pa.field("later", pa.int32())),
    "tag": lambda world: world.dataset().tags.create("t", world.dataset().version),
    "nothing appended": lambda world: world.append(),
}


@pytest.mark.parametrize("mode", MAKERS)
@pytest.mark.parametrize("what", BRING)
def test_rows_that_others_put_there_since_the_epoch_began_stop_it_unless_they_are_to_be_replaced(
    on_this_disk: World, what: str, mode: str
) -> None:
    world = on_this_disk
    target = world.target()
    operation = MAKERS[mode](target)
    files = world.stage(operation, rows_of([(7, "DE")]))
    BRING[what](world)
    before, version = world.rows(), world.dataset().version

    outcome = world.commit(operation, files, target)

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.TABLE_WRITTEN_MEANWHILE
    assert f"version {version} of" in outcome.message
    assert "sink.onConcurrent: Replace" in outcome.message
    assert world.rows() == before
    assert isinstance(world.commit(operation, files, target, replaces_others=True), Committed)
    assert [row for row in world.rows() if row[1] == "DE"] == [(7, "DE")]


@pytest.mark.parametrize("mode", MAKERS)
@pytest.mark.parametrize("what", BRING_NOTHING)
def test_what_others_do_without_putting_rows_there_is_in_nobodys_way(on_this_disk: World, what: str, mode: str) -> None:
    world = on_this_disk
    world.append((6, "FR"))
    target = world.target()
    operation = MAKERS[mode](target)
    files = world.stage(operation, rows_of([(7, "DE")]))
    BRING_NOTHING[what](world)

    assert isinstance(world.commit(operation, files, target), Committed)
    assert [row for row in world.rows() if row[1] == "DE"] == [(7, "DE")]


@pytest.mark.parametrize("mode", MAKERS)
def test_rows_that_were_put_on_s3_meanwhile_stop_it(world: World, mode: str) -> None:
    target = world.target()
    operation = MAKERS[mode](target)
    files = world.stage(operation, rows_of([(7, "DE")]))
    world.append((5, "DE"))

    assert isinstance(outcome := world.commit(operation, files, target), Rejected)
    assert outcome.reason == reasons.TABLE_WRITTEN_MEANWHILE


def test_rows_that_others_put_elsewhere_stay(world: World) -> None:
    target = world.target()
    operation = where("country = 'DE'")(target)
    files = world.stage(operation, rows_of([(7, "DE")]))
    world.append((5, "FR"))
    world.dataset().update({"share": "0.7"}, where="country = 'FR'")

    assert isinstance(world.commit(operation, files, target), Committed)
    assert world.rows() == [(3, "FR"), (4, None), (5, "FR"), (7, "DE")]


def test_rows_that_are_appended_between_the_look_and_the_commit_stay_as_if_they_had_come_after_it(world: World) -> None:
    class AppendsFirst(PylanceTable):
        def update(self, *arguments: Any) -> Any:
            world.append((5, "DE"))
            return super().update(*arguments)

    target = world.target()
    operation = where("country = 'DE'")(target)
    files = world.stage(operation, rows_of([(7, "DE")]))

    outcome = world.commit(operation, files, target, port=AppendsFirst(world.place.uri, world.place.settings))

    assert outcome == Committed(target.identity, target.at_version + 2, by_us=True)
    assert world.rows() == [(3, "FR"), (4, None), (5, "DE"), (7, "DE")]


@pytest.mark.parametrize("what", ["delete", "compaction"])
def test_what_others_delete_or_compact_between_the_look_and_the_commit_refuses_it_and_it_is_made_anew(
    world: World, what: str
) -> None:
    todo = [BRING_NOTHING[what]]

    class DoesThatFirst(PylanceTable):
        def update(self, *arguments: Any) -> Any:
            if todo:
                todo.pop(0)(world)
            return super().update(*arguments)

    world.append((6, "IT"))
    target = world.target()
    operation = where("country = 'DE'")(target)
    files = world.stage(operation, rows_of([(7, "DE")]))

    outcome = world.commit(operation, files, target, port=DoesThatFirst(world.place.uri, world.place.settings))

    assert isinstance(outcome, Committed)
    assert not todo
    french: list[Row] = [] if what == "delete" else [(3, "FR")]
    assert world.rows() == [*french, (4, None), (6, "IT"), (7, "DE")]
    assert world.place.keys() == [str(KEY)]


#: What an Update that takes rows of DE out of the first fragment lands after, and one that takes nothing out.
LANDS_AFTER = {"append", "index", "config", "tag", "nothing appended"}
INSERTS_LAND_AFTER = LANDS_AFTER | {"update", "delete", "compaction"}


@pytest.mark.parametrize("what", [*BRING, *BRING_NOTHING])
@pytest.mark.parametrize(("text", "lands_after"), [("country = 'DE'", LANDS_AFTER), ("country = 'IT'", INSERTS_LAND_AFTER)])
def test_what_an_update_that_was_prepared_before_lands_after(
    on_this_disk: World, what: str, text: str, lands_after: set[str]
) -> None:
    world = on_this_disk
    target = world.target()
    operation = where(text)(target)
    change = world.port().pack(operation, KEY, [target], world.stage(operation, rows_of([(7, text[-3:-1])])))
    assert isinstance(change, LanceOverwriteWhere)
    prepared = change.lance_operation(world.dataset)
    if what in ("delete", "compaction"):  # of the rows of that fragment, and with one more
        world.append((6, "FR"))
    (BRING | BRING_NOTHING)[what](world)

    outcome = world.port()._request(target.at_version, prepared, {})

    assert isinstance(outcome, Landed if what in lands_after else Refused)


def test_an_update_that_takes_nothing_out_lands_twice_without_a_fence_and_not_after_one(world: World) -> None:
    target = world.target()
    operation = where("country = 'IT'")(target)
    change = StagedChange(operation, world.stage(operation, rows_of([(7, "IT")])))

    assert isinstance(world.port().update(target.at_version, KEY, change), Landed)
    assert isinstance(world.port().update(target.at_version, KEY, change), Landed), "which is why it goes by fences"
    fence = world.port().fence(world.dataset().version)
    assert isinstance(fence, Landed)
    assert isinstance(world.port().update(target.at_version, KEY, change), Refused)


@pytest.mark.parametrize("text", ["country = 'DE'", "country = 'IT'"])
def test_an_update_that_is_on_its_way_is_refused_after_a_takeover_and_after_a_tombstone(world: World, text: str) -> None:
    target, store = world.target(), MemoryStore()
    operation = where(text)(target)
    change = StagedChange(operation, world.stage(operation, rows_of([(7, text[-3:-1])])))
    ledger_over(store).commits.put_claim(ClaimRecord(token=TOKEN, index=0, base=target.base))
    prepared = world.port().pack(operation, KEY, [target], change.files)

    assert isinstance(world.commit(operation, change.files, target, ledger_over(store)), Committed)
    before = world.rows()
    assert isinstance(world.port().update(target.at_version, KEY, prepared), Refused)
    assert world.rows() == before

    other, second = MemoryStore(), world.target()
    ledger_over(other, key=OTHER).commits.put_claim(ClaimRecord(token=TOKEN, index=0, base=second.base))
    assert protocol.block_commit(world.port(), ledger_over(other, key=OTHER), lambda _: None) == CommitBlocked(target.identity)
    assert isinstance(world.port().update(second.at_version, OTHER, prepared), Refused)


def test_rows_that_a_restore_brings_back_stop_it(on_this_disk: World) -> None:
    world = on_this_disk
    world.dataset().tags.create("before", world.dataset().version)
    tagged = world.dataset().version
    world.dataset().delete("true")
    target = world.target()
    files = world.stage(everything(target), rows_of([(7, "DE")]))
    lance.dataset(world.place.uri, version=tagged).restore()

    assert isinstance(outcome := world.commit(everything(target), files, target), Rejected)
    assert outcome.reason == reasons.TABLE_WRITTEN_MEANWHILE


@pytest.mark.parametrize("mode", MAKERS)
def test_what_came_in_a_version_that_was_cleaned_up_cannot_be_ruled_out(on_this_disk: World, mode: str) -> None:
    world = on_this_disk
    target = world.target()
    operation = MAKERS[mode](target)
    files = world.stage(operation, rows_of([(7, "DE")]))
    world.dataset().delete("country = 'FR'")
    world.dataset().delete("id = 2")
    world.clean_all_but_the_latest()

    outcome = world.commit(operation, files, target)

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.TABLE_WRITTEN_MEANWHILE
    assert "was cleaned up" in outcome.message
    assert isinstance(world.commit(operation, files, target, replaces_others=True), Committed)


@pytest.mark.parametrize("mode", MAKERS)
def test_of_a_dataset_that_was_made_by_the_epoch_all_rows_are_of_others(tmp_path: Path, mode: str) -> None:
    world = made(on_disk(tmp_path, "lance"))
    target = world.target()
    operation = MAKERS[mode](target).model_copy(update={"base": None})
    files = world.stage(operation, rows_of([(7, "DE")]))
    world.append((5, "DE"))

    assert isinstance(world.commit(operation, files, target), Rejected)
    assert world.rows() == [(5, "DE")]


@pytest.mark.parametrize("mode", MAKERS)
def test_a_dataset_that_was_made_by_the_epoch_and_has_nothing_of_others_takes_it(tmp_path: Path, mode: str) -> None:
    world = made(on_disk(tmp_path, "lance"))
    target = world.target()
    operation = MAKERS[mode](target).model_copy(update={"base": None})

    assert isinstance(world.commit(operation, world.stage(operation, rows_of([(7, "DE")])), target), Committed)
    assert world.rows() == [(7, "DE")]


def test_a_dataset_that_was_made_again_is_not_overwritten(world: World) -> None:
    target = world.target()
    files = world.stage(everything(target), rows_of([(7, "DE")]))
    world.dataset().update_config({"checkpointed-write.identity": "f" * 32})

    assert isinstance(outcome := world.commit(everything(target), files, target, replaces_others=True), Rejected)
    assert outcome.reason == reasons.TABLE_REPLACED


# --- once, whoever tries --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MAKERS)
def test_an_overwrite_that_is_committed_again_changes_nothing(world: World, mode: str) -> None:
    target, ledger = world.target(), ledger_over(MemoryStore())
    operation = MAKERS[mode](target)
    files = world.stage(operation, rows_of([(7, "DE")]))
    first = world.commit(operation, files, target, ledger)
    world.append((8, "DE"))

    again = world.commit(operation, files, target, ledger)

    assert isinstance(first, Committed)
    assert again == Committed(first.table_identity, first.commit_id, by_us=False)
    assert [row for row in world.rows() if row[1] == "DE"] == [(7, "DE"), (8, "DE")]


@pytest.mark.parametrize("mode", MAKERS)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("request_number", [0, 1, 2])
def test_a_committer_that_dies_around_any_request_is_followed_by_one_that_makes_it_one_copy(
    on_this_disk: World, mode: str, request_number: int, after: bool
) -> None:
    world = on_this_disk
    target, store = world.target(), MemoryStore()
    operation = MAKERS[mode](target)
    files = world.stage(operation, rows_of([(7, "DE")]))
    for number in range(request_number + 1):  # each leaves its claim, and perhaps a fence
        with suppress(Died):
            world.commit(operation, files, target, ledger_over(store), FailsOn(world.place, min(number, 1), after=after))

    assert isinstance(world.commit(operation, files, target, ledger_over(store)), Committed)
    assert isinstance(world.commit(operation, files, target, ledger_over(store)), Committed)
    assert [row for row in world.rows() if row[1] == "DE"] == [(7, "DE")]
    assert world.place.keys() == [str(KEY)]


def test_of_two_overwrites_from_one_look_one_lands_and_the_other_is_refused(world: World) -> None:
    target = world.target()
    operation = everything(target)
    change = StagedChange(operation, world.stage(operation, rows_of([(7, "DE")])))

    assert isinstance(world.port().swap(target.at_version, KEY, change), Landed)
    assert isinstance(world.port().swap(target.at_version, KEY, change), Refused)
    assert world.rows() == [(7, "DE")]


@pytest.mark.parametrize("what", [*BRING, *(name for name in BRING_NOTHING if name != "tag")])
def test_an_overwrite_lands_on_exactly_the_version_that_it_is_based_on(on_this_disk: World, what: str) -> None:
    world = on_this_disk
    world.append((6, "FR"))
    target = world.target()
    change = StagedChange(everything(target), world.stage(everything(target), rows_of([(7, "DE")])))
    (BRING | BRING_NOTHING)[what](world)
    before = world.rows()

    assert isinstance(world.port().swap(target.at_version, KEY, change), Refused)
    assert world.rows() == before


def test_an_overwrite_that_is_on_its_way_is_refused_after_the_tombstone_of_a_deletion(world: World) -> None:
    target, store = world.target(), MemoryStore()
    change = StagedChange(everything(target), world.stage(everything(target), rows_of([(7, "DE")])))
    ledger_over(store).commits.put_claim(ClaimRecord(token=TOKEN, index=0, base=target.base))
    writes.put_deleted(store, KEY.uid)

    assert protocol.block_commit(world.port(), ledger_over(store), lambda _: None) == CommitBlocked(target.identity)

    assert isinstance(world.port().swap(target.at_version, KEY, change), Refused)
    assert world.rows() == [(1, "DE"), (2, "DE"), (3, "FR"), (4, None)]
    outcome = world.commit(change.operation, change.files, target, ledger_over(store))
    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.WRITE_DELETED


def test_a_deletion_finds_an_overwrite_that_has_landed(world: World) -> None:
    target, store = world.target(), MemoryStore()
    operation = everything(target)
    world.commit(operation, world.stage(operation, rows_of([(7, "DE")])), target, ledger_over(store))

    outcome = protocol.block_commit(world.port(), ledger_over(store), lambda _: None)

    assert outcome == Committed(target.identity, target.at_version + 1, by_us=False)


# --- versions that were cleaned up below the latest one -------------------------------------------------------------------


def paused_below_the_latest(world: World, *others: str) -> tuple[LanceTarget, StagedChange]:
    """A committer has loaded a version that a tag keeps. Others go on, and clean up what came after it."""
    target = world.target()
    world.dataset().tags.create("kept", target.at_version)
    change = StagedChange(everything(target), world.stage(everything(target), rows_of([(7, "DE")])))
    for what in ("append", *others):
        (BRING | BRING_NOTHING)[what](world)
    world.clean_all_but_the_latest()
    return target, change


@pytest.mark.parametrize("others", [("append",), ("delete",), ("config",), ("update",), ("compaction",), ("append", "append")])
def test_an_overwrite_that_lands_where_a_version_was_cleaned_up_is_no_commit(world: World, others: tuple[str, ...]) -> None:
    target, change = paused_below_the_latest(world, *others)
    before = world.rows()

    assert world.port().swap(target.at_version, KEY, change) == Landed(target.at_version + 1), "so Lance does"
    assert world.rows() == before

    state = world.port().load(KEY, target.at_version)
    assert state is not None
    assert state.committed is None


def test_an_overwrite_that_landed_below_the_latest_version_is_made_again_above_it(on_this_disk: World) -> None:
    world, store = on_this_disk, MemoryStore()
    target, change = paused_below_the_latest(world, "append")
    ledger_over(store).commits.put_claim(ClaimRecord(token=TOKEN, index=0, base=target.base))
    world.port().swap(target.at_version, KEY, change)

    outcome = world.commit(change.operation, change.files, target, ledger_over(store), replaces_others=True)

    assert outcome == Committed(target.identity, world.dataset().version, by_us=True)
    assert world.rows() == [(7, "DE")]


def test_whether_an_overwrite_landed_below_the_latest_version_is_unknown_where_more_was_cleaned_up(on_this_disk: World) -> None:
    world, store = on_this_disk, MemoryStore()
    target, change = paused_below_the_latest(world, "append", "append")
    ledger_over(store).commits.put_claim(ClaimRecord(token=TOKEN, index=0, base=target.base))
    world.port().swap(target.at_version, KEY, change)

    assert isinstance(world.commit(change.operation, change.files, target, ledger_over(store), replaces_others=True), Unknown)


@pytest.mark.parametrize("what", [*BRING, *BRING_NOTHING])
def test_a_commit_is_found_whatever_others_do_after_it(on_this_disk: World, what: str) -> None:
    world, store = on_this_disk, MemoryStore()
    target = world.target()
    change = StagedChange(everything(target), world.stage(everything(target), rows_of([(7, "DE"), (8, "FR")])))
    world.commit(change.operation, change.files, target, ledger_over(store))
    (BRING | BRING_NOTHING)[what](world)

    again = world.commit(change.operation, change.files, target, ledger_over(store))

    assert again == Committed(target.identity, target.at_version + 1, by_us=False)


@pytest.mark.parametrize("what", [*BRING, *BRING_NOTHING])
def test_a_commit_without_rows_is_found_whatever_others_do_after_it(on_this_disk: World, what: str) -> None:
    world, store = on_this_disk, MemoryStore()
    target = world.target()
    world.commit(everything(target), (), target, ledger_over(store))
    (BRING | BRING_NOTHING)[what](world)

    assert world.commit(everything(target), (), target, ledger_over(store)) == Committed(
        target.identity, target.at_version + 1, by_us=False
    )


# --- against a model ------------------------------------------------------------------------------------------------------

_COUNTRIES = st.sampled_from(["DE", "FR", "IT", None])
_ROWS = st.lists(st.tuples(st.integers(0, 99), _COUNTRIES), max_size=5)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["append", "all"]), _ROWS),
        st.tuples(st.just("where"), _ROWS.map(lambda rows: [(number, "DE") for number, _ in rows])),
        st.tuples(st.sampled_from(["delete", "compact"]), st.just([])),
    ),
    max_size=6,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
def test_any_sequence_of_overwrites_and_of_what_others_do_is_what_it_is_on_a_list(
    steps: list[tuple[str, list[Row]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    world = made(on_disk(tmp_path_factory.mktemp("model"), "lance"))
    model: list[Row] = []
    for number, (kind, rows) in enumerate(steps):
        match kind:
            case "append":
                world.append(*rows)
                model += rows
            case "delete":
                world.dataset().delete("id < 30")
                model = [row for row in model if row[0] >= 30]
            case "compact":
                world.dataset().optimize.compact_files()
            case _:
                assert isinstance(world.overwrite(MAKERS[kind], rows, EpochKey(KEY.uid, number + 1)), Committed)
                gone: dict[str, Callable[[Row], bool]] = {"all": lambda row: True, "where": lambda row: row[1] == "DE"}
                model = [row for row in model if not gone[kind](row)] + rows
    assert world.rows() == sorted(model, key=repr)
