"""When a segment ends, and how long a driver may seal nothing before it is given up. Pure; all in seconds and bytes.

One place, because the two depend on each other: a deadline below what a seal may take ends attempts in which every task is at
work. Used by the tasks, by the manifest (which refuses such a deadline) and by the operator's rules.
"""

from __future__ import annotations

from typing import Final

#: A crash costs no more than this part of the time that a task has been at work, or one interval, if that is longer. A smaller
#: part costs less and makes more small files: of ten hours at the default interval, about a hundred.
PART_OF_WORK: Final = 20
#: And no more than so many intervals, however long the task has been at work: a driver that seals nothing is given up.
MOST_INTERVALS: Final = 10
#: A driver gets the time of so many seals: rows are not equally slow, and Spark has to start before the first.
_SEALS_OF_PATIENCE: Final = 2
#: The least that is derived, however short the interval is: pods are scheduled, images pulled and inputs listed in it.
_LEAST_DERIVED_S: Final = 600.0


def is_due(
    age_s: float,
    at_work_s: float,
    size_bytes: int,
    interval_s: float,
    minimum_bytes: int,
    rows: int = 0,
    maximum_rows: int | None = None,
    following_s: float = 0.0,
) -> bool:
    """Whether a segment should end: it is old and large enough, or would have more rows than may be lost at once.

    `at_work_s`: how long this try of the task has been at work, with the segment. `rows`: as many as it had with what follows,
    which takes about `following_s`.

    Or so old that its size does not matter: hours of a slow step's work fit a small file.
    """
    if maximum_rows is not None and rows > maximum_rows:
        return True
    limit_s = interval_s if size_bytes >= minimum_bytes else longest_segment_s(at_work_s, interval_s)
    return age_s >= limit_s or age_s + following_s > limit_s


def longest_segment_s(at_work_s: float, interval_s: float) -> float:
    """Return after how long a segment is due, whatever its size: what a crash can cost a task."""
    return min(max(interval_s, at_work_s / PART_OF_WORK), MOST_INTERVALS * interval_s)


def least_progress_deadline_s(interval_s: float, minimum_bytes: int) -> float:
    """Return the shortest deadline that a healthy attempt can keep: twice what a segment may take until it is due."""
    intervals = MOST_INTERVALS if minimum_bytes > 0 else 1
    return _SEALS_OF_PATIENCE * intervals * interval_s


def derived_progress_deadline_s(interval_s: float, minimum_bytes: int) -> float:
    """Return the deadline of a manifest that says none."""
    return max(_LEAST_DERIVED_S, least_progress_deadline_s(interval_s, minimum_bytes))
