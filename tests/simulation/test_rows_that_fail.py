"""Rows that fail, always or now and then, among crashes and zombies: each is in the table once, or quarantined once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from tests.simulation.chaos import let_zombies_end, play, settle
from tests.simulation.checks import assert_all_is_well
from tests.simulation.choices import Drawn
from tests.simulation.deaths import DULL, Death, live, new_world
from tests.simulation.faults import ROW_ERRORS
from tests.simulation.profile import searching
from tests.simulation.world import FORMATS, Format, Job, World


@st.composite
def worlds(draw: st.DrawFn, format: Format) -> World:
    """Play an example; what is drawn is what befalls whom, and which rows fail."""
    return play(format, Drawn(draw), focus=ROW_ERRORS)


@searching(100)
@given(world=worlds("iceberg"))
def test_iceberg_each_row_is_there_once_or_quarantined_once(world: World) -> None:
    assert_all_is_well(world)


@searching(100)
@given(world=worlds("lance"))
def test_lance_each_row_is_there_once_or_quarantined_once(world: World) -> None:
    assert_all_is_well(world)


def failing_world(format: Format, *poison: int) -> tuple[World, Job]:
    """Return a write of two files, of which the rows with these numbers fail (1000 + 100 a file + the row)."""
    world, job = new_world(format, [3, 2])
    job.input.explodes = False
    job.input.poison = job.ever_failing = frozenset(poison)
    job.quarantines = True
    return world, job


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("how", ["before", "after"])
def test_a_death_at_each_effect_keeps_each_row_there_once_or_quarantined_once(format: Format, how: str) -> None:
    clean, job = failing_world(format, 1000, 1001, 1002, 1101)
    effects = live(clean, job)
    let_zombies_end(clean, DULL)
    assert_all_is_well(clean)
    assert "put quarantine" in effects
    for number in range(len(effects)):
        world, job = failing_world(format, 1000, 1001, 1002, 1101)
        live(world, job, Death(number, "before" if how == "before" else "after", "all"))
        settle(world, DULL, job)
        job.retry, job.input.poison = "Only", frozenset({1001})
        job.begin_next_epoch(0)
        live(world, job, Death(number // 2, "after", "all"))

        settle(world, DULL, job)
        let_zombies_end(world, DULL)

        assert_all_is_well(world)


@pytest.mark.parametrize("format", FORMATS)
def test_beyond_the_limit_nothing_is_committed_until_it_is_raised(format: Format) -> None:
    world, job = failing_world(format, 1000, 1002, 1101)
    job.most_failed_rows = 2

    stalled = settle(world, DULL, job).outcome

    assert isinstance(stalled, Stall)
    assert stalled.reason == reasons.TOO_MANY_ROW_ERRORS
    assert not any(landing.key for landing in world.table.landings)
    job.most_failed_rows = 3
    fresh = settle(world, DULL, job)
    assert isinstance(fresh.outcome, Finish)
    commit_record = world.plain_ledger(EpochKey(job.uid, 1)).commits.read_commit()
    assert commit_record is not None
    assert (commit_record.rows_quarantined, commit_record.rows_written) == (3, 2)
    world.scheduler.close()


@pytest.mark.parametrize("format", FORMATS)
def test_a_limit_that_is_lowered_after_the_claim_does_not_hide_a_commit_that_landed(format: Format) -> None:
    world, job = failing_world(format, 1000, 1002)
    live(world, job, Death("put done", "before", "all"))
    job.most_failed_rows = 1

    fresh = settle(world, DULL, job)

    assert isinstance(fresh.outcome, Finish)
    let_zombies_end(world, DULL)
    assert_all_is_well(world)


@pytest.mark.parametrize("format", FORMATS)
def test_a_restart_with_mended_code_drops_what_was_quarantined(format: Format) -> None:
    world, job = failing_world(format, 1000, 1101)
    job.most_failed_rows = 1
    live(world, job, Death("put seals", "after", "all"))
    job.input.poison, job.code_digest, job.on_code_change = frozenset(), "f" * 64, "Restart"

    fresh = settle(world, DULL, job)

    assert isinstance(fresh.outcome, Finish)
    commit_record = world.plain_ledger(EpochKey(job.uid, 1)).commits.read_commit()
    assert commit_record is not None
    assert commit_record.rows_quarantined == 0
    let_zombies_end(world, DULL)
    assert_all_is_well(world)
