"""Whose turn it is to commit, where an operator makes only so many commits at once: each reads all its seals, and takes memory.

Advice for the loop: no safety rests on it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from checkpoint_operator.cluster.cache import WriteName
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable

#: Who waits asks again within a minute and a half; who has not asked for so long does not wait any more.
_FORGOTTEN_AFTER_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class _Waiting:
    since_s: float
    asked_s: float


@dataclass(slots=True)
class CommitTurns:
    """Shared fairly between namespaces: the one with the fewest commits at work comes first, then who has waited longest.

    Thread-safe. `wake`: have a write reconciled, as there is a turn for it.
    """

    most: int
    clock: Callable[[], float]
    wake: Callable[[WriteName], None]
    _at_work: Counter[str] = field(default_factory=Counter)
    _waiting: dict[WriteName, _Waiting] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def take(self, key: WriteName) -> Iterator[None]:
        """Hold a turn. Retryable(CommitQueued) if it is that of others."""
        with self._lock:
            now = self.clock()
            known = self._waiting.get(key)
            self._waiting[key] = _Waiting(known.since_s if known is not None else now, now)
            if key not in self._next():
                raise Retryable(reasons.COMMIT_QUEUED, "as many commits as the operator may make at once are at work")
            del self._waiting[key]
            self._at_work[key.namespace] += 1
        try:
            yield
        finally:
            with self._lock:
                self._at_work[key.namespace] -= 1
                woken = self._next()
            for waiting in woken:
                self.wake(waiting)

    def _next(self) -> list[WriteName]:
        """Return the writes that have a turn now, of those that wait."""
        now = self.clock()
        self._waiting = {key: it for key, it in self._waiting.items() if now - it.asked_s < _FORGOTTEN_AFTER_S}
        at_work, found = Counter(self._at_work), list[WriteName]()
        waiting = dict(self._waiting)
        while waiting and at_work.total() < self.most:
            first = min(waiting, key=lambda key: (at_work[key.namespace], waiting[key].since_s))
            del waiting[first]
            at_work[first.namespace] += 1
            found.append(first)
        return found
