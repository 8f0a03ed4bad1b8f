"""The decision: each rule with what it sees and what follows, and what may never follow from anything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_control.decision import rules
from checkpoint_control.decision.actions import (
    Close,
    Commit,
    Finish,
    MakeTable,
    OpenEpoch,
    RecordAttempt,
    Stall,
    StartDriver,
    StopDriver,
    Wait,
)
from checkpoint_control.decision.observation import Attempt, DriverState, Observation, RowErrorLimit
from checkpoint_control.decision.rules import RULES, decide, progress_deadline_s
from checkpoint_control.decision.triggers import Between, News
from tests.support.effort import examples
from tests.unit.decision.cases_of_attempts import ATTEMPTS
from tests.unit.decision.cases_of_commits import COMMITS
from tests.unit.decision.cases_of_drivers import DRIVERS
from tests.unit.decision.observations import (
    BEFORE,
    BROKEN,
    CHANGE,
    COMMITTED,
    ELSEWHERE,
    NOW,
    RETRYABLE,
    SUSPENDED,
    UNREADABLE,
    at_work,
    closed,
    failed,
    seen,
)

CASES = {**COMMITS, **DRIVERS, **ATTEMPTS}


@pytest.mark.parametrize("case", CASES)
def test_what_follows(case: str) -> None:
    _, observation, actions = CASES[case]

    assert decide(observation) == actions


@pytest.mark.parametrize("case", CASES)
def test_the_rule_that_applies_first_is_the_one_that_is_meant(case: str) -> None:
    rule, observation, _ = CASES[case]

    assert next(candidate.__name__ for candidate in RULES if candidate(observation) is not None) == rule


def test_every_rule_has_a_case() -> None:
    assert len(CASES) == len(COMMITS) + len(DRIVERS) + len(ATTEMPTS)
    assert {rule.__name__ for rule in RULES} == {rule for rule, _, _ in CASES.values()}


# --- the progress deadline ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("earlier", "factor"), [(0, 1), (1, 2), (2, 4), (5, 32), (6, 64), (7, 64), (30, 64)])
def test_the_progress_deadline_doubles_with_each_failure_before_it_up_to_a_bound(earlier: int, factor: int) -> None:
    observation = seen(*failed(earlier), at_work(earlier + 1))

    assert progress_deadline_s(observation) == 600.0 * factor


def test_failures_that_do_not_count_do_not_lengthen_the_deadline() -> None:
    assert progress_deadline_s(seen(*failed(5), at_work(6), first_counted_failure=6)) == 600.0
    assert progress_deadline_s(seen(*failed(5), at_work(6), first_counted_failure=5)) == 1200.0


def test_the_last_attempt_itself_does_not_lengthen_its_deadline() -> None:
    assert progress_deadline_s(seen(closed(1))) == 600.0
    assert progress_deadline_s(seen()) == 600.0


def test_a_driver_that_was_given_up_and_is_at_work_still_is_told_to_end_beside_what_else_is_done() -> None:
    still_there = replace(closed(1, SUSPENDED), driver=DriverState.RUNNING)

    assert decide(seen(still_there, is_suspended=True)) == (StopDriver(1), Wait("suspend to be unset"))
    assert decide(seen(still_there)) == (StopDriver(1), RecordAttempt(2, (1,)))
    assert decide(seen(replace(still_there, is_complete=True))) == (Commit(1),)


def test_a_driver_whose_attempt_another_runner_has_closed_and_followed_is_told_to_end() -> None:
    own = replace(closed(1), driver=DriverState.RUNNING)

    assert decide(seen(own, at_work(2, ELSEWHERE))) == (
        StopDriver(1),
        Wait("the driver of attempt 2, which another machine has started"),
    )
    assert decide(seen(own, closed(2, complete=True), commit=COMMITTED)) == (Finish(),)


# --- whatever is seen -----------------------------------------------------------------------------------------------------


@st.composite
def attempts(draw: st.DrawFn, number: int, is_last: bool) -> Attempt:
    is_closed = not is_last or draw(st.booleans())
    return Attempt(
        number=number,
        code_digest=draw(st.sampled_from([NOW, BEFORE])),
        driver=draw(st.sampled_from(DriverState)),
        is_sealed=draw(st.booleans()),
        is_closed=is_closed,
        is_complete=is_closed and draw(st.booleans()),
        awaits_table=draw(st.booleans()),
        failure=draw(st.none() | st.sampled_from([RETRYABLE, BROKEN, UNREADABLE, SUSPENDED])),
        is_outdated=draw(st.booleans()),
        idle_s=draw(st.floats(0, 1e6)),
        counted=tuple(sorted(draw(st.sets(st.integers(1, number - 1))))) if number > 1 else (),
        rows_quarantined=draw(st.sampled_from([0, 0, 1, 3])),
        has_sealed=is_closed and draw(st.booleans()),
    )


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    count = draw(st.integers(0, 5))
    return Observation(
        epoch=draw(st.integers(1, 3)),
        commit=draw(st.none() | st.just(COMMITTED)),
        began_with=draw(st.sampled_from(["", "2"])),
        run_nonce=draw(st.sampled_from(["", "2"])),
        attempts=tuple(draw(attempts(number, number == count)) for number in range(1, count + 1)),
        code_digest=NOW,
        on_code_change=draw(st.sampled_from(["Continue", "Restart", "Ask"])),
        change=draw(st.sampled_from([None, CHANGE, replace(CHANGE, redone=("embed",))])),
        backoff_limit=draw(st.integers(0, 4)),
        progress_deadline_s=draw(st.floats(1, 1e4)),
        first_counted_failure=draw(st.integers(1, 7)),
        is_suspended=draw(st.booleans()),
        is_past_deadline=draw(st.booleans()),
        pause_left_s=draw(st.floats(-10, 10)),
        row_errors=draw(st.none() | st.just(RowErrorLimit(2, "quarantine.maxRows allows 2"))),
        is_claimed=draw(st.booleans()),
        goes_on=draw(st.booleans()),
        between=draw(st.sampled_from([None, Between(5.0), Between(0.0, News(files=1), begins=True)])),
    )


@given(observations())
@settings(deadline=None, max_examples=examples(250))
def test_whatever_is_seen_something_follows_and_it_is_safe(observation: Observation) -> None:
    actions = decide(observation)

    assert actions
    last = observation.last
    is_open = last is not None and not last.is_closed
    for action in actions:
        match action:
            case Commit(attempt):
                assert last is not None
                assert attempt == last.number
                assert last.is_closed
                assert last.is_complete, "only what is complete is committed"
                taken = [one for one in observation.attempts if one.number in (*last.counted, last.number)]
                is_kept = observation.row_errors is None or sum(one.rows_quarantined for one in taken) <= 2
                assert is_kept or observation.is_claimed, "never beyond the limit, but for what may be in the table"
            case RecordAttempt(attempt, counted):
                assert not is_open, "two attempts of one epoch would be open"
                assert not observation.is_suspended
                assert not (last and last.is_complete), "a complete attempt is committed, not followed"
                assert attempt == len(observation.attempts) + 1
                assert all(observation.attempts[number - 1].is_closed for number in counted), "live seals are never taken over"
                assert tuple(sorted(set(counted))) == counted
                assert last is not None or not counted
                assert last is None or {*counted} <= {*last.counted, last.number}, "what was dropped would be there twice"
            case StartDriver(attempt) | MakeTable(attempt):
                assert is_open
                assert last is not None
                assert attempt == last.number
                assert not observation.is_suspended
            case Close(attempt, why, _):
                assert is_open
                assert last is not None
                assert attempt == last.number
                assert why
            case StopDriver(attempt):
                stopped = observation.attempts[attempt - 1]
                is_closed = stopped.is_closed or any(isinstance(other, Close) and other.attempt == attempt for other in actions)
                assert is_closed, "a driver is stopped only after its attempt was closed"
            case Finish():
                assert observation.is_committed
                assert observation.began_with == observation.run_nonce
                assert not observation.goes_on, "a write with a trigger never finishes"
            case OpenEpoch(epoch, after):
                assert observation.is_committed
                is_due = observation.between is not None and observation.between.begins
                assert observation.began_with != observation.run_nonce or is_due
                assert (epoch, after) == (observation.epoch + 1, observation.epoch), "epochs are strictly sequential"
            case Wait() | Stall():
                assert not observation.is_committed or (observation.goes_on and isinstance(action, Wait))
    if observation.is_committed:
        (action,) = actions
        assert isinstance(action, Finish | OpenEpoch | Wait)
    if last is not None and is_open and StopDriver(last.number) in actions:
        before = actions[: actions.index(StopDriver(last.number))]
        assert any(isinstance(one, Close) for one in before), "closed first: a stop that is answered late is harmless only then"


@given(observations())
@settings(deadline=None)
def test_deciding_twice_gives_the_same(observation: Observation) -> None:
    assert decide(observation) == decide(observation)


def test_the_list_of_rules_ends_with_one_that_always_applies() -> None:
    assert RULES[-1] is rules.record_the_next_attempt
    assert RULES[-1](seen()) is not None
