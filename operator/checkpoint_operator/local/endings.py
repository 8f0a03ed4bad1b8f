"""How a driver's process ended, in words: its exit code or signal, where its log is, and the last lines there."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

_TAIL_BYTES: Final = 4096
_LAST_LINES: Final = 3
_MOST_OF_A_LINE: Final = 300


def how_it_ended(code: int, log: Path) -> str:
    """Say how a process ended that has left no failure record; `code` is Popen's: negative for a signal."""
    if code == 0:
        how = "its driver ended with exit code 0, before all was sealed"
    elif code > 0:
        how = f"its driver ended with exit code {code} and did not say why"
    else:
        how = f"its driver was killed by {_name_of(-code)}"
    lines = _last_lines(log)
    said = f"; it ends with: {' | '.join(lines)}" if lines else ""
    return f"{how}; its log is {log}{said}"


def _name_of(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    if number == signal.SIGKILL:
        return f"{name} (by somebody, or by the kernel for want of memory: see driver.memory)"
    return name


def _last_lines(log: Path) -> list[str]:
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    lines = [" ".join(line.split())[:_MOST_OF_A_LINE] for line in text.splitlines()]
    return [line for line in lines if line][-_LAST_LINES:]
