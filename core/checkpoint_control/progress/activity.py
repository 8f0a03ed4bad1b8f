"""What a driver is at, how far it is and how long that may still take, in words. For people; no rule rests on it.

Called by the command line and by the cluster's controller. The time left is measured by the clock of who asks, and by no other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from checkpoint_control.progress.epoch_progress import Progress
from checkpoint_protocol.manifest.quantities import counted

#: What running tasks have in hand is told every ten seconds: a rate over less says nothing.
_LEAST_S: Final = 20.0
_OVER_S: Final = 180.0
_LEAST_STEP_S: Final = 1.0
_DECIMAL: Final = ("", "k", "M", "G", "T", "P", "E")
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


@dataclass(slots=True)
class TimeLeft:
    """Measures how fast the positions of an attempt are done, over the last minutes."""

    _attempt: int = 0
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def measure(self, now_s: float, progress: Progress) -> float | None:
        """Return how many seconds are left if it goes on as it did; None while that cannot be known."""
        if progress.attempt != self._attempt or not is_running(progress):
            # Planning and starting Spark are no part of the rate.
            self._attempt = progress.attempt
            self._seen.clear()
        if progress.positions_known is None or not is_running(progress):
            return None
        done = progress.positions_done
        if not self._seen or now_s - self._seen[-1][0] >= _LEAST_STEP_S:
            self._seen.append((now_s, done))
        while len(self._seen) > 2 and now_s - self._seen[0][0] > _OVER_S:
            self._seen.popleft()
        first_s, first = self._seen[0]
        if now_s - first_s < _LEAST_S or done <= first:
            return None
        return max(0, progress.positions_known - done) * (now_s - first_s) / (done - first)


def is_running(progress: Progress) -> bool:
    """Whether tasks are at work, as far as can be told: a driver that says nothing has sealed something."""
    if progress.tasks is None or progress.tasks_done == progress.tasks:
        return False
    if progress.phase is None:
        return progress.rows_read > progress.rows_taken_over
    return progress.phase == "RunningTasks"


def describe(progress: Progress, left_s: float | None = None) -> str:
    """Say what the driver of the latest attempt is at."""
    if progress.tasks is not None and progress.tasks_done == progress.tasks:
        return "all tasks are sealed"
    if progress.tasks is None and progress.phase == "AwaitingRows":
        return "awaiting rows"
    if not is_running(progress):
        return "starting Spark" if progress.tasks is not None or progress.phase == "StartingSpark" else "planning"
    share = share_of(progress)
    rows = progress.rows_read + progress.rows_in_hand
    if share is not None and progress.unit == "rows":
        done = f"{progress.positions_done:,} of {progress.positions_known:,} rows ({share:.0%})"
    elif share is not None:
        done = f"{counted(rows, 'row')}, {how_far(progress)} of the input ({share:.0%})"
    else:
        done = counted(rows, "row")
    in_hand = f", {progress.rows_in_hand:,} of them not sealed yet" if progress.rows_in_hand else ""
    calls = f"; {counted(progress.calls_in_flight, 'call')} in flight" if progress.calls_in_flight else ""
    again = f", {progress.tries_again:,} made again" if progress.tries_again else ""
    left = f"; about {time_text(left_s)} left" if left_s is not None else ""
    return f"tasks running: {done}{in_hand}{calls}{again}{left}"


def share_of(progress: Progress) -> float | None:
    """Return how much of the input is done, from 0 to 1; None where it is not known how much there is."""
    if not progress.positions_known:
        return None
    return min(1.0, progress.positions_done / progress.positions_known)


def how_far(progress: Progress) -> str | None:
    """Return briefly how much of the input is done, and of how much: "1.23M/10M" rows, or "3.44Gi/12Gi" where bytes are counted.

    Where it is not known how much there is, the source rows that are done: "1.23M"; None before anything is known. Without a
    space, as it is a column of kubectl, which people cut at spaces. It moves while a long task has sealed nothing, since what is
    in hand is counted. Nothing is rounded up: what is not done is not said.
    """
    known = progress.positions_known
    if known is None:
        is_silent = progress.tasks is None and not progress.rows_read
        return None if is_silent else _short(progress.rows_read + progress.rows_in_hand, 1000, _DECIMAL)
    base, suffixes = (1024, _BINARY) if progress.unit == "bytes" else (1000, _DECIMAL)
    done = min(progress.positions_done, known)
    text = f"{_short(done, base, suffixes)}/{_short(known, base, suffixes)}"
    return f"{text}B" if progress.unit == "bytes" and known < base else text


def _short(count: int, base: int, suffixes: Sequence[str]) -> str:
    """Return a count with three digits and a suffix of Kubernetes' quantities, what is beyond them cut off."""
    power = 0
    while power + 1 < len(suffixes) and count >= base ** (power + 1):
        power += 1
    whole = count // base**power
    decimals = 0 if power == 0 or whole >= 100 else 1 if whole >= 10 else 2
    cut = count * 10**decimals // base**power
    text = f"{cut // 10**decimals}.{cut % 10**decimals:0{decimals}d}".rstrip("0").rstrip(".") if decimals else str(cut)
    return f"{text}{suffixes[power]}"


def time_text(seconds: float) -> str:
    """Return a time for people, no finer than it is known."""
    if seconds < 90:
        return f"{max(10, round(seconds / 10) * 10)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"
