"""Rows of a Lance dataset that have changed are taken again, into an upsert (`source.changes: Upserts`), against a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_protocol import reasons
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from tests.end_to_end.test_added_columns import new_input
from tests.end_to_end.test_columns_of_changed_rows import ACTS, OTHERS, Model, made
from tests.support import vectors
from tests.support.changed_rows import begin_without, check_that_it_is_set_where_the_write_has_stopped, run, take_with_a_death
from tests.support.places import LancePlace
from tests.support.writes import SCHEMA, manifest_for


class Pair:
    """A dataset that is read, and the one into which its rows go: the text of each row, by its id."""

    def __init__(self, folder: Path, *, stable_row_ids: bool = True) -> None:
        self.source = made(folder, stable_row_ids=stable_row_ids)
        self.sink = replace(self.source, base_uri=f"{self.source.base_uri}/sink")
        assert isinstance(self.sink, LancePlace)
        self.sink.create(SCHEMA)
        self.model = Model(self.source)
        self.known: dict[int, str] = {}

    def manifest(self, epoch: int = 1, **more: Any) -> CheckpointedWrite:
        return manifest_for(
            self.sink,
            {
                "lance": {"uri": self.source.uri, "splitSize": "1Ki"},
                "columns": ["id", "text"],
                "changes": more.pop("changes", "Upserts"),
            },
            name=more.pop("name", "mirror"),
            steps=[{"call": "tests.support.vectors:pass_on", "input": "row", "output": {"id": "int64", "text": "string"}}],
            sink={"mode": "Upsert", "upsertKeys": ["id"]},
            runNonce=str(epoch),
            **more,
        )

    def check(self) -> None:
        """What was taken by now is in the table, each row once: those that are gone from the source, too."""
        self.known |= self.model.texts
        rows = self.sink.rows()
        assert {row["id"]: row["text"] for row in rows} == self.known
        assert len(rows) == len(self.known)

    def to_take(self) -> list[int]:
        """Return the rows that the next epoch takes."""
        return sorted(number for number, text in self.model.texts.items() if self.known.get(number) != text)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_rows_that_have_changed_replace_their_former_values_and_no_others_are_taken(pair: Pair) -> None:
    assert isinstance(run(pair.sink, pair.manifest()).outcome, Finish)
    pair.check()
    for number, what in enumerate(OTHERS):
        pair.model.do(what, number)
    changed = pair.to_take()
    assert changed

    assert isinstance(run(pair.sink, pair.manifest(2)).outcome, Finish)

    assert sorted(vectors.CALLED) == changed
    pair.check()
    assert isinstance(run(pair.sink, pair.manifest(3)).outcome, Finish)
    assert vectors.CALLED == []


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    epochs=st.lists(st.tuples(st.lists(ACTS, max_size=4), st.none() | st.tuples(st.integers(4, 20), st.booleans())), max_size=3)
)
def test_random_changes_and_deaths_leave_what_the_model_says(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[tuple[list[tuple[str, int]], tuple[int, bool] | None]]
) -> None:
    pair = Pair(tmp_path_factory.mktemp("changes"))
    run(pair.sink, pair.manifest())
    pair.check()
    for number, (acts, death) in enumerate(epochs, 2):
        for act in acts:
            pair.model.do(*act)
        take_with_a_death(pair, number, death)


def test_it_may_be_set_when_the_write_has_stopped_at_a_change(pair: Pair) -> None:
    begin_without(pair)

    pair.model.do("update", 3)

    check_that_it_is_set_where_the_write_has_stopped(pair)


def test_rows_without_stable_ids_are_refused_with_a_way_out(tmp_path: Path) -> None:
    pair = Pair(tmp_path, stable_row_ids=False)

    ended = run(pair.sink, pair.manifest()).outcome

    assert isinstance(ended, Stall)
    assert ended.reason == reasons.TABLE_UNSUPPORTED
    assert isinstance(run(pair.sink, pair.manifest(name="without", changes="Fail")).outcome, Finish)


def test_a_look_finds_what_has_changed(pair: Pair) -> None:
    manifest = pair.manifest(trigger={"every": "5m"})
    run(pair.sink, manifest)
    assert new_input(pair.sink, manifest) == []
    pair.model.do("delete", 5)
    assert new_input(pair.sink, manifest) == []

    pair.model.do("update", 3)

    assert len(new_input(pair.sink, manifest)) == 1
