"""A pytest plugin: writes the names of tests that failed, a line each, into the file of $CHECKPOINTED_WRITES_FAILED."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

VARIABLE: Final = "CHECKPOINTED_WRITES_FAILED"


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Called once, in the process that hears of the results of all others."""
    reports = [*terminalreporter.stats.get("failed", ()), *terminalreporter.stats.get("error", ())]
    names = dict.fromkeys(report.nodeid for report in reports if "::" in report.nodeid)
    Path(os.environ[VARIABLE]).write_text("".join(f"{name}\n" for name in names))
