"""Upserts of Lance datasets by the whole loop on one machine: merges as stages, deaths of the runner, what strangers do."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint_commit.lance.changes import append
from checkpoint_commit.lance.table import PylanceTable
from checkpoint_commit.lance.upsert_sink import read_merges, read_rest
from checkpoint_control.decision.actions import Action, BeginStage, EndStage, Finish, Stall
from checkpoint_control.loop.reconcile import Round
from checkpoint_formats.lance.staged_rows import as_source, rest_reader
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import LanceFragment
from checkpoint_protocol.rows.positions import Range
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
IGNORE: dict[str, Any] = {**UPDATE, "whenMatched": "Ignore"}
LAST: dict[str, Any] = {**UPDATE, "onDuplicate": "Last", "orderBy": "text"}


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
    if sink == IGNORE:
        return {number: f"zeile {number}" for number in numbers} | dict.fromkeys(dataset, OLD)
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
@pytest.mark.parametrize("sink", [UPDATE, DELETE, IGNORE, LAST], ids=["update", "delete", "ignore", "last"])
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


@pytest.mark.parametrize("sink", slow_except([UPDATE, DELETE, IGNORE], DELETE), ids=["update", "delete", "ignore"])
def test_a_death_around_each_effect_of_merge_and_commit_leaves_one_upsert(tmp_path: Path, sink: dict[str, Any]) -> None:
    source, effects = write_inputs(tmp_path / "in", files=1, rows=40), Effects()
    assert not run_until_death(make(tmp_path / "clean"), source, sink, effects)
    names = effects.names
    first = next(number for number, name in enumerate(names) if "/stages/" in name)
    assert {"fence", "update"} <= {*names[first:]}
    # What a driver does to the store its own tests know; both modes go the same way there.
    points = [
        number
        for number in range(first, len(names))
        if sink == UPDATE or "/stages/rewrite" in names[number] or "/stages/" not in names[number]
    ]

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


@pytest.mark.parametrize("strange", [append_known_and_new, compact, add_a_column, append_and_clean_up])
def test_rows_whose_key_a_stranger_has_added_since_a_merge_are_left_out_too(tmp_path: Path, strange: Strange) -> None:
    place, source = make(tmp_path), write_inputs(tmp_path / "in", files=1, rows=40)
    added = [1, 30_000] if strange in (append_known_and_new, append_and_clean_up) else []
    ended = 0

    def second_stage_ends(action: Action) -> bool:
        nonlocal ended
        ended += isinstance(action, EndStage)
        return ended == 2

    done = between(place, source, IGNORE, second_stage_ends, strange)

    assert isinstance(done.outcome, Finish), done.outcome
    assert texts(place) == expected(IGNORE, [*STRANGER, *added], range(40))
    store = open_store(place.checkpoint_uri, place.settings)
    kinds = sorted(key.stage.rpartition("-")[0] for key in writes.list_stages(store, done.key))
    assert kinds == ["merge", "merge", "rewrite-staged", "rewrite-staged"]


@pytest.mark.parametrize("broken", ["another file's rows", "more rows", "fewer rows"])
def test_results_that_do_not_leave_out_what_merges_have_named_are_refused(tmp_path: Path, broken: str) -> None:
    place, source = make(tmp_path), write_inputs(tmp_path / "in", files=1, rows=40)
    done = run(place, source, IGNORE)
    store = open_store(place.checkpoint_uri, place.settings)
    ledger = Ledger(store, done.key)
    target = PylanceTable(place.uri, place.settings).describe()
    assert target is not None
    seals = ledger.chains.counted_seals([1])
    staged = append.pack(place.uri, [target], [file for seal in seals for file in seal.files if isinstance(file, LanceFragment)])
    merges = read_merges(ledger, staged)
    assert merges.merged is not None
    assert merges.merged.rest is not None
    changes: dict[str, dict[str, Any]] = {
        "another file's rows": {"path": "other.lance"},
        "more rows": {"rows": 41},
        "fewer rows": {"rows": 0},
    }
    for path, (found, *_) in merges.merged.left_out.items():
        merges.merged.left_out[path] = [found.model_copy(update=changes[broken])]

    with pytest.raises(NeedsChange, match="do not take the place") as caught:
        read_rest(ledger, merges, merges.merged, staged)
    assert caught.value.reason == reasons.STAGED_RESULT_REFUSED


def test_with_last_and_ignore_only_the_last_row_of_a_new_key_is_added(tmp_path: Path) -> None:
    place, source = make(tmp_path), tmp_path / "in"
    source.mkdir()
    for name, rows in (("a", [(2, "a"), (5, "a"), (5, "b"), (7, "x")]), ("b", [(2, "b"), (5, "c"), (9, "y")])):
        pq.write_table(pa.table([*map(list, zip(*rows, strict=True))], schema=SCHEMA), source / f"{name}.parquet")

    assert isinstance(run(place, source, {**IGNORE, "onDuplicate": "Last", "orderBy": "text"}).outcome, Finish)

    assert texts(place) == dict.fromkeys(STRANGER, OLD) | {5: "c", 7: "x", 9: "y"}


def test_fragments_of_which_no_row_is_new_are_left_out(tmp_path: Path) -> None:
    place, source = make(tmp_path), tmp_path / "in"
    source.mkdir()
    pq.write_table(rows_of([2, 4]), source / "a.parquet")

    assert isinstance(run(place, source, IGNORE).outcome, Finish)

    assert texts(place) == dict.fromkeys(STRANGER, OLD)
    assert len(place.dataset().get_fragments()) == 2
    assert len(place.keys()) == 1


def test_rows_with_vectors_lists_and_structs_that_are_written_a_second_time_are_what_they_were(tmp_path: Path) -> None:
    place, source = on_disk(tmp_path, "lance"), tmp_path / "in"
    assert isinstance(place, LancePlace)
    source.mkdir()
    kinds = {
        "v": (pa.list_(pa.float32(), 2), [[0.5, -0.0], None, [float("inf"), 1.5]]),
        "l": (pa.list_(pa.string()), [["a", None], None, []]),
        "s": (pa.struct([("x", pa.int64()), ("y", pa.string())]), [{"x": 1, "y": None}, {"x": 2, "y": ""}, {"x": 3, "y": "z"}]),
        "d": (pa.decimal128(38, 2), [Decimal("-0.01"), None, Decimal("9" * 36)]),
        "t": (pa.timestamp("us", "UTC"), [datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC), None, None]),
        "b": (pa.binary(), [b"", None, b"\x00\xff"]),
    }
    columns = {"id": pa.array([1, 2, 3], pa.int64())} | {name: pa.array(given, kind) for name, (kind, given) in kinds.items()}
    rows = pa.table(columns)
    place.create(rows.schema)
    place.append(rows.slice(1, 1))
    pq.write_table(rows, source / "a.parquet")

    assert isinstance(run(place, source, IGNORE).outcome, Finish)

    assert [repr(row) for row in sorted(place.rows(), key=lambda row: row["id"])] == [repr(row) for row in rows.to_pylist()]


def test_a_column_that_a_staged_file_gives_in_another_type_is_refused_and_not_cast(tmp_path: Path) -> None:
    place, source = make(tmp_path), write_inputs(tmp_path / "in", files=1, rows=4)
    done = run(place, source, UPDATE)
    seals = Ledger(open_store(place.checkpoint_uri, place.settings), done.key).chains.counted_seals([1])
    file = next(file for seal in seals for file in seal.files)
    assert isinstance(file, LanceFragment)
    staged = as_source(file)
    reader = rest_reader(place.uri, SCHEMA.set(0, pa.field("id", pa.int32())), place.settings.for_drivers())

    with pytest.raises(NeedsChange, match="gives the column 'id' as int64, and the dataset as int32") as caught:
        list(reader.inner.read(staged, Range(file=0, start=0, end=file.rows), reader.rows, BatchSizing(1.0)))
    assert caught.value.reason == reasons.TABLE_UNSUPPORTED
    assert isinstance(drive(reconciler_for(manifest_for(place, source, sink=UPDATE, name="new"), place)).outcome, Finish)


def test_blobs_are_refused_before_any_work_where_rows_may_be_left_out(tmp_path: Path) -> None:
    place, source = on_disk(tmp_path, "lance"), write_inputs(tmp_path / "in", files=1, rows=4)
    assert isinstance(place, LancePlace)
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    lance.write_dataset(SCHEMA.append(blob).empty_table(), place.uri, data_storage_version="2.0")

    for sink in (IGNORE, LAST):
        ended = drive(reconciler_for(manifest_for(place, source, sink=sink, name=f"by-{len(sink)}"), place))

        assert isinstance(ended.outcome, Stall)
        assert ended.outcome.reason == reasons.TABLE_UNSUPPORTED
        assert "has blobs in the column 'blob'" in ended.outcome.message
    instead = manifest_for(place, source, sink=UPDATE, name="instead")
    assert isinstance(drive(reconciler_for(instead, place)).outcome, Finish)


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
    assert ("onDuplicate" in ended.outcome.message) == (reason == reasons.OUTPUT_KEY_REPEATED)
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
        st.tuples(st.sampled_from(["upsert", "delete by keys", "ignore", "last", "append", "delete", "update"]), _KEYS),
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
            case "upsert" | "delete by keys" | "ignore" | "last":
                (source := folder / f"in-{number}").mkdir()
                pq.write_table(rows, source / "a.parquet")
                if what == "last":
                    rows = pa.table({"id": keys[:3], "text": [f"{number} again"] * len(keys[:3])}, schema=SCHEMA)
                    pq.write_table(rows, source / "b.parquet")
                sink = {"upsert": UPDATE, "delete by keys": DELETE, "ignore": IGNORE, "last": LAST}[what]
                ended = drive(reconciler_for(manifest_for(place, source, sink=sink, name=f"write-{number}"), place))
                assert isinstance(ended.outcome, Finish), ended.outcome
                there = {key for key, _ in model}
                model = [row for row in model if what == "ignore" or row[0] not in keys]
                model += [(key, f"{number}") for key in keys if what == "upsert" or (what == "ignore" and key not in there)]
                if what == "last":
                    model += [(key, f"{number} again" if key in keys[:3] else f"{number}") for key in keys]
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
