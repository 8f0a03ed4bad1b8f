"""Columns for rows of a Lance dataset, computed again where their input has changed (`sink.only: Changed`), against a model."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_protocol import reasons
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from tests.end_to_end.test_added_columns import new_input
from tests.support import vectors
from tests.support.changed_rows import run
from tests.support.crashes import Died, Effects
from tests.support.places import LancePlace, on_disk
from tests.support.vectors import make_dataset, rows_in
from tests.support.writes import manifest_for, rows_of

SHOWN = "replace"
#: What strangers do to the dataset.
OTHERS = ("append", "delete", "update", "note", "compact", "fill", "merge")
ACTS = st.tuples(st.sampled_from(OTHERS), st.integers(0, 10))


@pytest.fixture
def place(tmp_path: Path) -> LancePlace:
    return made(tmp_path)


def made(folder: Path, rows: int = 60, *, stable_row_ids: bool = True) -> LancePlace:
    vectors.CALLED.clear()
    vectors.FAILING.clear()
    place = on_disk(folder, "lance")
    assert isinstance(place, LancePlace)
    make_dataset(place, rows, per_fragment=20, stable_row_ids=stable_row_ids)
    place.dataset().add_columns({"note": "cast(id as string)"})
    return place


def manifest_of(place: LancePlace, epoch: int = 1, **more: Any) -> CheckpointedWrite:
    return manifest_for(
        place,
        {"lance": {"uri": place.uri, "splitSize": "1Ki"}, "columns": ["id", "text"], **more.pop("source", {})},
        name=more.pop("name", "copies"),
        steps=[{"call": "tests.support.vectors:copy", "input": "row", "output": {"copy": "string"}}],
        whole=("sink",),
        sink={"lance": {"uri": place.uri}, "mode": "AddColumns", "columns": ["copy"], "only": more.pop("only", "Changed")},
        runNonce=str(epoch),
        **more,
    )


class Model:
    """Texts and notes of the rows as they should be; the copies are what the write makes."""

    def __init__(self, place: LancePlace) -> None:
        self.place = place
        self.texts = {row["id"]: row["text"] for row in rows_in(place)}
        self.next_id = 1_000
        self.number = 0

    def append(self) -> None:
        numbers = range(self.next_id, self.next_id + 3)
        self.next_id += 3
        self.place.append(rows_of(numbers))
        self.texts |= {number: f"zeile {number}" for number in numbers}

    def delete(self, remainder: int) -> None:
        self.place.dataset().delete(f"id % 11 = {remainder}")
        self.texts = {number: text for number, text in self.texts.items() if number % 11 != remainder}

    def update(self, remainder: int) -> None:
        self.place.dataset().update({"text": "concat(text, '!')"}, where=f"id % 11 = {remainder}")
        self.texts = {number: text + "!" * (number % 11 == remainder) for number, text in self.texts.items()}

    def note(self, remainder: int) -> None:
        """Update a column that the steps do not read."""
        self.place.dataset().update({"note": "concat(note, '!')"}, where=f"id % 11 = {remainder}")

    def merge(self, remainder: int) -> None:
        """Upsert whole rows, one of them new; half of the others are as they were."""
        rows = [row | {"text": row["text"] + "?" * (row["id"] % 2)} for row in rows_in(self.place) if row["id"] % 11 == remainder]
        rows.append({**dict.fromkeys(self.place.dataset().schema.names), "id": self.next_id, "text": "merged"})
        self.next_id += 1
        self.texts |= {row["id"]: row["text"] for row in rows}
        upsert = self.place.dataset().merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        upsert.execute(pa.Table.from_pylist(rows, schema=self.place.dataset().schema))

    def fill(self) -> None:
        """Add another column, which counts as a change of each row to Lance."""
        self.number += 1
        self.place.dataset().add_columns({f"other{self.number}": "id + 1"})

    def compact(self) -> None:
        self.place.dataset().optimize.compact_files(target_rows_per_fragment=50)

    def do(self, what: str, remainder: int) -> None:
        getattr(self, what)(*([remainder] if what in ("delete", "update", "note", "merge") else []))

    def copies(self) -> dict[int, str | None]:
        rows = rows_in(self.place)
        assert {row["id"]: row["text"] for row in rows} == self.texts
        return {row["id"]: row.get("copy") for row in rows}


def test_rows_that_changed_and_new_rows_are_computed_and_no_others(place: LancePlace) -> None:
    model = Model(place)
    assert isinstance(run(place, manifest_of(place)).outcome, Finish)
    assert model.copies() == model.texts

    for number, what in enumerate(OTHERS):
        model.do(what, number)
    changed = {number for number, copied in model.copies().items() if copied != model.texts[number]}
    assert changed

    assert isinstance(run(place, manifest_of(place, 2)).outcome, Finish)

    assert sorted(vectors.CALLED) == sorted(changed)
    assert model.copies() == model.texts
    assert isinstance(run(place, manifest_of(place, 3)).outcome, Finish)
    assert vectors.CALLED == []


def replace_in_place(place: LancePlace) -> list[int]:
    """Give two rows another text where they are; return their ids. Lance does not count it as a change of the rows."""
    dataset = place.dataset()
    rows = dataset.get_fragment(1).scanner(columns=["id"], with_row_id=True).to_table().slice(3, 2)
    texts = pa.table({"_rowid": rows["_rowid"], "text": ["in place"] * 2})
    fragment, fields = dataset.get_fragment(1).update_columns(texts, left_on="_rowid", right_on="_rowid")
    operation = lance.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
    lance.LanceDataset.commit(place.uri, operation, read_version=dataset.version)
    ids: list[int] = rows["id"].to_pylist()
    return ids


def test_a_value_that_was_replaced_in_place_is_a_change(place: LancePlace) -> None:
    model = Model(place)
    run(place, manifest_of(place))
    ids = replace_in_place(place)
    model.texts |= dict.fromkeys(ids, "in place")

    assert isinstance(run(place, manifest_of(place, 2)).outcome, Finish)

    assert sorted(vectors.CALLED) == ids
    assert model.copies() == model.texts


@pytest.mark.parametrize("failing", [True, False])
def test_a_changed_row_that_gets_no_value_loses_the_one_that_it_had(place: LancePlace, *, failing: bool) -> None:
    model = Model(place)
    changed = {number for number in model.texts if number % 11 == 4}
    others = ", ".join(f"'zeile {number}!'" for number in changed)
    more: dict[str, Any] = {"onRowError": "Quarantine", "quarantine": {"maxShare": "100%"}}
    if not failing:
        more["source"] = {"where": f"not text in ({others})"}
    run(place, manifest_of(place, **more))
    model.do("update", 4)
    vectors.FAILING.update(changed if failing else ())
    try:
        assert isinstance(run(place, manifest_of(place, 2, **more)).outcome, Finish)
    finally:
        vectors.FAILING.clear()

    assert model.copies() == {number: None if number in changed else text for number, text in model.texts.items()}


def test_a_changed_row_that_is_moved_before_the_commit_is_computed_again(place: LancePlace) -> None:
    """What was made for it does not find it: its old value stays, and from then on nothing that steps read changes."""
    model = Model(place)
    run(place, manifest_of(place))
    names = Effects()
    model.do("update", 4)
    run(place, manifest_of(place, 2), names)
    model.do("update", 3)
    changed = {number for number in model.texts if number % 11 == 3}

    run(place, manifest_of(place, 3), Effects(names.names.index(SHOWN), kill=lambda: model.do("note", 3)))

    assert {number for number, copied in model.copies().items() if copied != model.texts[number]} == changed
    assert isinstance(run(place, manifest_of(place, 4)).outcome, Finish)
    assert sorted(vectors.CALLED) == sorted(changed)
    assert model.copies() == model.texts


def test_a_column_that_all_rows_get_before_the_commit_is_no_change(place: LancePlace) -> None:
    """To Lance it is one of each row."""
    model = Model(place)
    run(place, manifest_of(place))
    names = Effects()
    model.do("update", 4)
    run(place, manifest_of(place, 2), names)
    model.do("update", 5)
    run(place, manifest_of(place, 3), Effects(names.names.index(SHOWN), kill=lambda: model.do("fill", 0)))
    assert model.copies() == model.texts
    model.do("note", 3)

    assert isinstance(run(place, manifest_of(place, 4)).outcome, Finish)

    assert vectors.CALLED == []


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_traffic_between_and_within_epochs_leaves_no_row_with_a_value_of_other_input(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    place = made(tmp_path_factory.mktemp("traffic"))
    model = Model(place)

    class Traffic(Effects):
        """What others do before some of the effects of an epoch, up to the one that shows its values."""

        def __init__(self, planned: list[tuple[int, tuple[str, int]]]) -> None:
            super().__init__()
            self.planned = planned

        def around(self, name: str, effect: Callable[[], Any]) -> Any:
            for at, act in self.planned:
                if at == len(self.names) and SHOWN not in self.names:
                    model.do(*act)
            return super().around(name, effect)

    epoch = 0
    for _ in range(3):
        epoch += 1
        for act in data.draw(st.lists(ACTS, max_size=4)):
            model.do(*act)
        before = dict(model.texts)
        planned = data.draw(st.lists(st.tuples(st.integers(0, 14), ACTS), max_size=3))
        ended = run(place, manifest_of(place, epoch), Traffic(planned))
        assert isinstance(ended.outcome, Finish), ended.outcome
        assert len(vectors.CALLED) == len({*vectors.CALLED})
        # What others did within the epoch has the next one compute again, and that alone.
        touched = {number for number, text in model.texts.items() if before.get(number) != text}
        stale = {number for number, copied in model.copies().items() if copied != model.texts[number]}
        assert stale <= touched | {*vectors.CALLED}, stale
        epoch += 1
        assert isinstance(run(place, manifest_of(place, epoch)).outcome, Finish)
        assert stale <= {*vectors.CALLED}
        assert model.copies() == model.texts
        epoch += 1
        assert isinstance(run(place, manifest_of(place, epoch)).outcome, Finish)
        assert vectors.CALLED == []


def test_a_death_around_each_effect_computes_changed_rows_once(tmp_path: Path) -> None:
    def begun(folder: Path) -> tuple[LancePlace, Model, set[int]]:
        place = made(folder, 40)
        model = Model(place)
        run(place, manifest_of(place))
        model.do("update", 2)
        return place, model, {number for number, copied in model.copies().items() if copied != model.texts[number]}

    place, _, _ = begun(tmp_path / "clean")
    recorded = Effects()
    run(place, manifest_of(place, 2), recorded)
    for point, name in enumerate(recorded.names):
        if "launch" in name:  # nobody starts its driver: the next one waits for it, which other tests have
            continue
        place, model, changed = begun(tmp_path / str(point))
        with pytest.raises(Died):
            run(place, manifest_of(place, 2), Effects(point))
        called = [*vectors.CALLED]

        assert isinstance(run(place, manifest_of(place, 2)).outcome, Finish), name

        assert sorted([*called, *vectors.CALLED]) == sorted(changed), name
        assert model.copies() == model.texts


def test_rows_without_stable_ids_are_refused_with_a_way_out(tmp_path: Path) -> None:
    place = made(tmp_path, stable_row_ids=False)

    ended = run(place, manifest_of(place)).outcome

    assert isinstance(ended, Stall)
    assert ended.reason == reasons.TABLE_UNSUPPORTED
    assert "enable_stable_row_ids=True" in ended.message
    assert isinstance(run(place, manifest_of(place, name="others", only="Null")).outcome, Finish)


def test_a_version_that_was_cleaned_up_stops_the_write_with_a_way_out(place: LancePlace) -> None:
    model = Model(place)
    run(place, manifest_of(place))
    model.do("update", 1)
    place.dataset().cleanup_old_versions(older_than=datetime.timedelta(0))

    ended = run(place, manifest_of(place, 2)).outcome

    assert isinstance(ended, Stall)
    assert ended.reason == reasons.SOURCE_CHANGED
    assert "sink.only: All" in ended.message
    assert isinstance(run(place, manifest_of(place, name="others", only="All")).outcome, Finish)
    assert model.copies() == model.texts


def test_a_look_finds_fragments_with_changed_rows_and_not_the_write_s_own_columns(place: LancePlace) -> None:
    manifest = manifest_of(place, trigger={"every": "5m"})
    run(place, manifest)
    assert new_input(place, manifest) == []
    model = Model(place)
    model.do("delete", 5)
    model.do("fill", 0)
    assert new_input(place, manifest) == []

    replace_in_place(place)
    assert len(new_input(place, manifest)) == 1

    model.do("update", 3)
    assert len(new_input(place, manifest)) == 2
