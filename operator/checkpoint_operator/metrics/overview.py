"""How many writes are in which phase, and since when, for the metrics."""

from __future__ import annotations

import datetime

from checkpoint_operator.status.object_status import status_of
from checkpoint_operator.watch.cache import Cache


def ages_by_phase(cache: Cache, now_s: float) -> dict[str, tuple[int, float]]:
    """Return for each phase the number of writes and the age in seconds of the one that is longest in it."""
    found: dict[str, tuple[int, float]] = {}
    for name in cache.write_names():
        body = cache.write(name)
        if body is None:
            continue
        status = status_of(body)
        since = max((condition.last_transition_time for condition in status.conditions or ()), default=None)
        since = since or body["metadata"].get("creationTimestamp")
        age_s = max(0.0, now_s - datetime.datetime.fromisoformat(since).timestamp()) if since else 0.0
        phase = status.phase or "Pending"
        number, oldest = found.get(phase, (0, 0.0))
        found[phase] = (number + 1, max(oldest, age_s))
    return found
