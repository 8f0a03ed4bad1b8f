"""Whose turn it is to commit, where an operator makes only so many commits at once: each reads all its seals, and takes memory.

Advice for the loop: no safety rests on it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from checkpoint_operator.turns.waiting import Waiting
from checkpoint_operator.watch.cache import WriteName
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable


@dataclass(slots=True)
class CommitTurns:
    """Shared fairly between namespaces: the one with the fewest commits at work comes first, then who has waited longest.

    Thread-safe. `wake`: have a write reconciled, as there is a turn for it.
    """

    most: int
    clock: Callable[[], float]
    wake: Callable[[WriteName], None]
    _at_work: Counter[str] = field(default_factory=Counter)
    _waiting: Waiting = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._waiting = Waiting(self.clock)

    @contextmanager
    def take(self, key: WriteName) -> Iterator[None]:
        """Hold a turn. Retryable(CommitQueued) if it is that of others."""
        with self._lock:
            self._waiting.add(key)
            if key not in self._next():
                raise Retryable(reasons.COMMIT_QUEUED, "the operator is already making as many commits as it may at once")
            self._waiting.remove(key)
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
        at_work, found = Counter(self._at_work), list[WriteName]()
        waiting = dict(self._waiting.since())
        while waiting and at_work.total() < self.most:
            first = min(waiting, key=lambda key: (at_work[key.namespace], waiting[key]))
            del waiting[first]
            at_work[first.namespace] += 1
            found.append(first)
        return found
