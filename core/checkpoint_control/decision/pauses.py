"""How long is waited between attempts. Pure."""

from __future__ import annotations

from typing import Final

_PAUSE_AFTER_PROGRESS_S: Final = 1.0
_FIRST_PAUSE_S: Final = 10.0
_MOST_PAUSE_S: Final = 300.0
_FIRST_RETRY_S: Final = 300.0
_MOST_RETRY_S: Final = 3600.0


def pause_after(failures: int) -> float:
    """Return the seconds between an attempt and the next: 10, 20, 40 ... 300, as for the pods of a Kubernetes Job.

    `failures`: attempts in a row that sealed nothing. At 0 the last one has sealed something (or does not count), and the next
    follows almost at once: of attempts that bring the end nearer there are no more than there is work.
    """
    if failures == 0:
        return _PAUSE_AFTER_PROGRESS_S
    return min(_MOST_PAUSE_S, _FIRST_PAUSE_S * float(1 << min(failures - 1, 10)))


def retry_after(failures: int) -> float:
    """Return the seconds until what failed by something outside is tried again: 5, 10, 20, 40, 60, 60 ... minutes."""
    return min(_MOST_RETRY_S, _FIRST_RETRY_S * float(1 << min(max(failures, 1) - 1, 10)))
