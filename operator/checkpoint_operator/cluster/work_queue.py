"""A queue of keys: each key waits once, is worked on by one worker at a time, and may come back after a while.

As the work queues of Kubernetes' own controllers: what is added while a worker has the key is done again afterwards.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
#: Entries that an earlier time has replaced stay in the heap until they outnumber the keys, and this many more.
_SPARE_ENTRIES: Final = 64


@dataclass(slots=True)
class WorkQueue(Generic[_Key]):
    """Thread-safe. `due` of a key is the earliest time that it was asked for; of keys that are due, the earliest comes first.

    Its memory follows the number of keys that wait, however often and however far ahead each was asked for.
    """

    clock: Callable[[], float] = time.monotonic
    _due: dict[_Key, float] = field(default_factory=dict)
    _heap: list[tuple[float, int, _Key]] = field(default_factory=list)
    _first: set[_Key] = field(default_factory=set)
    _taken: set[_Key] = field(default_factory=set)
    _held: dict[_Key, list[tuple[float, int, _Key]]] = field(default_factory=dict)
    _count: int = 0
    _is_closed: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, key: _Key, after_s: float = 0.0, is_first: bool = False) -> None:
        """Have the key worked on, at the earliest after so long. An earlier time that was asked for stands.

        `is_first`: once its time is up, it comes before all that wait, however long they do. For very few keys.
        """
        with self._changed:
            if is_first:
                self._first.add(key)
            due = self.clock() + after_s
            if key in self._due and self._due[key] <= due:
                return
            self._due[key] = due
            self._count += 1
            heapq.heappush(self._heap, (due, self._count, key))
            if len(self._heap) > 2 * len(self._due) + _SPARE_ENTRIES:
                self._rebuild()
            self._changed.notify()

    def take(self) -> _Key | None:
        """Wait for a key that is due and that nobody works on; None once the queue is closed."""
        with self._changed:
            while not self._is_closed:
                if (key := self._pop()) is not None:
                    self._taken.add(key)
                    return key
                self._changed.wait(self._patience())
            return None

    def done(self, key: _Key) -> None:
        """Give a key back."""
        with self._changed:
            self._taken.discard(key)
            for entry in self._held.pop(key, ()):
                heapq.heappush(self._heap, entry)
            self._changed.notify()

    def close(self) -> None:
        """Let every worker come back with nothing."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def count_due(self) -> int:
        """Return how many keys wait for a worker now."""
        with self._changed:
            now = self.clock()
            return sum(due <= now for due in self._due.values())

    def _pop(self) -> _Key | None:
        """Take the first key that is due and free.

        Entries that an earlier time has replaced are dropped on the way; those of keys in hand are laid aside until `done`.
        """
        now = self.clock()
        for key in self._first - self._taken:
            if self._due.get(key, math.inf) <= now:
                del self._due[key]
                return key
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            due, _, key = entry
            if self._due.get(key) != due:
                continue
            if key in self._taken:
                self._held.setdefault(key, []).append(entry)
                continue
            del self._due[key]
            return key
        return None

    def _rebuild(self) -> None:
        """Drop the entries that were replaced, those laid aside too. What is due at the same time keeps its order."""
        laid_aside = (entry for entries in self._held.values() for entry in entries)
        self._heap = [entry for entry in (*self._heap, *laid_aside) if self._due.get(entry[2]) == entry[0]]
        self._held.clear()
        heapq.heapify(self._heap)

    def _patience(self) -> float | None:
        """Until the next entry is due."""
        return max(0.0, self._heap[0][0] - self.clock()) if self._heap else None
