"""Whose turn it is, where only so many may go at once: drivers of a namespace, commits of an operator."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from checkpoint_operator.watch.cache import WriteName
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable

_FORGOTTEN_AFTER_S: Final = 120.0


@dataclass(slots=True)
class Waiting:
    """Not thread-safe: used under the lock of the turns."""

    clock: Callable[[], float]
    _since: dict[WriteName, float] = field(default_factory=dict)
    _last_request: dict[WriteName, float] = field(default_factory=dict)

    def add(self, key: WriteName) -> None:
        """Note a request. A later one of the same write does not lose its place."""
        self._forget()
        self._since.setdefault(key, self.clock())
        self._last_request[key] = self.clock()

    def remove(self, key: WriteName) -> None:
        del self._since[key], self._last_request[key]

    def since(self) -> Mapping[WriteName, float]:
        """Return when each write that waits has asked first, the earliest first."""
        self._forget()
        return self._since

    def _forget(self) -> None:
        now = self.clock()
        for key in [key for key, at in self._last_request.items() if now - at >= _FORGOTTEN_AFTER_S]:
            self.remove(key)


# Whose turn it is to start a driver, where a namespace may have only so many at once.
#
# Drivers that hold all the places of a quota or a node leave none to their executors. Advice for the loop: no safety rests on it,
# and after a restart of the operator the queue is made anew from whoever asks.


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


# Whose turn it is to commit, where an operator makes only so many commits at once: each reads all its seals, and takes memory.
#
# Advice for the loop: no safety rests on it.


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
