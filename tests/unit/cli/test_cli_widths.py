"""Terminals of 80 columns and of 60: nothing is cut off, broken inside a word, or said of what is not known."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import rich.progress
from rich.console import Console

from checkpoint_control.progress.epoch_progress import Progress
from checkpoint_control.views.inspection import inspect_store
from checkpoint_local.cli.commands import inspect as inspecting
from checkpoint_local.cli.commands.run import Display
from checkpoint_local.runner import Report
from tests.support.stored_writes import StoredWrite

WIDTHS = (60, 80, 100, 200)


def terminal(width: int) -> tuple[Console, io.StringIO]:
    shown = io.StringIO()
    console = Console(file=shown, width=width, force_terminal=True, color_system=None, highlight=False)
    return console, shown


def bars(tmp_path: Path, width: int, *counts: Progress) -> list[str]:
    """Return each picture of the bar of a run."""
    console, shown = terminal(width)
    with Display(console, StoredWrite(tmp_path).manifest) as display:
        for one in counts:
            display.report(Report(None, one))
            assert isinstance(display._bar, rich.progress.Progress)
            display._bar.refresh()
    return [line for line in re.split(r"[\r\n]", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", shown.getvalue())) if line.strip()]


STAGES = {
    "planning": Progress(1, None, 0, 0, 0, 0, 0),
    "starting": Progress(1, 1_000, 0, 0, 0, 0, 0),
    "at work": Progress(12, 100_000, 12_345, 123_456_789_012, 0, 0, 0),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("stage", STAGES)
def test_the_bar_of_a_run_fits_ends_with_the_time_and_cuts_nothing(tmp_path: Path, width: int, stage: str) -> None:
    for line in bars(tmp_path, width, STAGES["planning"], STAGES[stage]):
        assert len(line) <= width
        assert "None" not in line
        assert "\N{HORIZONTAL ELLIPSIS}" not in line
        assert re.search(r"\d:\d\d:\d\d$", line.rstrip()), line


@pytest.mark.parametrize("width", WIDTHS)
def test_the_bar_tells_tasks_and_rows_at_any_width(tmp_path: Path, width: int) -> None:
    line = bars(tmp_path, width, STAGES["at work"])[-1]

    assert "12,345/100,000 tasks" in line
    assert "123,456,789,012 rows sealed" in line


def inspected(tmp_path: Path, width: int) -> list[str]:
    write = StoredWrite(tmp_path)
    write.begin()
    write.launch()
    write.plan()
    write.seal(0)
    write.fail("Retryable", "DriverFailed", "its driver was killed by SIGKILL (by somebody, or by the kernel for want of memory)")
    write.close()
    write.launch(2, (1,))
    write.plan(2)
    write.seal(1, attempt=2)
    shown = io.StringIO()
    # As `inspect` prints: long lines are left to the terminal, which breaks none of ours.
    console = Console(file=shown, width=width, force_terminal=True, color_system=None, highlight=False, soft_wrap=True)
    inspecting._print(console, inspect_store(write.store))
    return shown.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 100])
def test_attempts_are_told_whole_where_their_table_does_not_fit(tmp_path: Path, width: int) -> None:
    text = "\n".join(inspected(tmp_path, width))

    assert "attempt 1, code dddddddddddd: closed, incomplete; DriverFailed: its driver was killed by SIGKILL" in text
    assert "1 of 2 tasks, 1 seal, 10 rows read, 10 written, 1 file, 100 B" in text
    assert "attempt 2, code dddddddddddd: open; takes over 1" in text
    assert "all that counts: 2 seals, 20 rows read, 20 written, 2 files, 200 B" in text


def test_attempts_are_a_table_where_it_fits(tmp_path: Path) -> None:
    header = next(line for line in inspected(tmp_path, 250) if "rows written" in line)

    assert header.split() == ["attempt", "code", "tasks", "seals", "rows", "read", "rows", "written", "files", "size", "state"]
