"""Crash anything anywhere, wake zombies, lose answers, let strangers commit: every row is in the table exactly once."""

from __future__ import annotations

import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.chaos import play
from tests.simulation.checks import assert_all_is_well, violations
from tests.simulation.choices import Drawn, Dull, Seeded
from tests.simulation.faults import ANYTHING, AUDITS, BRANCHES, COMMITS, OVERWRITES, STRANGERS, TASKS, TRIGGERS, Focus
from tests.simulation.iceberg_table import SimulatedIceberg
from tests.simulation.profile import FACTOR, searching
from tests.simulation.world import FORMATS, Format, World
from tests.support.effort import examples


@st.composite
def worlds(draw: st.DrawFn, format: Format, focus: Focus) -> World:
    """Play an example; what is drawn is what befalls whom."""
    return play(format, Drawn(draw), focus=focus)


#: Names of parts are random.
_TOKEN = re.compile(r"[0-9a-f]{32}")


@searching(100)
@given(world=worlds("iceberg", ANYTHING))
def test_iceberg_whatever_happens_every_row_is_there_once(world: World) -> None:
    assert_all_is_well(world)


@searching(100)
@given(world=worlds("lance", ANYTHING))
def test_lance_whatever_happens_every_row_is_there_once(world: World) -> None:
    assert_all_is_well(world)


@searching(100)
@given(world=worlds("iceberg", COMMITS))
def test_iceberg_rival_committers_land_one_snapshot(world: World) -> None:
    assert_all_is_well(world)


@searching(200)
@given(world=worlds("lance", COMMITS))
def test_lance_rival_committers_land_one_version(world: World) -> None:
    assert_all_is_well(world)


@searching(100)
@given(world=worlds("iceberg", STRANGERS))
def test_iceberg_strangers_lose_nothing_and_an_unknown_outcome_is_said(world: World) -> None:
    assert_all_is_well(world)


@searching(100)
@given(world=worlds("lance", STRANGERS))
def test_lance_strangers_lose_nothing_and_an_unknown_outcome_is_said(world: World) -> None:
    assert_all_is_well(world)


@searching(100)
@given(world=worlds("iceberg", OVERWRITES))
def test_iceberg_overwrites_leave_the_rows_of_the_last_epoch_and_what_strangers_append_after_it(world: World) -> None:
    assert_all_is_well(world)


@searching(100)
@given(world=worlds("iceberg", AUDITS))
def test_iceberg_rows_that_wait_for_an_audit_are_there_once_and_none_that_has_not_passed(world: World) -> None:
    assert_all_is_well(world)
    assert isinstance(world.table, SimulatedIceberg)
    # Where a stranger has removed the evidence, a person is asked, and the branch waits for the answer.
    assert world.table.metadata.audits == {} or world.table.evidence_was_removed, "no branch is left"
    assert {landing.key for landing in world.table.landings} - {None} <= set(world.passed.values())


@pytest.mark.parametrize("format", FORMATS)
def test_epochs_by_a_trigger_take_each_file_once_and_land_in_their_order(format: Format) -> None:
    # Long examples, of five epochs on average: a seed costs a fifth of what drawing them one choice at a time does.
    for seed in range(examples(15) * FACTOR):
        assert_all_is_well(play(format, Seeded(seed), focus=TRIGGERS))


@searching(50)
@given(world=worlds("iceberg", BRANCHES))
def test_iceberg_rows_of_a_branch_are_there_once_and_main_has_none(world: World) -> None:
    assert isinstance(world.table, SimulatedIceberg)
    ours = {row for job in world.jobs for row in job.input.expected()}
    main = world.files.rows_in(world.table.main_files())
    assert_all_is_well(world)
    assert not ours & set(main)


@searching(100)
@given(world=worlds("lance", OVERWRITES))
def test_lance_overwrites_leave_the_rows_of_the_last_epoch_and_what_strangers_append_after_it(world: World) -> None:
    assert_all_is_well(world)


@searching(100)
@given(world=worlds("lance", TASKS))
def test_rival_tries_drivers_and_closers_count_each_row_once(world: World) -> None:
    assert_all_is_well(world)


@pytest.mark.parametrize("format", FORMATS)
def test_without_an_adversary_all_is_well(format: Format) -> None:
    assert_all_is_well(play(format, Dull()))


@pytest.mark.parametrize("format", FORMATS)
def test_a_seed_is_the_whole_example(format: Format) -> None:
    for seed in range(4):
        worlds = [play(format, Seeded(seed)) for _ in range(2)]
        found = [violations(world) for world in worlds]
        for world in worlds:
            world.scheduler.close()
        first, second = ([_TOKEN.sub("token", step) for step in world.scheduler.trace] for world in worlds)
        assert first == second, seed
        assert found[0] == found[1]


def test_no_thread_outlives_its_example() -> None:
    # The event loop of steps is one for a process, begins with the first call, and stays.
    play("lance", Seeded(0)).scheduler.close()
    before = threading.active_count()
    for seed in range(10):
        play("lance", Seeded(seed)).scheduler.close()
    assert threading.active_count() == before
