"""The lines of `checkpointed-write run`: why an attempt ended is told at once, and once."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from checkpoint_operator.cli.commands.run import Display
from checkpoint_operator.core.actions import RecordAttempt, Wait
from checkpoint_operator.core.observation import Failure
from checkpoint_operator.local.runner import Report
from checkpoint_operator.loop.reconcile import Round
from checkpoint_operator.progress.epoch_progress import Progress
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from tests.support.stored_writes import StoredWrite
from tests.unit.decision.test_rules import closed, seen

OUT = Failure("Retryable", reasons.SERVICE_UNAVAILABLE, "the service is out")


def lines(tmp_path: Path, *actions: RecordAttempt | Wait) -> list[str]:
    """Return what is told of rounds that each see one closed attempt, and do this."""
    shown = io.StringIO()
    console = Console(file=shown, width=200, highlight=False)
    observed = seen(closed(1, failure=OUT))
    with Display(console, StoredWrite(tmp_path).manifest) as display:
        for action in actions:
            progress = Progress(1, None, 0, 0, 0, 0, 0)
            display.report(Report(Round(EpochKey("ab" * 16, 1), observed, (action,)), progress))
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
