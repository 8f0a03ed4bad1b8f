"""The one line that a run shows on a terminal, made to fit: what matters least goes first, and nothing is cut in its middle."""

from __future__ import annotations

from typing import Final

from checkpoint_control.progress.epoch_progress import Progress
from checkpoint_protocol.manifest.quantities import counted

#: The time at the end of the line, and the space before it.
TIME_COLUMNS: Final = 9
#: With a bar, which only a wide terminal has room for.
BAR_COLUMNS: Final = 20
BAR_FROM_WIDTH: Final = 100


def progress_line(counts: Progress, name: str, phase: str, rows_per_second: float, columns: int) -> str:
    """Return the longest of some texts that has at most so many columns; the shortest where none has."""
    attempt = f"attempt {counts.attempt}"
    tasks = [] if counts.tasks is None else [f"{counts.tasks_done:,}/{counts.tasks:,} tasks"]
    rows, rate = f"{counted(counts.rows_read, 'row')} sealed", f"{rows_per_second:,.0f} rows/s"
    texts = [
        "  ".join(parts)
        for parts in (
            [f"{name}, {attempt}{phase}", *tasks, rows, rate],
            [f"{name}, {attempt}{phase}", *tasks, rows],
            [f"{attempt}{phase}", *tasks, rows],
            [attempt, *tasks, rows],
            [*tasks, rows],
        )
    ]
    return next((text for text in texts if len(text) <= columns), texts[-1])
