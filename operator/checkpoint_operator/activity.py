"""What a driver is at, how far it is and how long that may still take, in words. For people; no rule rests on it.

Called by the command line and by the cluster's controller. The time left is measured by the clock of who looks, and by no other.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from checkpoint_operator.progress import Progress

#: What running tasks have in hand is told every ten seconds: a rate over less says nothing.
_LEAST_S: Final = 20.0
_OVER_S: Final = 180.0
_LEAST_STEP_S: Final = 1.0


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
    if not is_running(progress):
        return "starting Spark" if progress.tasks is not None or progress.phase == "StartingSpark" else "planning"
    share = share_of(progress)
    rows = progress.rows_read + progress.rows_in_hand
    if share is not None and progress.unit == "rows":
        how_far = f"{progress.positions_done:,} of {progress.positions_known:,} rows ({share:.0%})"
    elif share is not None:
        how_far = f"{rows:,} rows, {share:.0%} of the input"
    else:
        how_far = f"{rows:,} rows"
    in_hand = f", {progress.rows_in_hand:,} of them not sealed yet" if progress.rows_in_hand else ""
    left = f"; about {time_text(left_s)} left" if left_s is not None else ""
    return f"tasks running: {how_far}{in_hand}{left}"


def share_of(progress: Progress) -> float | None:
    """Return how much of the input is done, from 0 to 1; None where it is not known how much there is."""
    if not progress.positions_known:
        return None
    return min(1.0, progress.positions_done / progress.positions_known)


def time_text(seconds: float) -> str:
    """Return a time for people, no finer than it is known."""
    if seconds < 90:
        return f"{max(10, round(seconds / 10) * 10)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"
