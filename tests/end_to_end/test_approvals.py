"""Edits that wait for a person (onCodeChange: Ask): what is asked, what each answer does, what is no question. Without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoint_control.decision.actions import RecordAttempt, Stall
from checkpoint_control.decision.code_changes import Approval
from checkpoint_control.loop.reconcile import Round
from checkpoint_control.pipelines.decisions import IN_WORDS, named
from checkpoint_protocol import reasons
from tests.end_to_end.test_pipelines import after, assert_as_from_scratch, has_failed, in_the_middle_of, made
from tests.support.pipelines import CALLS, VERSIONS, PipelineLab
from tests.support.places import Place
from tests.support.writes import drive


@pytest.fixture
def lab(lance_place: Place, tmp_path: Path) -> PipelineLab:
    return PipelineLab(lance_place, tmp_path, more={"onCodeChange": "Ask"})


def asked(done: Round | None) -> str:
    assert done is not None
    assert isinstance(done.outcome, Stall), done.actions
    assert done.outcome.reason == reasons.CODE_CHANGED
    return done.outcome.message


def is_recorded(stage: str) -> Callable[[Round], bool]:
    """Say of a round that it records an attempt of this stage, and starts no driver."""

    def is_it(done: Round) -> bool:
        folder = named(done.key.stage)
        return isinstance(done.actions[-1], RecordAttempt) and folder is not None and folder.stage == stage

    return is_it


def test_a_failed_stage_whose_code_was_edited_waits_and_goes_on_with_the_rows_that_are_left(lab: PipelineLab) -> None:
    lab.run(kill_when=in_the_middle_of("second"), until=has_failed)
    VERSIONS["second"] = 2
    before = CALLS.total()

    message = asked(lab.run())

    assert " rows of the stage second are sealed, and attempt 1 " in message
    assert CALLS.total() == before, "nothing began"
    lab.approve = "Continue"
    lab.finish()
    assert_as_from_scratch(lab)
    assert made(lab, "second") == {"a by 1", "a by 2"}
    assert CALLS["second", 1] + CALLS["second", 2] == len(lab.ids)


def test_a_failed_stage_whose_code_was_edited_begins_anew_where_a_person_says_so(lab: PipelineLab) -> None:
    lab.run(kill_when=in_the_middle_of("second"), until=has_failed)
    VERSIONS["second"] = 2
    lab.approve = "Restart"

    lab.finish()

    assert_as_from_scratch(lab)
    assert made(lab, "second") == {"a by 2"}


def test_stages_that_are_done_wait_before_they_are_done_anew_and_the_message_names_them(lab: PipelineLab) -> None:
    lab.run(kill_when=in_the_middle_of("third"), until=has_failed)
    VERSIONS["second"] = 2

    assert asked(lab.run()) == (
        "stages with sealed rows would be computed again: second (its code has changed), third (its input is computed again); "
        "kept: first; approve that, or undo the edit"
    )

    assert CALLS["second", 2] == 0
    lab.approve = "Continue"
    lab.run(until=after("second"))
    lab.approve = None
    lab.finish()
    assert_as_from_scratch(lab)
    assert made(lab, "second") == {"a by 2"}
    assert CALLS["first", 1] == len(lab.ids)


def test_arguments_that_were_edited_wait_too_and_undoing_them_goes_on_unasked(lab: PipelineLab) -> None:
    lab.run(kill_when=in_the_middle_of("third"), until=has_failed)
    lab.arguments["third"] = "b"
    assert f"third ({IN_WORDS['arguments']})" in asked(lab.run())
    lab.arguments["third"] = "a"

    lab.finish()

    assert_as_from_scratch(lab)
    assert CALLS["third", 1] == len(lab.ids)


def test_an_approval_of_other_code_does_not_count(lab: PipelineLab) -> None:
    lab.run(until=after("second"))
    VERSIONS["second"] = 2
    reconciler = lab.reconciler()
    reconciler.observer.approval = Approval("Continue", reconciler.observer.digest_to_approve())
    VERSIONS["second"] = 3

    assert f"second ({IN_WORDS['code']})" in asked(drive(reconciler))

    assert CALLS["second", 2] == CALLS["second", 3] == 0


def test_a_reset_is_no_question_and_neither_is_code_of_a_stage_without_results(lab: PipelineLab) -> None:
    lab.run(until=after("second"))
    lab.nonces["second"] = "1"
    VERSIONS["third"] = 2

    lab.finish()

    assert_as_from_scratch(lab)
    assert CALLS["second", 1] == 2 * len(lab.ids)


def test_arguments_of_a_stage_that_has_sealed_nothing_are_no_question(lab: PipelineLab) -> None:
    lab.run(until=is_recorded("second"))
    lab.arguments["second"] = "b"

    lab.finish()

    assert_as_from_scratch(lab)
    assert CALLS["second", 1] == len(lab.ids)
