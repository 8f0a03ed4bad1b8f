"""The status and the events that follow from one round: its observation, its decision, and how it ended."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from checkpoint_control.decision.actions import Action, Close, Commit, Finish, RecordAttempt, Stall, StartDriver, Wait
from checkpoint_control.decision.observation import Attempt, DriverState, Failure, Observation
from checkpoint_control.loop.reconcile import Round
from checkpoint_control.pipelines.decisions import Named
from checkpoint_control.progress.epoch_progress import Progress
from checkpoint_operator.crd.status_model import Status
from checkpoint_operator.status.events import steps_between, warnings_between
from checkpoint_operator.status.round_status import DeletionWaits, Failed, Figures, Frame, Outcome, derive
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import CommitRecord
from tests.unit.cluster.test_pods import OWNER, spec_of

FIRST, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
RECORDED = Attempt(number=1, code_digest="c" * 64, driver=DriverState.NOT_STARTED)
AT_WORK = replace(RECORDED, driver=DriverState.RUNNING)
CLOSED = replace(RECORDED, driver=DriverState.GONE, is_closed=True)
SEALED = replace(CLOSED, is_complete=True)
SOME = Figures(Progress(1, 4, 1, 10, 10, 1, 0))


def seen(*attempts: Attempt, **fields: Any) -> Observation:
    nothing = Observation(1, attempts, "c" * 64, "Continue", 3, 600.0, began_with="" if attempts else None)
    return replace(nothing, **fields)


def decided(action: Action, *attempts: Attempt, **fields: Any) -> Round:
    observation = seen(*attempts, **fields)
    return Round(EpochKey(OWNER.uid, observation.epoch), observation, (action,), is_decision=True)


def ended(action: Action, *attempts: Attempt, **fields: Any) -> Round:
    return replace(decided(action, *attempts, **fields), is_decision=False)


def status_after(*outcomes: Outcome | tuple[Outcome, Figures]) -> Status:
    """The status after these, one after another, a minute apart."""
    status = Status()
    for minute, outcome in enumerate(outcomes):
        one, figures = outcome if isinstance(outcome, tuple) else (outcome, None)
        status = derive(Frame(status, OWNER, f"2026-01-01T00:{minute:02}:00Z", spec_of()), one, figures)
    return status


def conditions(status: Status) -> dict[str, str]:
    return {condition.type: condition.status for condition in status.conditions or ()}


def test_the_pod_stands_in_the_status_before_it_is_asked_for() -> None:
    status = status_after(decided(StartDriver(1), RECORDED))

    assert (status.phase, status.reason, status.attempt) == ("Pending", "DriverStarting", 1)
    assert status.attempts is not None
    assert status.attempts[0].pod == status.driver_pod is not None
    assert status.started_at == status.attempts[0].recorded_at == FIRST


def test_a_pod_that_is_asked_for_again_is_not_told_again() -> None:
    once = status_after(decided(StartDriver(1), RECORDED))

    assert status_after(decided(StartDriver(1), RECORDED), decided(StartDriver(1), RECORDED)) == once


@pytest.mark.parametrize("action", [RecordAttempt(2, ()), Close(1, "its driver is gone"), Wait("the driver"), Finish()])
def test_what_nobody_has_to_find_is_told_only_once_it_is_done(action: Action) -> None:
    before = status_after((ended(Wait("the driver"), AT_WORK), SOME))

    assert status_after((ended(Wait("the driver"), AT_WORK), SOME), decided(action, AT_WORK)) == before


def test_a_commit_is_told_before_it_is_made_and_keeps_the_figures() -> None:
    status = status_after((ended(Wait("the driver"), AT_WORK), SOME), decided(Commit(1), SEALED))

    assert (status.phase, status.reason, status.rows_sealed, status.tasks) == ("Committing", None, 10, 4)
    assert conditions(status) == {
        "Accepted": "True",
        "Running": "False",
        "Sealed": "True",
        "Committed": "False",
        "Stalled": "False",
        "Ready": "False",
        "Reconciling": "True",
    }


@pytest.mark.parametrize("last", [AT_WORK, SEALED], ids=["at work", "done"])
@pytest.mark.parametrize(
    ("stage", "all_sealed"),
    [(str(Named("enrich", "0123456789abcdef", 1)), "False"), ("merge-0123456789abcdef", "True")],
    ids=["of a pipeline", "that the commit needs"],
)
def test_all_rows_are_sealed_after_the_stages_of_a_pipeline_and_before_the_stages_of_a_commit(
    last: Attempt, stage: str, all_sealed: str
) -> None:
    of_stage = replace(ended(Wait("the driver"), last), key=EpochKey(OWNER.uid, 1, stage))

    status = status_after(of_stage)

    assert conditions(status)["Sealed"] == all_sealed
    done = "Sealed" if all_sealed == "True" else "Pending"
    assert status.phase == (done if last.is_complete else "Running")


@pytest.mark.parametrize(
    "stage", ["merge-0123456789abcdef", str(Named("last", "0123456789abcdef", 1))], ids=["merge", "pipeline"]
)
def test_rows_that_failed_stay_told_where_the_epoch_goes_on_with_a_stage(stage: str) -> None:
    failed = (ended(Wait("the driver"), SEALED), Figures(replace(SOME.progress, rows_failed=3)))
    begins = replace(decided(StartDriver(1), RECORDED), key=EpochKey(OWNER.uid, 1, stage))
    goes_on = replace(ended(Wait("the driver"), AT_WORK), key=begins.key), Figures(replace(SOME.progress, rows_failed=0))

    begun, at_work = status_after(failed, begins), status_after(failed, begins, goes_on)

    assert (begun.rows_quarantined, begun.rows_sealed) == (3, 0)
    assert at_work.rows_quarantined == (3 if stage.startswith("merge") else None)
    assert warnings_between(status_after(failed), begun) == []


def test_a_commit_that_was_refused_is_tried_again_without_a_word() -> None:
    refused = (ended(Stall(reasons.SCHEMA_CHANGED, "the column text is gone"), SEALED), SOME)

    assert status_after(refused, decided(Commit(1), SEALED)) == status_after(refused)


def test_the_first_driver_of_another_epoch_takes_nothing_over_from_the_figures_of_the_one_before() -> None:
    of_second = decided(StartDriver(1), RECORDED, epoch=2, began_with="2", run_nonce="2")

    status = status_after((ended(Wait("the driver"), AT_WORK), SOME), of_second)

    assert (status.epoch, status.run_nonce, status.started_at) == (2, "2", LATER)
    assert (status.tasks, status.tasks_sealed, status.rows_sealed, status.input_files_done) == (None, None, 0, None)


def test_what_does_not_answer_leaves_the_phase_as_it_was() -> None:
    at_work = (ended(Wait("the driver"), AT_WORK), SOME)
    down = Failed(reasons.STORE_UNAVAILABLE, "no answer", may_pass=True)

    status = status_after(at_work, down)

    assert (status.phase, status.reason, status.rows_sealed) == ("Running", reasons.STORE_UNAVAILABLE, 10)
    assert status_after(at_work, down, down) == status


def test_what_a_person_must_change_stalls_the_write() -> None:
    status = status_after(Failed(reasons.MANIFEST_INVALID, "spec.sink: unknown", may_pass=False))

    assert (status.phase, status.reason) == ("Stalled", reasons.MANIFEST_INVALID)
    assert conditions(status) == {"Accepted": "False", "Stalled": "True", "Ready": "False", "Reconciling": "False"}


def test_a_deletion_that_waits_says_for_what() -> None:
    status = status_after(DeletionWaits(reasons.CATALOG_UNAVAILABLE, "the deletion waits: no answer"))

    assert (status.phase, status.reason) == ("Deleting", reasons.CATALOG_UNAVAILABLE)
    assert conditions(status) == {"Stalled": "True", "Ready": "False", "Reconciling": "False"}


def test_an_attempt_that_failed_is_an_event_of_the_round_that_shows_it_closed_and_of_no_other() -> None:
    failure = Failure("Retryable", reasons.DRIVER_OUT_OF_MEMORY, "more than 1 GiB")
    failed = (ended(Wait("the pause"), replace(CLOSED, failure=failure)), SOME)
    before = status_after((ended(Wait("the driver"), AT_WORK), SOME))
    after = status_after((ended(Wait("the driver"), AT_WORK), SOME), failed)

    assert warnings_between(before, after) == [("AttemptFailed", "attempt 1 (OOMKilled): more than 1 GiB")]
    assert warnings_between(after, status_after((ended(Wait("the driver"), AT_WORK), SOME), failed, failed)) == []


def test_a_stalled_write_names_the_command_of_its_reason_in_its_message_and_its_conditions() -> None:
    by_decision = status_after(ended(Stall(reasons.SCHEMA_CHANGED, "the column text is gone"), SEALED))
    by_error = status_after(Failed(reasons.MANIFEST_INVALID, "spec.steps: wrong", may_pass=False))
    by_deletion = status_after(DeletionWaits(reasons.CATALOG_UNAVAILABLE, "no answer"))

    for status, reason, message in (
        (by_decision, reasons.SCHEMA_CHANGED, "the column text is gone"),
        (by_error, reasons.MANIFEST_INVALID, "spec.steps: wrong"),
        (by_deletion, reasons.CATALOG_UNAVAILABLE, "no answer"),
    ):
        told = {condition.type: condition.message for condition in status.conditions or ()}
        assert status.message == f"{message} (more: checkpointed-write explain {reason})"
        assert told["Stalled"] == told["Ready"] == status.message
    assert {condition.type: condition.message for condition in by_error.conditions or ()}["Accepted"].endswith(
        "explain ManifestInvalid)"
    )


def test_what_passes_by_itself_names_its_command_too_and_a_word_without_one_does_not() -> None:
    waits = status_after(Failed(reasons.STORE_UNAVAILABLE, "no answer", may_pass=True))
    starts = status_after(ended(Wait("the driver"), AT_WORK))

    assert waits.message == "no answer (more: checkpointed-write explain StoreUnavailable)"
    assert "explain" not in (starts.message or "")


def test_a_long_message_is_cut_and_the_command_stays() -> None:
    status = status_after(ended(Stall(reasons.SCHEMA_CHANGED, "x" * 5000), SEALED))

    assert len(status.message or "") == 1024
    assert (status.message or "").endswith("... (more: checkpointed-write explain SchemaChanged)")


def landed(target: str = "db.rows", commit_id: int | None = 7, rows: int = 10) -> Round:
    """A round that has seen the commit. The record as it is, whoever has written it."""
    fields: dict[str, Any] = {
        "target": target,
        "commit_id": commit_id,
        "key": f"{OWNER.uid}/1",
        "rows_written": rows,
        "was_rolled_back": False,
    }
    record = CommitRecord.model_construct(**fields)
    return ended(Finish(), SEALED, commit=record)


COMMITTED = (landed(), SOME)


def test_a_write_is_ready_once_it_is_committed_and_at_work_until_then() -> None:
    asked, at_work = ended(StartDriver(1), RECORDED), (ended(Wait("the driver"), AT_WORK), SOME)
    committing = decided(Commit(1), SEALED)

    for outcomes in ((asked,), (asked, at_work), (asked, at_work, committing)):
        told = conditions(status_after(*outcomes))
        assert (told["Ready"], told["Reconciling"], told["Stalled"]) == ("False", "True", "False")
    told = conditions(status_after(asked, at_work, committing, COMMITTED))
    assert (told["Ready"], told["Reconciling"], told["Stalled"]) == ("True", "False", "False")


def test_a_committed_write_that_was_edited_is_not_ready_while_its_store_does_not_answer() -> None:
    edited = replace(OWNER, generation=OWNER.generation + 1)
    down = Failed(reasons.STORE_UNAVAILABLE, "no answer", may_pass=True)

    status = derive(Frame(status_after(COMMITTED), edited, LATER, spec_of()), down)

    assert (conditions(status)["Ready"], conditions(status)["Reconciling"]) == ("False", "True")


def test_each_step_of_a_write_is_one_normal_event() -> None:
    asked, at_work = ended(StartDriver(1), RECORDED), (ended(Wait("the driver"), AT_WORK), SOME)
    outcomes = (asked, at_work, at_work, decided(Commit(1), SEALED), decided(Commit(1), SEALED), COMMITTED, COMMITTED)
    statuses = [Status(), *(status_after(*outcomes[: number + 1]) for number in range(len(outcomes)))]

    told = [event for before, after in pairwise(statuses) for event in steps_between(before, after)]

    assert [reason for reason, _ in told] == ["Started", "Sealed", "Committed"]
    assert told[-1][1] == "10 rows of epoch 1 are in db.rows, version 7"


def test_an_epoch_without_rows_is_told_as_one_that_committed_nothing_and_names_no_version() -> None:
    none = Figures(Progress(1, 1, 1, 0, 0, 0, 0))
    outcomes = ((ended(Wait("the driver"), AT_WORK), none), (decided(Commit(1), SEALED), none), landed("db.rows", None, 0))
    statuses = [Status(), *(status_after(*outcomes[: number + 1]) for number in range(len(outcomes)))]

    told = [event for before, after in pairwise(statuses) for event in steps_between(before, after)]

    assert [reason for reason, _ in told] == ["Started", "Committed"]
    assert told[-1][1] == "epoch 1 had no rows, so nothing was committed to db.rows"


@pytest.mark.parametrize("may_pass", [True, False])
def test_a_status_fits_whatever_is_told(may_pass: bool) -> None:
    long = "x" * 1_000_000
    failure = Failure("Retryable", long, long)
    failed = (ended(Wait("the pause"), replace(CLOSED, failure=failure, code_digest=long)), SOME)
    too_many = Figures(Progress(1, 4, 1, 1 << 70, 1 << 70, 1 << 70, 1 << 70))
    committed = (landed(long, 1 << 80, 1 << 80), too_many)
    stalled = ended(Stall(long, long), SEALED)

    for outcomes in ((failed,), (committed,), (stalled,), (Failed(long, long, may_pass=may_pass),), (DeletionWaits(long, long),)):
        text = status_after(*outcomes).model_dump_json(by_alias=True, exclude_none=True)
        Status.model_validate_json(text)
        assert len(text) < 200_000
        assert "Other" in text or outcomes in ((failed,), (committed,))
