"""Lance datasets with stable row ids as sources: each row is taken once, wherever a compaction has put it."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import timedelta
from typing import Any

import lance
import pyarrow as pa
import pytest

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_formats.lance.reader import LanceReader
from checkpoint_protocol import reasons
from checkpoint_protocol.store.object_store import open_store
from tests.support.checks import assert_exactly_once
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.places import Place
from tests.support.source_places import LanceSourceTable, source_beside
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of


@pytest.fixture
def source(lance_place: Place) -> LanceSourceTable:
    lance_place.create(SCHEMA)
    made = source_beside(lance_place, "lance")
    assert isinstance(made, LanceSourceTable)
    made.has_stable_row_ids = True
    return made


def append(source: LanceSourceTable, ids: range) -> None:
    source.append(rows_of(ids))


def take(source: LanceSourceTable, epoch: int, **spec: Any) -> Any:
    """Run the next epoch to its end."""
    return drive(reconciler_for(manifest_for(source.place, source.section(), runNonce=str(epoch), **spec), source.place))


def rows_taken(source: LanceSourceTable, epoch: int, **spec: Any) -> int:
    ended = take(source, epoch, **spec)
    assert isinstance(ended.outcome, Finish), ended.outcome
    return int(ended.commit.rows_read)


def assert_stopped(ended: Any, *words: str) -> None:
    assert isinstance(ended.outcome, Stall), ended.outcome
    assert ended.outcome.reason == reasons.SOURCE_CHANGED, ended.outcome
    for word in words:
        assert word in ended.outcome.message, ended.outcome.message


def test_a_compaction_of_taken_rows_passes_and_what_is_appended_after_it_is_taken(source: LanceSourceTable) -> None:
    append(source, range(100))
    append(source, range(100, 200))
    assert rows_taken(source, 1) == 200
    source.compact()
    append(source, range(200, 250))

    assert rows_taken(source, 2) == 50
    assert rows_taken(source, 3) == 0
    assert_exactly_once(source.place, range(250))


def test_of_a_fragment_with_taken_and_new_rows_only_the_new_ones_are_taken(source: LanceSourceTable) -> None:
    append(source, range(100))
    assert rows_taken(source, 1) == 100
    append(source, range(100, 150))
    source.compact()
    append(source, range(150, 200))
    source.compact()
    append(source, range(200, 250))

    assert rows_taken(source, 2) == 150
    assert_exactly_once(source.place, range(250))


def test_epochs_between_compactions_lose_and_double_nothing(source: LanceSourceTable) -> None:
    for epoch in range(1, 6):
        append(source, range(40 * epoch - 40, 40 * epoch - 20))
        if epoch % 2:
            source.compact()
        append(source, range(40 * epoch - 20, 40 * epoch))
        assert rows_taken(source, epoch) == 40, epoch
        source.compact()
        source.dataset().cleanup_old_versions(older_than=timedelta(days=1))

    assert rows_taken(source, 6) == 0
    assert_exactly_once(source.place, range(200))


def test_new_rows_that_were_deleted_before_a_compaction_are_not_taken(source: LanceSourceTable) -> None:
    append(source, range(100))
    assert rows_taken(source, 1) == 100
    append(source, range(100, 200))
    source.delete("id >= 150")
    source.compact()
    append(source, range(200, 250))
    source.delete("id >= 240")

    assert rows_taken(source, 2) == 90
    assert_exactly_once(source.place, [*range(150), *range(200, 240)])


def test_rows_that_are_inserted_by_a_merge_are_new_ones(source: LanceSourceTable) -> None:
    append(source, range(100))
    assert rows_taken(source, 1) == 100
    source.compact()
    source.dataset().merge_insert("id").when_not_matched_insert_all().execute(rows_of(range(50, 150)))
    source.compact()

    assert rows_taken(source, 2) == 50
    assert_exactly_once(source.place, range(150))


def test_an_append_that_was_staged_before_the_epoch_and_lands_after_it_is_taken(source: LanceSourceTable) -> None:
    append(source, range(100))
    before = source.dataset()
    staged = lance.fragment.write_fragments(rows_of(range(100, 150)), source.uri, mode="append", schema=before.schema)
    append(source, range(150, 200))
    assert rows_taken(source, 1) == 150
    lance.LanceDataset.commit(source.uri, lance.LanceOperation.Append(staged), read_version=before.version)
    source.compact()

    assert rows_taken(source, 2) == 50
    assert_exactly_once(source.place, range(200))


@pytest.mark.parametrize("after_tasks", [1, 3])
def test_a_driver_that_dies_in_a_compacted_fragment_is_followed_by_one_that_takes_the_rest(
    source: LanceSourceTable, after_tasks: int
) -> None:
    append(source, range(1000))
    assert rows_taken(source, 1) == 1000
    append(source, range(1000, 2000))
    source.compact()
    place = source.place
    dead: list[int] = []

    def die(number: int) -> None:
        if number == after_tasks and not dead:
            dead.append(number)
            raise Killed

    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings, between_tasks=die)
    manifest = manifest_for(place, source.section(), runNonce="2")
    reconciler = reconciler_for(manifest, place, drivers, store)
    while not drivers.started:
        reconciler.step()
    drivers.finish()
    append(source, range(2000, 2100))  # of the next epoch: the input of this one is fixed
    source.compact()

    ended = drive(reconciler_for(manifest, place))

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert dead
    assert ended.commit is not None
    assert ended.commit.rows_read == 1000
    assert rows_taken(source, 3) == 100
    assert_exactly_once(place, range(2100))


def test_a_look_that_finds_a_compaction_begins_no_epoch_and_opens_no_fragment(
    source: LanceSourceTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(source, range(100))
    append(source, range(100, 200))
    assert rows_taken(source, 1) == 200
    source.compact()
    read: Counter[str] = Counter()
    monkeypatch.setattr(LanceReader, "read", lambda _, file, *rest: read.update([file.path]))

    assert rows_taken(source, 2) == 0
    assert not read


@pytest.mark.parametrize("compacts", [False, True])
def test_rows_that_were_taken_and_deleted_stop_the_next_epoch(source: LanceSourceTable, compacts: bool) -> None:
    append(source, range(100))
    assert rows_taken(source, 1) == 100
    source.delete("id < 3")
    append(source, range(100, 150))
    if compacts:
        source.compact()

    assert_stopped(take(source, 2), "3 rows that an earlier epoch has taken were deleted", "onReplaced: Process")
    assert_exactly_once(source.place, range(100))
    assert rows_taken(source, 2, onReplaced="Process") == (147 if compacts else 50)


@pytest.mark.parametrize("compacts", [False, True])
def test_rows_that_were_taken_and_updated_stop_the_next_epoch(source: LanceSourceTable, compacts: bool) -> None:
    append(source, range(100))
    assert rows_taken(source, 1) == 100
    name = next(name for name in SCHEMA.names if pa.types.is_string(SCHEMA.field(name).type))
    source.dataset().update({name: "'other'"}, where="id < 3")
    append(source, range(100, 150))
    if compacts:
        source.compact()

    assert_stopped(take(source, 2), "3 rows that an earlier epoch has taken were updated", "onReplaced: Process")
    assert_exactly_once(source.place, range(100))


def test_a_column_that_was_added_and_a_compaction_between_two_epochs_stop_the_next_one(source: LanceSourceTable) -> None:
    append(source, range(100))
    append(source, range(100, 200))
    assert rows_taken(source, 1) == 200
    source.dataset().add_columns({"more": "id + 1"})
    source.compact()

    assert_stopped(take(source, 2), "200 rows that an earlier epoch has taken were updated, or got a column")


def test_an_overwrite_stops_the_next_epoch(source: LanceSourceTable) -> None:
    append(source, range(100))
    assert rows_taken(source, 1) == 100
    lance.write_dataset(rows_of(range(100, 200)), source.uri, mode="overwrite", enable_stable_row_ids=True)

    assert_stopped(take(source, 2), "100 rows that an earlier epoch has taken were deleted")


def test_a_dataset_that_was_made_again_with_as_many_rows_stops_the_next_epoch(source: LanceSourceTable) -> None:
    append(source, range(100))
    assert rows_taken(source, 1) == 100
    shutil.rmtree(source.uri)
    append(source, range(100, 200))
    append(source, range(200, 250))

    assert_stopped(take(source, 2), "was made again")
    again = drive(reconciler_for(manifest_for(source.place, source.section(), name="again"), source.place))
    assert again.commit is not None
    assert again.commit.rows_read == 150


def test_after_the_version_that_was_taken_was_cleaned_up_a_compaction_stops_the_next_epoch(source: LanceSourceTable) -> None:
    append(source, range(100))
    append(source, range(100, 200))
    assert rows_taken(source, 1) == 200
    source.compact()
    source.dataset().cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    append(source, range(200, 250))

    assert_stopped(take(source, 2), "version 2", "was cleaned up", "keep versions until the next epoch has begun")
    assert rows_taken(source, 2, onReplaced="Process") == 250
    source.compact()
    append(source, range(250, 300))
    assert rows_taken(source, 3) == 50


def test_after_the_version_that_was_taken_was_cleaned_up_appends_are_taken(source: LanceSourceTable) -> None:
    append(source, range(100))
    assert rows_taken(source, 1) == 100
    append(source, range(100, 200))
    source.dataset().cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    assert rows_taken(source, 2) == 100
    assert_exactly_once(source.place, range(200))


def test_without_stable_row_ids_a_compaction_stops_and_the_way_out_is_said(source: LanceSourceTable) -> None:
    source.has_stable_row_ids = False
    append(source, range(100))
    append(source, range(100, 200))
    assert rows_taken(source, 1) == 200
    source.compact()

    assert_stopped(take(source, 2), "fragment 0", "was made with enable_stable_row_ids=True", "onReplaced: Process")


def test_with_process_fragments_that_came_since_are_taken_whole_and_older_ones_not_again(source: LanceSourceTable) -> None:
    append(source, range(100))
    append(source, range(100, 200))
    assert rows_taken(source, 1) == 200
    source.compact()
    assert rows_taken(source, 2) == 0
    append(source, range(200, 250))

    assert rows_taken(source, 3, onReplaced="Process") == 50
    assert_exactly_once(source.place, range(250))


def test_rows_that_a_restore_brings_back_stop_the_next_epoch(source: LanceSourceTable) -> None:
    append(source, range(100))
    before = source.dataset()
    source.delete("id < 3")
    assert rows_taken(source, 1) == 97
    before.restore()

    assert_stopped(take(source, 2), "3 rows that had been deleted before an earlier epoch came back")
    assert_exactly_once(source.place, range(3, 100))
