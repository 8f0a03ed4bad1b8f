"""Columns for the rows of a Lance dataset by the whole loop on one machine: deaths, and what others do meanwhile."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint_commit.ports import FoundItem
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.loop.keys_objects import compacting
from checkpoint_control.loop.looks import known_of, open_news
from checkpoint_control.loop.reconcile import Round
from checkpoint_control.writes.deletion import Deleted, delete_write
from checkpoint_local.runner import identify
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import index_of
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.records import FailureRecord
from checkpoint_protocol.store.object_store import open_store
from tests.support import vectors
from tests.support.crashes import Died, DyingStore, Effects, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.places import LancePlace, on_disk, on_s3
from tests.support.vectors import Model, make_dataset, manifest_of
from tests.support.writes import drive, reconciler_for

#: Of the effects of a write that nobody disturbs, the first one by which its input is fixed.
FIXED = "add columns"
SHOWN = "replace"


@pytest.fixture(autouse=True)
def _counted() -> Iterator[None]:
    vectors.CALLED.clear()
    vectors.FAILING.clear()
    yield
    vectors.FAILING.clear()


@pytest.fixture
def place(tmp_path: Path) -> LancePlace:
    return made(tmp_path)


def made(folder: Path) -> LancePlace:
    place = on_disk(folder, "lance")
    assert isinstance(place, LancePlace)
    return place


def run(place: LancePlace, manifest: CheckpointedWrite) -> Round:
    return drive(reconciler_for(manifest, place))


def run_with(place: LancePlace, manifest: CheckpointedWrite, effects: Effects) -> Round | None:
    """Run with ports of which each effect is counted; None where the runner dies of one."""
    store = open_store(place.checkpoint_uri, place.settings)
    drivers, sink = DirectDrivers(store, place.settings), dying_sink(manifest, place.settings, effects)
    try:
        return drive(reconciler_for(manifest, place, drivers, DyingStore(store, effects), sink))
    except Died:
        attempts = Ledger(store, EpochKey(identify(store, manifest), 1)).attempts
        if attempts.read_target(1) is not None:
            drivers.finish()
        elif attempts.read_launch(1) is not None:
            # It waits for the columns for as long as it has patience.
            attempts.put_failure(
                FailureRecord(
                    token=new_token(), attempt=1, family="Retryable", reason=reasons.TABLE_MISSING, message="nobody came"
                )
            )
        return None


def effects_of(folder: Path, **more: Any) -> list[str]:
    """Return the effects of a write that nobody disturbs."""
    place, effects = made(folder), Effects()
    make_dataset(place, **more)
    assert run_with(place, manifest_of(place), effects) is not None
    return effects.names


def staged_files(place: LancePlace) -> list[Path]:
    return [path for path in Path(place.uri).glob("cw-*/**/*") if path.is_file()]


@pytest.mark.parametrize("step", ["embed", "embed_only", "embed_all"])
def test_each_row_gets_what_the_steps_make_of_it_in_one_version(place: LancePlace, step: str) -> None:
    make_dataset(place)
    model = Model.of(place)
    before = place.dataset().version

    ended = run(place, manifest_of(place, step))

    assert isinstance(ended.outcome, Finish), ended.outcome
    model.give(range(200))
    model.check()
    assert len(place.keys()) == 1
    # The dataset's identity, the columns, the values: nobody saw anything in between.
    assert place.dataset().version == before + 3
    assert staged_files(place) == []


def test_a_death_around_each_effect_leaves_every_row_with_its_values_and_one_commit(tmp_path: Path) -> None:
    names = effects_of(tmp_path / "clean", rows=60, per_fragment=20)
    assert {FIXED, SHOWN, "clear"} <= {*names}
    for point, name in enumerate(names):
        # A driver that nobody has started, and of which nobody knows, costs half a minute: the next one is careful.
        for after in (False,) if "stages" in name and "launch" in name else (False, True):
            place = made(tmp_path / f"{point}-{after}")
            make_dataset(place, 60, per_fragment=20)
            model = Model.of(place)
            vectors.CALLED.clear()
            assert run_with(place, manifest_of(place), Effects(point, after)) is None, (name, after)

            ended = run(place, manifest_of(place))

            assert isinstance(ended.outcome, Finish), (name, after, ended.outcome)
            model.give(range(60))
            model.check()
            assert len(place.keys()) == 1, (name, after)
            assert len(vectors.CALLED) == len({*vectors.CALLED}), (name, after)
            assert staged_files(place) == [], (name, after)


@pytest.mark.slow
def test_whatever_others_do_between_two_effects_the_rows_get_their_own_values(tmp_path: Path) -> None:
    names = effects_of(tmp_path / "clean", stable_row_ids=False)
    fixed, shown = names.index(FIXED), names.index(SHOWN)
    for point, name in enumerate(names):
        place = made(tmp_path / str(point))
        make_dataset(place, stable_row_ids=point % 2 == 1)
        model = Model.of(place)

        def meddle(point: int = point, model: Model = model) -> None:
            if point > shown:
                model.give(range(200))
            model.all_of_it()

        effects = Effects(point, kill=meddle)
        ended = run_with(place, manifest_of(place), effects)

        assert ended is not None
        assert isinstance(ended.outcome, Finish), (name, ended.outcome)
        if point < fixed:
            model.give(model.rows)
        elif point <= shown:
            # What others have put or changed since has no values yet.
            model.give([number for number, (text, *_) in model.rows.items() if number < 200 and not text.endswith("!")])
        model.check()
        assert len(place.keys()) == 1, name
        vectors.CALLED.clear()
        missing = {number for number, (_, vector, _) in model.rows.items() if vector is None}

        ended = run(place, manifest_of(place, runNonce="2"))

        assert isinstance(ended.outcome, Finish), (name, ended.outcome)
        model.give(missing)
        model.check()
        assert {*vectors.CALLED} == missing, name


#: What strangers do, by the name of the method.
OTHERS = ("append", "delete", "update", "compact")


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    data=st.data(),
    only=st.sampled_from(["Null", "All"]),
    stable=st.booleans(),
    step=st.sampled_from(["embed_only", "embed_all", "embed_some"]),
)
def test_random_traffic_between_random_effects_leaves_what_a_model_says(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, only: str, stable: bool, step: str
) -> None:
    place = made(tmp_path_factory.mktemp("traffic"))
    make_dataset(place, 90, per_fragment=30, stable_row_ids=stable)
    model = Model.of(place)
    traffic = data.draw(st.lists(st.tuples(st.integers(3, 9), st.sampled_from(OTHERS)), max_size=5))
    remainders = iter(data.draw(st.permutations(range(11))))

    class Traffic(Effects):
        def around(self, name: str, effect: Callable[[], Any]) -> Any:
            for at, what in traffic:
                if at == len(self.names) and SHOWN not in self.names:
                    arguments = [next(remainders)] if what in ("delete", "update") else []
                    getattr(model, what)(*arguments)
            return super().around(name, effect)

    for epoch in ("1", "2"):
        texts = {number: text for number, (text, _, vector) in model.rows.items()}
        vectors.CALLED.clear()
        ended = run_with(place, manifest_of(place, step, sink={"only": only}, runNonce=epoch), Traffic())
        if only == "All" and epoch == "2" and ended is not None and isinstance(ended.outcome, Stall):
            # Which fragments are new cannot be told after a compaction.
            assert ended.outcome.reason == reasons.SOURCE_CHANGED
            break
        assert ended is not None
        assert isinstance(ended.outcome, Finish), ended.outcome
        model.give([number for number in vectors.CALLED if model.rows.get(number, ("",))[0] == texts.get(number)])
        model.check()
        traffic.clear()


def test_two_committers_at_once_show_the_values_in_one_version(place: LancePlace) -> None:
    """The second one commits while the request of the first is on its way, and that arrives after it."""
    make_dataset(place, 60, per_fragment=20)
    model = Model.of(place)
    ended: list[Round] = []

    def other_commits() -> None:
        if not ended:
            ended.append(run(place, manifest_of(place)))

    names = effects_of(place.folder / "clean", rows=60, per_fragment=20)
    late = run_with(place, manifest_of(place), Effects(names.index(SHOWN), kill=other_commits))

    assert late is not None
    for one in (late, ended[0]):
        assert isinstance(one.outcome, Finish), one.outcome
    model.give(range(60))
    model.check()
    assert len(place.keys()) == 1


@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_a_look_after_the_commit_sees_what_came_since_and_not_the_columns(place: LancePlace, *, stable_row_ids: bool) -> None:
    make_dataset(place, stable_row_ids=stable_row_ids)
    manifest = manifest_of(place, trigger={"every": "5m"})
    run(place, manifest)
    assert new_input(place, manifest) == []

    dataset = place.dataset()
    dataset.add_columns({"other": "id + 1"})
    dataset.delete("id = 7")
    assert new_input(place, manifest) == []

    Model.of(place).append()
    (found,) = new_input(place, manifest)
    assert found.name.endswith("fragment 4")


def new_input(place: LancePlace, manifest: CheckpointedWrite) -> list[FoundItem]:
    """Return what a look after the first epoch finds."""
    store = open_store(place.checkpoint_uri, place.settings)
    ledger = Ledger(store, EpochKey(identify(store, manifest), 1))
    index = index_of(ledger, compacting(store, ledger.key.uid))
    taken = index.ensure(1)
    news = open_news(manifest.spec, place.settings)(taken, known_of(manifest.spec, 1, index.files(taken)))
    assert news is not None
    return list(news)


def test_only_rows_that_are_null_are_given_to_the_steps_and_the_others_keep_their_values(place: LancePlace) -> None:
    make_dataset(place)
    assert isinstance(run(place, manifest_of(place, where="id < 100")).outcome, Finish)
    model = Model.of(place)
    assert sorted(vectors.CALLED) == list(range(100))
    vectors.CALLED.clear()

    ended = run(place, manifest_of(place, name="the-rest"))

    assert isinstance(ended.outcome, Finish), ended.outcome
    model.give(range(100, 200))
    model.check()
    assert sorted(vectors.CALLED) == list(range(100, 200))


def test_with_all_every_row_is_computed_and_what_no_value_came_for_is_null(place: LancePlace) -> None:
    make_dataset(place)
    assert isinstance(run(place, manifest_of(place)).outcome, Finish)
    model = Model.of(place)
    vectors.CALLED.clear()

    ended = run(place, manifest_of(place, "embed_some", name="again", sink={"only": "All"}))

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert {*vectors.CALLED} == {number for number in range(200) if number % 3}
    model.rows = {number: (text, None, None) for number, (text, *_) in model.rows.items()}
    model.give(vectors.CALLED)
    model.check()


def test_a_row_that_fails_is_null_and_listed(place: LancePlace) -> None:
    make_dataset(place)
    model = Model.of(place)
    vectors.FAILING.update({7, 150})

    ended = run(place, manifest_of(place, "embed_all", onRowError="Quarantine"))

    assert isinstance(ended.outcome, Finish), ended.outcome
    model.give({*range(200)} - {7, 150})
    model.check()
    assert ended.commit is not None
    assert ended.commit.rows_quarantined == 2


def test_a_driver_that_is_killed_in_the_middle_costs_what_is_not_sealed_and_nothing_else(place: LancePlace) -> None:
    make_dataset(place)
    model = Model.of(place)
    manifest = manifest_of(place, checkpoint={"uri": place.checkpoint_uri, "interval": "1h", "maximumRows": 7})
    store = open_store(place.checkpoint_uri, place.settings)
    killed: list[int] = []

    def kill(task: int) -> None:
        if task >= 3 and not killed:
            killed.append(task)
            raise Killed

    drivers = DirectDrivers(store, place.settings, between_tasks=kill)

    ended = drive(reconciler_for(manifest, place, drivers))

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert killed
    assert ended.commit is not None
    assert ended.commit.attempts == 2
    model.give(range(200))
    model.check()
    assert sorted(vectors.CALLED) == list(range(200))  # none of them twice


def test_a_step_that_loses_rows_is_refused_before_a_value_comes_to_the_wrong_row(place: LancePlace) -> None:
    make_dataset(place)

    ended = run(place, manifest_of(place, "drop_some"))

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.OUTPUT_SCHEMA_WRONG
    assert "one row for each" in ended.outcome.message

    assert isinstance(run(place, manifest_of(place, "embed")).outcome, Finish)


def test_a_compaction_whose_versions_were_cleaned_up_stops_the_write_by_name(place: LancePlace, tmp_path: Path) -> None:
    make_dataset(place)
    model = Model.of(place)

    def meddle() -> None:
        model.compact()
        model.append()
        place.dataset().cleanup_old_versions(older_than=datetime.timedelta(0), delete_unverified=False)

    names = effects_of(tmp_path / "clean")
    closed = next(number for number, name in enumerate(names) if "closed" in name)

    ended = run_with(place, manifest_of(place), Effects(closed, kill=meddle))

    assert ended is not None
    assert isinstance(ended.outcome, Stall), ended.outcome
    assert ended.outcome.reason == reasons.SOURCE_CHANGED
    assert "cleaned up" in ended.outcome.message
    model.check()

    assert isinstance(run(place, manifest_of(place, name="later")).outcome, Finish)
    assert all(value is not None for value in place.dataset().to_table(["vector"])["vector"].to_pylist())


def test_a_dataset_that_is_rewritten_all_the_time_stops_the_write_which_names_the_operation(place: LancePlace) -> None:
    make_dataset(place, 60, per_fragment=20)
    model = Model.of(place)

    class Rewriting(Effects):
        def around(self, name: str, effect: Callable[[], Any]) -> Any:
            if name.endswith("commit/done.json") and "stages" in name:
                model.append()
                model.compact(1_000)
            return super().around(name, effect)

    ended = run_with(place, manifest_of(place), Rewriting())

    assert ended is not None
    assert isinstance(ended.outcome, Stall), ended.outcome
    assert ended.outcome.reason == reasons.COMMIT_CONTENDED
    assert "Rewrite" in ended.outcome.message
    model.check()
    assert isinstance(run(place, manifest_of(place, name="later")).outcome, Finish)


def test_the_deletion_of_a_write_leaves_nothing_of_it_and_no_value_in_the_dataset(place: LancePlace, tmp_path: Path) -> None:
    names = effects_of(tmp_path / "clean")
    make_dataset(place)
    model = Model.of(place)
    manifest = manifest_of(place)
    assert run_with(place, manifest, Effects(names.index(SHOWN))) is None
    assert staged_files(place)
    store = open_store(place.checkpoint_uri, place.settings)

    deleted = delete_write(store, identify(store, manifest), open_sink(manifest.spec.sink, place.settings))

    assert isinstance(deleted, Deleted)
    assert staged_files(place) == []
    model.check()


def test_on_s3(tmp_path: Path, s3_server: Any) -> None:
    place = on_s3(tmp_path, "lance", s3_server)
    assert isinstance(place, LancePlace)
    make_dataset(place)
    model = Model.of(place)

    def meddle() -> None:
        model.all_of_it()

    ended = run_with(place, manifest_of(place), Effects(7, kill=meddle))

    assert ended is not None
    assert isinstance(ended.outcome, Finish), ended.outcome
    model.give([number for number, (text, *_) in model.rows.items() if number < 200 and not text.endswith("!")])
    model.check()
    store = open_store(place.uri, place.settings)
    assert not [found.path for found in store.list("") if found.path.startswith("cw-")]
