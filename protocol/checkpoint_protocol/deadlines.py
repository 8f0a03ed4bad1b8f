"""When a segment ends, and how long a driver may seal nothing before it is given up. Pure; all in seconds and bytes.

One place, because the two depend on each other: a deadline below what a seal may take ends attempts in which every task is at
work. Used by the tasks, by the manifest (which refuses such a deadline) and by the operator's rules.
"""

from __future__ import annotations

from typing import Final

#: After so many intervals a segment ends although its output is small.
SMALL_SEGMENT_INTERVALS: Final = 10
#: A driver gets the time of so many seals: rows are not equally slow, and Spark has to start before the first.
_SEALS_OF_PATIENCE: Final = 2
#: The least that is derived, however short the interval is: pods are scheduled, images pulled and inputs listed in it.
_LEAST_DERIVED_S: Final = 600.0


def is_due(
    age_s: float, size_bytes: int, interval_s: float, minimum_bytes: int, rows: int = 0, maximum_rows: int | None = None
) -> bool:
    """Whether a segment should end: it is old and large enough, or would have more rows than may be lost at once.

    `rows`: as many as it had with what follows.

    Or so old that its size no longer matters: hours of a slow step's work fit a small file.
    """
    if maximum_rows is not None and rows > maximum_rows:
        return True
    return age_s >= interval_s * (1 if size_bytes >= minimum_bytes else SMALL_SEGMENT_INTERVALS)


def least_progress_deadline_s(interval_s: float, minimum_bytes: int) -> float:
    """Return the shortest deadline that a healthy attempt can keep: twice what a segment may take until it is due."""
    intervals = SMALL_SEGMENT_INTERVALS if minimum_bytes > 0 else 1
    return _SEALS_OF_PATIENCE * intervals * interval_s


def derived_progress_deadline_s(interval_s: float, minimum_bytes: int) -> float:
    """Return the deadline of a manifest that says none."""
    return max(_LEAST_DERIVED_S, least_progress_deadline_s(interval_s, minimum_bytes))
