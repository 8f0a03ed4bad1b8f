"""Whose turn it is to start a driver, where a namespace may have only so many at once.

Drivers that hold all the places of a quota or a node leave none to their executors. Advice for the loop: no safety rests on it,
and after a restart of the operator the queue is made anew from whoever asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from checkpoint_operator.turns.waiting import Waiting
from checkpoint_operator.watch.cache import WriteName

#: A turn that was given is used at once, or not at all.
_UNUSED_AFTER_S: Final = 30.0


@dataclass(slots=True)
class DriverTurns:
    """First come, first served, in each namespace. Thread-safe.

    `most`: drivers at once in a namespace; 0: as many as are asked for. `at_work`: the writes of a namespace that have a driver's
    pod that has not ended.
    """

    most: int
    at_work: Callable[[str], set[WriteName]]
    clock: Callable[[], float]
    _waiting: Waiting = field(init=False)
    _given: dict[WriteName, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._waiting = Waiting(self.clock)

    def request(self, key: WriteName) -> int | None:
        """Return how many writes come before this one; None if it is its turn, which it then has."""
        if self.most == 0:
            return None
        with self._lock:
            self._waiting.add(key)
            before = self._queue(key.namespace).index(key)
            if before >= self._free(key):
                return before
            self._waiting.remove(key)
            self._given[key] = self.clock()
            return None

    def next_of(self, namespace: str) -> WriteName | None:
        """Return the write that is to be woken, as there is a free place for it."""
        if self.most == 0:
            return None
        with self._lock:
            first = next(iter(self._queue(namespace)), None)
            return first if first is not None and self._free(first) > 0 else None

    def _queue(self, namespace: str) -> list[WriteName]:
        return [key for key in self._waiting.since() if key.namespace == namespace]

    def _free(self, key: WriteName) -> int:
        now = self.clock()
        self._given = {known: given for known, given in self._given.items() if now - given < _UNUSED_AFTER_S}
        taken = self.at_work(key.namespace) | {known for known in self._given if known.namespace == key.namespace}
        return self.most - len(taken - {key})
