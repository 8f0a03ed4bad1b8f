"""Upserts of Lance datasets by the whole loop on one machine: merges as stages, deaths of the runner, what strangers do."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint_commit.lance.table import PylanceTable
from checkpoint_control.decision.actions import Action, BeginStage, EndStage, Finish, Stall
from checkpoint_control.loop.reconcile import Round
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.store.object_store import open_store
from tests.support.crashes import Died, DyingStore, Effects, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.places import LancePlace, on_disk, on_s3
from tests.support.slow import slow_except
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

ROWS = 400
OLD = "wie es war"
#: Every second one is a key of the input, too.
STRANGER = [*range(0, 20, 2), *range(10_000, 10_010)]
UPDATE: dict[str, Any] = {"mode": "Upsert", "upsertKeys": ["id"]}
DELETE: dict[str, Any] = {**UPDATE, "whenMatched": "Delete"}


def old_rows(numbers: list[int]) -> pa.Table:
    return pa.table({"id": numbers, "text": [OLD] * len(numbers)}, schema=SCHEMA)


def fill(place: LancePlace) -> LancePlace:
    """Make a dataset with rows of a stranger, in two fragments."""
    place.create(SCHEMA)
    place.append(old_rows(STRANGER[::2]))
    place.append(old_rows(STRANGER[1::2]))
    return place


def make(folder: Path) -> LancePlace:
    place = on_disk(folder, "lance")
    assert isinstance(place, LancePlace)
    return fill(place)


def texts(place: LancePlace) -> dict[int, str]:
    """Return the rows by their keys, each of which is there once."""
    rows = place.rows()
    by_key = {row["id"]: row["text"] for row in rows}
    assert len(by_key) == len(rows)
    return by_key


def expected(sink: dict[str, Any], dataset: list[int], numbers: range) -> dict[int, str]:
    left = {number: OLD for number in dataset if number not in numbers}
    return left if sink == DELETE else left | {number: f"zeile {number}" for number in numbers}


def run(place: LancePlace, source: Path, sink: dict[str, Any]) -> Round:
    return drive(reconciler_for(manifest_for(place, source, sink=sink), place))


def run_until_death(place: LancePlace, source: Path, sink: dict[str, Any], effects: Effects) -> bool:
    manifest = manifest_for(place, source, sink=sink)
    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings)
    try:
        drive(reconciler_for(manifest, place, drivers, DyingStore(store, effects), dying_sink(manifest, place.settings, effects)))
    except Died:
        drivers.finish()
        return True
    return False


@pytest.mark.parametrize("where", slow_except(["disk", "s3"], "disk"))
@pytest.mark.parametrize("sink", [UPDATE, DELETE], ids=["update", "delete"])
def test_rows_with_a_key_of_the_output_are_replaced_and_all_others_stay(
    tmp_path: Path, request: pytest.FixtureRequest, where: str, sink: dict[str, Any]
) -> None:
    place = on_disk(tmp_path, "lance") if where == "disk" else on_s3(tmp_path, "lance", request.getfixturevalue("s3_server"))
    assert isinstance(place, LancePlace)
    fill(place)

    ended = run(place, write_inputs(tmp_path / "in"), sink)

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert texts(place) == expected(sink, STRANGER, range(ROWS))
    assert len(place.keys()) == 1


@pytest.mark.parametrize("sink", slow_except([UPDATE, DELETE], DELETE), ids=["update", "delete"])
def test_a_death_around_each_effect_of_merge_and_commit_leaves_one_upsert(tmp_path: Path, sink: dict[str, Any]) -> None:
    source, effects = write_inputs(tmp_path / "in", files=1, rows=40), Effects()
    assert not run_until_death(make(tmp_path / "clean"), source, sink, effects)
    names = effects.names
    first = next(number for number, name in enumerate(names) if "/stages/" in name)
    assert {"fence", "update"} <= {*names[first:]}
    # What a driver does to the store its own tests know; both modes go the same way there.
    points = [number for number in range(first, len(names)) if sink == UPDATE or "/stages/" not in names[number]]

    for point in points:
        for after in (False, True):
            place = make(tmp_path / f"{point}-{after}")
            died = run_until_death(place, source, sink, Effects(point, after))

            ended = run(place, source, sink)

            assert isinstance(ended.outcome, Finish), (names[point], after, ended.outcome)
            assert texts(place) == expected(sink, STRANGER, range(40)), (names[point], after, died)
            assert len(place.keys()) == 1, (names[point], after)


Strange = Callable[[LancePlace], object]


def append_known_and_new(place: LancePlace) -> None:
    place.append(old_rows([1, 30_000]))


def append_and_clean_up(place: LancePlace) -> None:
    """The version that is to be merged, or was, is gone."""
    append_known_and_new(place)
    place.dataset().cleanup_old_versions(datetime.timedelta(0))


def delete_some(place: LancePlace) -> None:
    place.dataset().delete("id in (2, 10004)")


def compact(place: LancePlace) -> None:
    place.dataset().optimize.compact_files()


def update_in_place(place: LancePlace) -> None:
    place.dataset().update({"id": "id + 1"}, where="id in (4, 10006)")


def add_a_column(place: LancePlace) -> None:
    place.dataset().add_columns({"more": "id * 2"})


def restore(place: LancePlace) -> None:
    """Rows that were deleted when the merge read the dataset are back."""
    dataset = place.dataset()
    dataset.checkout_version(dataset.version - 1).restore()


def between(place: LancePlace, source: Path, sink: dict[str, Any], when: Callable[[Action], bool], strange: Strange) -> Round:
    """Run to the end; somebody else does something to the dataset after the first round whose last action is this."""
    reconciler = reconciler_for(manifest_for(place, source, sink=sink), place)
    waits = True
    for _ in range(2_000):
        done = reconciler.step()
        if done.outcome is not None:
            assert not waits
            return done
        if waits and when(done.actions[-1]):
            waits = False
            strange(place)
        drivers = reconciler.observer.drivers
        assert isinstance(drivers, DirectDrivers)
        drivers.wait_a_moment()
    raise AssertionError("no end")


def stage_begins(action: Action) -> bool:
    return isinstance(action, BeginStage)


def stage_ends(action: Action) -> bool:
    return isinstance(action, EndStage)


@pytest.mark.parametrize("when", [stage_begins, stage_ends])
@pytest.mark.parametrize(
    ("strange", "dataset"),
    [
        (append_known_and_new, [*STRANGER, 1, 30_000]),
        (delete_some, [number for number in STRANGER if number not in (2, 10_004)]),
        (compact, STRANGER),
        (update_in_place, [*(number for number in STRANGER if number not in (4, 10_006)), 5, 10_007]),
        (add_a_column, STRANGER),
    ],
)
def test_what_a_stranger_does_beside_a_merge_is_merged_too(
    tmp_path: Path, when: Callable[[Action], bool], strange: Strange, dataset: list[int]
) -> None:
    place, source = make(tmp_path), write_inputs(tmp_path / "in", files=1, rows=40)

    ended = between(place, source, UPDATE, when, strange)

    assert isinstance(ended.outcome, Finish), ended.outcome
    rows = sorted((row["id"], row["text"]) for row in place.rows())
    wanted = [(number, OLD) for number in dataset if number >= 40] + [(number, f"zeile {number}") for number in range(40)]
    assert rows == sorted(wanted)
    assert len(place.keys()) == 1


@pytest.mark.parametrize("when", [stage_begins, stage_ends])
def test_a_merge_whose_version_is_cleaned_up_makes_room_for_one_of_the_latest(
    tmp_path: Path, when: Callable[[Action], bool]
) -> None:
    place, source = make(tmp_path), write_inputs(tmp_path / "in", files=1, rows=40)

    ended = between(place, source, UPDATE, when, append_and_clean_up)

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert texts(place) == expected(UPDATE, [*STRANGER, 1, 30_000], range(40))


def test_a_next_merge_reads_only_what_is_new_or_changed(tmp_path: Path) -> None:
    place, source = make(tmp_path), write_inputs(tmp_path / "in", files=1, rows=40)

    ended = between(place, source, UPDATE, stage_ends, append_known_and_new)

    store = open_store(place.checkpoint_uri, place.settings)
    stages = [Ledger(store, key) for key in writes.list_stages(store, ended.key)]
    read = [[file.fragment for file in stage.inputs.read_input(1).files] for stage in stages]  # type: ignore[union-attr]
    assert read == [[0, 1], [2]]


def test_rows_that_come_back_by_a_restore_are_merged_too(tmp_path: Path) -> None:
    place, source = make(tmp_path), write_inputs(tmp_path / "in", files=1, rows=40)
    PylanceTable(place.uri, place.settings).describe()  # so that its identity is older than what is restored
    delete_some(place)

    ended = between(place, source, UPDATE, stage_ends, restore)

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert texts(place) == expected(UPDATE, STRANGER, range(40))


def test_a_driver_that_is_killed_in_the_merge_is_followed_by_one_that_ends_it(tmp_path: Path) -> None:
    place, source = make(tmp_path), write_inputs(tmp_path / "in", files=1, rows=40)
    manifest = manifest_for(place, source, sink=UPDATE)
    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings, parallelism=1)
    reconciler = reconciler_for(manifest, place, drivers)
    killed: list[int] = []

    def kill_once(number: int) -> None:
        if number == 1 and drivers.started == 2 and not killed:
            killed.append(number)
            raise Killed

    drivers.between_tasks = kill_once
    ended = drive(reconciler)

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert texts(place) == expected(UPDATE, STRANGER, range(40))
    assert killed == [1]
    assert drivers.started == 3


def test_two_upserts_of_one_dataset_leave_each_key_once(tmp_path: Path) -> None:
    """The other one commits between the merge of this one and its commit."""
    place = make(tmp_path)
    source, other = write_inputs(tmp_path / "in", files=1, rows=40), write_inputs(tmp_path / "other", files=1, rows=60)

    def upsert_of_another_write(place: LancePlace) -> None:
        ended = drive(reconciler_for(manifest_for(place, other, sink=UPDATE, name="other"), place))
        assert isinstance(ended.outcome, Finish)

    ended = between(place, source, UPDATE, stage_ends, upsert_of_another_write)

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert texts(place) == expected(UPDATE, STRANGER, range(60))
    assert len(place.keys()) == 2


def test_a_next_epoch_upserts_what_is_new_in_the_source(tmp_path: Path) -> None:
    place, source = make(tmp_path), write_inputs(tmp_path / "in", files=1, rows=40)
    assert isinstance(run(place, source, UPDATE).outcome, Finish)
    pq.write_table(old_rows([3, 50]), source / "more.parquet")

    ended = drive(reconciler_for(manifest_for(place, source, sink=UPDATE, runNonce="2"), place))

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert texts(place) == expected(UPDATE, STRANGER, range(40)) | {3: OLD, 50: OLD}
    assert len(place.keys()) == 2


def test_a_dataset_is_made_and_has_each_row_and_stable_ids_and_indexes_stay_right(tmp_path: Path) -> None:
    place, source = on_disk(tmp_path, "lance"), write_inputs(tmp_path / "in", files=1, rows=40)
    assert isinstance(place, LancePlace)
    made = {"lance": {"uri": place.uri, "layout": {"enableStableRowIds": True}, "tag": "run-{epoch}"}, "create": True}
    assert isinstance(run(place, source, {**UPDATE, **made}).outcome, Finish)
    place.dataset().create_scalar_index("id", "BTREE")
    pq.write_table(old_rows([3, 50]), source / "more.parquet")

    again = manifest_for(place, source, sink={**UPDATE, **made}, runNonce="2")
    assert isinstance(drive(reconciler_for(again, place)).outcome, Finish)

    assert texts(place) == {number: f"zeile {number}" for number in range(40)} | {3: OLD, 50: OLD}
    for number, text in ((3, OLD), (50, OLD), (4, "zeile 4")):
        found = place.dataset().to_table(filter=f"id = {number}").to_pylist()
        assert [row["text"] for row in found] == [text]
    row_ids = place.dataset().to_table(columns=["id"], with_row_id=True).column("_rowid").to_pylist()
    assert len(set(row_ids)) == len(row_ids)
    assert sorted(place.dataset().tags.list()) == ["run-1", "run-2"]


@pytest.mark.parametrize(
    ("rows", "reason", "said"),
    [
        ([{"id": 1, "text": "a"}, {"id": 1, "text": "b"}], reasons.OUTPUT_KEY_REPEATED, "id = 1 (2 rows)"),
        ([{"id": 1, "text": "a"}, {"id": None, "text": "b"}], reasons.OUTPUT_KEY_NULL, "id = None; text = 'b'"),
    ],
)
def test_keys_that_are_repeated_or_null_stop_the_write_before_its_commit(
    tmp_path: Path, rows: list[dict[str, Any]], reason: str, said: str
) -> None:
    place, source = make(tmp_path), tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), source / "a.parquet")
    versions = place.dataset().version

    ended = run(place, source, UPDATE)

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reason
    assert said in ended.outcome.message
    assert "onDuplicate" not in ended.outcome.message, "Lance has no Last"
    assert texts(place) == dict.fromkeys(STRANGER, OLD)
    assert place.dataset().version <= versions + 1, "only the dataset's identity may be new"


def test_a_delete_may_name_a_key_twice_and_keys_that_are_not_there(tmp_path: Path) -> None:
    place, source = make(tmp_path), tmp_path / "in"
    source.mkdir()
    pq.write_table(old_rows([2, 2, 77, 10_001]), source / "a.parquet")

    assert isinstance(run(place, source, DELETE).outcome, Finish)

    assert texts(place) == {number: OLD for number in STRANGER if number not in (2, 10_001)}
    assert len(place.keys()) == 1


def test_a_delete_of_keys_that_no_row_has_is_one_version_that_changes_no_row(tmp_path: Path) -> None:
    place, source = make(tmp_path), tmp_path / "in"
    source.mkdir()
    pq.write_table(old_rows([77]), source / "a.parquet")

    assert isinstance(run(place, source, DELETE).outcome, Finish)

    assert texts(place) == dict.fromkeys(STRANGER, OLD)
    assert len(place.keys()) == 1


@pytest.mark.parametrize("known", slow_except([True, False], True), ids=["matched", "new-keys-only"])
def test_a_committer_that_pauses_around_each_request_changes_nothing_after_another_has_committed(
    tmp_path: Path, known: bool
) -> None:
    """An upsert of new keys only would land twice: Lance sees no conflict in it."""
    source = tmp_path / "in"
    source.mkdir()
    numbers = [0, 2, 500] if known else [500, 501]
    pq.write_table(rows_of(numbers), source / "a.parquet")
    effects = Effects()
    assert not run_until_death(make(tmp_path / "clean"), source, UPDATE, effects)
    first = next(number for number, name in enumerate(effects.names) if "claim" in name)

    for point, name in list(enumerate(effects.names))[first:]:
        for after in (False, True):
            place = make(tmp_path / f"{point}-{after}")

            def another(place: LancePlace = place) -> None:
                assert isinstance(run(place, source, UPDATE).outcome, Finish)

            assert not run_until_death(place, source, UPDATE, Effects(point, after, another)), (name, after)

            left = {number: OLD for number in STRANGER if number not in numbers}
            assert texts(place) == left | {number: f"zeile {number}" for number in numbers}, (name, after)
            assert len(place.keys()) == 1, (name, after)


_KEYS = st.lists(st.integers(0, 12), min_size=1, max_size=6, unique=True)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["upsert", "delete by keys", "append", "delete", "update"]), _KEYS),
        st.tuples(st.sampled_from(["compact", "restore"]), st.just([])),
    ),
    min_size=1,
    max_size=7,
)


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
def test_any_sequence_of_upserts_and_of_what_others_do_is_what_it_is_on_a_list(
    tmp_path: Path, steps: list[tuple[str, list[int]]]
) -> None:
    folder = tmp_path / uuid.uuid4().hex
    place = make(folder)
    PylanceTable(place.uri, place.settings).describe()
    model = [(number, OLD) for number in STRANGER]
    before = list(model)
    for number, (what, keys) in enumerate(steps):
        now = list(model)
        rows = pa.table({"id": keys, "text": [f"{number}"] * len(keys)}, schema=SCHEMA)
        match what:
            case "upsert" | "delete by keys":
                (source := folder / f"in-{number}").mkdir()
                pq.write_table(rows, source / "a.parquet")
                sink = UPDATE if what == "upsert" else DELETE
                ended = drive(reconciler_for(manifest_for(place, source, sink=sink, name=f"write-{number}"), place))
                assert isinstance(ended.outcome, Finish), ended.outcome
                model = [row for row in model if row[0] not in keys]
                model += [(key, f"{number}") for key in keys] if what == "upsert" else []
            case "append":
                place.append(rows)
                model += [(key, f"{number}") for key in keys]
            case "delete":
                place.dataset().delete(f"id in ({', '.join(map(str, keys))})")
                model = [row for row in model if row[0] not in keys]
            case "update":
                place.dataset().update({"text": f"'{number}'"}, where=f"id in ({', '.join(map(str, keys))})")
                model = [(key, f"{number}" if key in keys else text) for key, text in model]
            case "compact":
                place.dataset().optimize.compact_files()
            case "restore" if number and steps[number - 1][0] == "append":
                dataset = place.dataset()
                dataset.checkout_version(dataset.version - 1).restore()
                model = before
        before = now
        assert sorted((row["id"], row["text"]) for row in place.rows()) == sorted(model), steps[: number + 1]
