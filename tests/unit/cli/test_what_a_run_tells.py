"""The lines of `checkpointed-write run`: why an attempt ended is told at once, and once; what becomes of each stage."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from checkpoint_control.decision.actions import BeginStage, Close, Finish, RecordAttempt, Stall, Wait
from checkpoint_control.decision.observation import Failure
from checkpoint_control.loop.reconcile import Round
from checkpoint_control.pipelines.decisions import Cause, Decision, What
from checkpoint_control.progress.epoch_progress import Progress
from checkpoint_local.cli.commands.run import Display
from checkpoint_local.runner import Report
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from tests.support.stored_writes import StoredWrite
from tests.unit.decision.observations import at_work, closed, seen

OUT = Failure("Retryable", reasons.SERVICE_UNAVAILABLE, "the service is out")


KEY = EpochKey("ab" * 16, 1)
WASH = f"wash-{'0' * 16}-1"
NOTHING = Progress(1, None, 0, 0, 0, 0, 0)
COOK = Decision("cook", "begin", "", 1, "")


def lines(tmp_path: Path, *actions: RecordAttempt | Wait | Close) -> list[str]:
    """Return what is told of rounds that each see one closed attempt, and do this."""
    return lines_of(tmp_path, *(Round(KEY, seen(closed(1, failure=OUT)), (action,)) for action in actions))


def lines_of(tmp_path: Path, *rounds: Round, progress: Progress = NOTHING) -> list[str]:
    shown = io.StringIO()
    console = Console(file=shown, width=200, highlight=False)
    with Display(console, StoredWrite(tmp_path).manifest) as display:
        for done in rounds:
            display.report(Report(done, progress))
    return shown.getvalue().splitlines()


def test_why_an_attempt_ended_is_told_while_the_next_one_is_waited_for_and_not_again_when_it_begins(tmp_path: Path) -> None:
    pause = Wait("the pause before attempt 2", OUT)

    assert lines(tmp_path, pause, pause, RecordAttempt(2, (1,))) == [
        "attempt 1 said: the service is out; the next attempt begins after a pause",
        "attempt 2 begins",
    ]


@pytest.mark.parametrize("before", [[], [Wait("its driver to end")]], ids=["at once", "after a wait for something else"])
def test_where_there_is_no_pause_it_is_told_when_the_next_one_begins(tmp_path: Path, before: list[Wait]) -> None:
    assert lines(tmp_path, *before, RecordAttempt(2, (1,))) == ["attempt 1 said: the service is out", "attempt 2 begins"]


def test_the_failure_of_an_attempt_is_told_in_each_stage(tmp_path: Path) -> None:
    again = RecordAttempt(2, (1,))
    failed = seen(closed(1, failure=OUT))

    told = lines_of(tmp_path, Round(KEY.of_stage(WASH), failed, (again,)), Round(KEY, failed, (again,)))

    said = "attempt 1 said: the service is out"
    assert told == [said, "attempt 2 of stage wash begins", said, "attempt 2 begins"]


@pytest.mark.parametrize(
    ("what", "because", "line"),
    [
        ("begin", (), "the stage wash begins"),
        ("continue", (), "the stage wash continues with the rows that are left"),
        ("redo", ("arguments",), "the stage wash is repeated: the definition of its steps has changed"),
        ("redo", ("reset",), "the stage wash is repeated: spec.reset asks for it"),
        (
            "redo",
            ("code",),
            "the stage wash is repeated: its code has changed",
        ),
    ],
)
def test_what_becomes_of_a_stage_is_told_with_the_reason(
    what: What, because: tuple[Cause, ...], line: str, tmp_path: Path
) -> None:
    wash = Decision("wash", what, WASH, 1, "", because)

    assert lines_of(tmp_path, Round(KEY, seen(), (BeginStage(WASH, is_before=True),), stages=(wash, COOK))) == [line]


def test_that_the_last_stage_begins_or_is_repeated_is_told_once(tmp_path: Path) -> None:
    redone = replace(COOK, what="redo", because=("upstream",))
    goes_on = replace(COOK, what="continue")
    rounds = [
        Round(KEY, seen(), (RecordAttempt(number, ()),), stages=(last,))
        for number, last in enumerate((COOK, COOK, redone, goes_on), start=1)
    ]

    assert lines_of(tmp_path, *rounds) == [
        "the stage cook begins",
        "attempt 2 begins",
        "the stage cook is repeated: its input is computed again",
        "attempt 3 begins",
        "attempt 4 begins",
    ]


def test_that_rows_fail_is_told_once_while_there_is_work_and_not_of_a_write_that_is_done(tmp_path: Path) -> None:
    progress = Progress(1, 4, 1, 10, 9, 1, 0, rows_failed=1)
    at_work = Round(KEY, seen(), (Wait("the driver"),))
    done = Round(KEY, seen(), (Finish(),))

    told = lines_of(tmp_path, at_work, at_work, done, progress=progress)
    assert [line for line in told if "fail" in line] == ["rows fail and are quarantined; the others go on"]
    assert lines_of(tmp_path, done, progress=progress) == []


@pytest.mark.parametrize(
    ("close", "told"),
    [
        (Close(1, "all its tasks are sealed", is_done=True), []),
        (Close(1, "its driver is gone"), ["attempt 1 is closed: its driver is gone"]),
        (
            Close(1, "its driver on another machine has sealed nothing for 601 s"),
            ["attempt 1 is closed: its driver on another machine has sealed nothing for 601 s"],
        ),
    ],
)
def test_that_an_attempt_is_given_up_is_told_and_that_it_is_done_is_not(tmp_path: Path, close: Close, told: list[str]) -> None:
    assert lines(tmp_path, close) == told


OTHERS = "the others are of other code, or were read with other options, and are computed again"


def progress(rows: int) -> Progress:
    return replace(NOTHING, rows_read=rows)


FOUND = Round(KEY, seen(at_work()), (Close(1, "its driver has ended"),))
RECORDED = Round(KEY, seen(closed(1)), (RecordAttempt(2, (1,)),))


@pytest.mark.parametrize(
    ("rounds", "told"),
    [
        ([(FOUND, 500), (RECORDED, 500)], "resuming: 500 rows are sealed already and will not be computed again"),
        (
            [(FOUND, 500), (RECORDED, 120)],
            f"resuming: 120 of 500 sealed rows are kept; {OTHERS}",
        ),
        ([(FOUND, 500), (Round(KEY, seen(closed(1)), (Stall(reasons.CODE_CHANGED, "approve"),)), 500)], None),
        (
            [(Round(KEY, seen(at_work()), (Wait("its driver"),)), 7)],
            "resuming: 7 rows are sealed already and will not be computed again",
        ),
        ([(Round(KEY, seen(closed(1)), (Wait("the pause before attempt 2", OUT),)), 7)], None),
        ([(Round(KEY, seen(), (RecordAttempt(1, ()),)), 0)], None),
    ],
    ids=["all are kept", "some are dropped", "a person is asked", "an attempt is at work", "not decided yet", "nothing is there"],
)
def test_what_becomes_of_sealed_rows_is_told_when_it_is_decided(
    tmp_path: Path, rounds: list[tuple[Round, int]], told: str | None
) -> None:
    """Said before, it would promise what onCodeChange: Restart does not keep."""
    shown = io.StringIO()
    with Display(Console(file=shown, width=200, highlight=False), StoredWrite(tmp_path).manifest) as display:
        for done, rows in rounds:
            display.report(Report(done, progress(rows)))

    said = [line for line in shown.getvalue().splitlines() if line.startswith("resuming")]
    assert said == ([told] if told is not None else [])
