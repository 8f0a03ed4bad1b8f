"""A queue of keys, each worked on by one worker at a time; and which writes have room in a namespace's memory.

As the work queues of Kubernetes' own controllers: what is added while a worker has the key is done again afterwards.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
#: Entries that an earlier time has replaced stay in the heap until they outnumber the keys, and this many more.
_SPARE_ENTRIES: Final = 64


@dataclass(slots=True)
class WorkQueue(Generic[_Key]):
    """Thread-safe. `due` of a key is the earliest time that it was asked for.

    Workers are shared fairly between groups of keys: of those that are due, the group with the fewest in hand comes first, and in
    it the key that is due earliest. No group has more in hand than `most_of_a_group`.

    Its memory follows the number of keys that wait, however often and however far ahead each was asked for.
    """

    clock: Callable[[], float] = time.monotonic
    group_of: Callable[[_Key], Hashable] = lambda key: None
    most_of_a_group: float = math.inf
    _due: dict[_Key, float] = field(default_factory=dict)
    _heaps: dict[Hashable, list[tuple[float, int, _Key]]] = field(default_factory=dict)
    _entries: int = 0
    _first: set[_Key] = field(default_factory=set)
    _taken: set[_Key] = field(default_factory=set)
    _in_hand: Counter[Hashable] = field(default_factory=Counter)
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
            self._push((due, self._count, key))
            if self._entries > 2 * len(self._due) + _SPARE_ENTRIES:
                self._rebuild()
            self._changed.notify()

    def take(self) -> _Key | None:
        """Wait for a key that is due and that nobody works on; None once the queue is closed."""
        with self._changed:
            while not self._is_closed:
                if (key := self._pop()) is not None:
                    self._taken.add(key)
                    self._in_hand[self.group_of(key)] += 1
                    return key
                self._changed.wait(self._patience())
            return None

    def done(self, key: _Key) -> None:
        """Give a key back."""
        with self._changed:
            self._taken.discard(key)
            group = self.group_of(key)
            self._in_hand[group] -= 1
            if not self._in_hand[group]:
                del self._in_hand[group]
            for entry in self._held.pop(key, ()):
                self._push(entry)
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
        best: tuple[int, float, int, Hashable] | None = None
        for group in list(self._heaps):
            in_hand = self._in_hand[group]
            if in_hand < self.most_of_a_group and (entry := self._head(group, now)) is not None:
                found = (in_hand, entry[0], entry[1], group)
                best = found if best is None else min(best, found, key=lambda item: item[:3])
        if best is None:
            return None
        _, _, key = self._take_head(best[3])
        del self._due[key]
        return key

    def _head(self, group: Hashable, now: float) -> tuple[float, int, _Key] | None:
        """Return the first entry of a group that is due and whose key is free."""
        while (heap := self._heaps.get(group)) and heap[0][0] <= now:
            entry = heap[0]
            due, _, key = entry
            if self._due.get(key) != due:
                self._take_head(group)
            elif key in self._taken:
                self._held.setdefault(key, []).append(self._take_head(group))
            else:
                return entry
        return None

    def _push(self, entry: tuple[float, int, _Key]) -> None:
        heapq.heappush(self._heaps.setdefault(self.group_of(entry[2]), []), entry)
        self._entries += 1

    def _take_head(self, group: Hashable) -> tuple[float, int, _Key]:
        heap = self._heaps[group]
        entry = heapq.heappop(heap)
        self._entries -= 1
        if not heap:
            del self._heaps[group]
        return entry

    def _rebuild(self) -> None:
        """Drop the entries that were replaced, those laid aside too. What is due at the same time keeps its order."""
        everything = [entry for entries in (*self._heaps.values(), *self._held.values()) for entry in entries]
        self._heaps.clear()
        self._held.clear()
        self._entries = 0
        for entry in everything:
            if self._due.get(entry[2]) == entry[0]:
                self._push(entry)

    def _patience(self) -> float | None:
        """Until the next entry is due, of a group that may have more in hand."""
        next_due = min(
            (heap[0][0] for group, heap in self._heaps.items() if self._in_hand[group] < self.most_of_a_group), default=None
        )
        return None if next_due is None else max(0.0, next_due - self.clock())


# Which writes of a namespace are kept where all of them would take too much memory: the oldest that have room together.
#
# Whoever makes more, or larger ones, displaces nobody's but their own namespace's, and of these no older one.


#: Of the writes of one namespace, as they are in memory: of usual ones, with their statuses, more than a thousand.
MOST_OF_A_NAMESPACE: Final = 32 << 20


class Rank(NamedTuple):
    """Less is earlier. What is being deleted comes before all others, so that its object can go."""

    stays: bool
    created: str
    name: str


def rank_of(body: Mapping[str, Any]) -> Rank:
    metadata = body["metadata"]
    return Rank(metadata.get("deletionTimestamp") is None, metadata.get("creationTimestamp") or "", metadata["name"])


@dataclass(slots=True)
class Share:
    """What is kept of one namespace: by name, its rank and weight. The same whatever the order in which writes become known."""

    most: int
    held: dict[str, tuple[Rank, int]] = field(default_factory=dict)
    total: int = 0
    #: The first that had no room: nor has any after it, until `open` says that there may be room again.
    _first_out: Rank | None = None

    def has_room(self, rank: Rank) -> bool:
        return self._first_out is None or rank < self._first_out

    def open(self) -> None:
        self._first_out = None

    def put(self, rank: Rank, weight: int) -> list[str]:
        """Hold a write that `has_room`; return the names of those that have to go for it, itself perhaps one of them."""
        self.drop(rank.name)
        self.held[rank.name] = (rank, weight)
        self.total += weight
        gone = []
        while self.total > self.most:
            last, _ = max(self.held.values())
            self.drop(last.name)
            self._first_out = last
            gone.append(last.name)
        return gone

    def drop(self, name: str) -> None:
        _, weight = self.held.pop(name, (None, 0))
        self.total -= weight
