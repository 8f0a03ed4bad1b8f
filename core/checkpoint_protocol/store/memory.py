"""Memory for what a process reads from stores: one budget for all of its readers, however many writes it looks after.

An object is held twice: as its bytes, from when the store has told its size, and as what they are decoded to. Each has a pool of
its own, and whoever waits for the second holds nothing that another waits for there, so that nobody waits for ever:

    with reading():
        data = store.get(path, most_bytes)      waits for room for the bytes, before it reads them
        record = decode(model, data, where)     waits for room for the record
                                                here both are given back

Metadata of tables have a pool of their own. What a library makes of them lives for as long as a thread works on a write, so that
it is held for that long:

    with turn(budget):
        hold_table(size)                        waits for room for what a file of metadata is decoded to

A process without a budget, as on one machine, waits for nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

#: Memory for each byte of a record, and besides for each of these characters in it: objects with fields, lists, and values. From
#: the peak of decoding records that are made of nothing else; see tests/contract/test_memory_of_records.py.
_BYTE: Final = 2
_CHARACTERS: Final = ((b"{", 640), (b"[", 260), (b",", 64))
#: The same of a small record, which may also be wrong in a way that takes more.
SMALL_BYTES: Final = 64 << 10
_BYTE_OF_SMALL: Final = 512

_ARCHIVES_BYTES: Final = 64 << 20
_LARGE_ARCHIVES_BYTES: Final = 256 << 20

#: What becomes of a record is kept between the rounds of a write if it takes no more than this.
_KEPT_BYTES: Final = 32 << 20


def memory_to_decode(data: bytes) -> int:
    """Return about how many bytes of memory decoding a record takes at its peak, and at the most."""
    if len(data) <= SMALL_BYTES:
        return len(data) * _BYTE_OF_SMALL
    return len(data) * _BYTE + sum(data.count(character) * each for character, each in _CHARACTERS)


class MemoryBudget:
    """So many bytes of memory for what is read and not yet let go, by all threads of a process."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.stored = Pool(most_bytes // 4)
        self.decoded = Pool(most_bytes - most_bytes // 4)
        self.tables = Pool(most_bytes)
        #: Archives of code are no records, and may be on their way for long. Large ones do not hold up the others.
        self._archives, self._large_archives = Pool(_ARCHIVES_BYTES), Pool(_LARGE_ARCHIVES_BYTES)

    @contextmanager
    def room_for_archive(self, size_bytes: int) -> Iterator[None]:
        """Wait for room for an archive of code, and hold it in the body."""
        pool = self._archives if size_bytes <= _ARCHIVES_BYTES // 4 else self._large_archives
        taken = pool.take(size_bytes)
        try:
            yield
        finally:
            pool.give_back(taken)


class Pool:
    """A semaphore of bytes. Those who wait get theirs in the order in which they came: many small ones stop no large one."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._taken = 0
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    def take(self, size_bytes: int) -> int:
        """Wait for so much, and return how much to give back. What is larger than the pool waits until it is alone."""
        wanted, me = min(size_bytes, self.most_bytes), object()
        with self._changed:
            self._waiting.append(me)
            try:
                while self._waiting[0] is not me or self._taken + wanted > self.most_bytes:
                    self._changed.wait()
                self._taken += wanted
            finally:
                self._waiting.remove(me)
                self._changed.notify_all()
        return wanted

    def add(self, size_bytes: int) -> None:
        """Take so much without waiting: by who holds some already, and would wait for others who wait for it."""
        with self._changed:
            self._taken += size_bytes

    def give_back(self, size_bytes: int) -> None:
        with self._changed:
            self._taken -= size_bytes
            self._changed.notify_all()

    @contextmanager
    def room(self, size_bytes: int) -> Iterator[None]:
        """Wait for so much, and hold it in the body, which must wait for no other room of this pool."""
        taken = self.take(size_bytes)
        try:
            yield
        finally:
            self.give_back(taken)

    @property
    def taken(self) -> int:
        return self._taken


@dataclass(slots=True)
class Reading:
    """What one thread holds of a budget until it has decoded an object. `is_kept`: what was decoded may be remembered."""

    budget: MemoryBudget | None = None
    stored: int = 0
    decoded: int = 0
    is_kept: bool = True
    #: Taken by whoever gives it back: two may, as a generator that was left in the middle is closed in any thread.
    _token: list[None] = field(default_factory=lambda: [None])

    def give_back(self) -> None:
        """Give back all that is held. Once: called again, it does nothing."""
        try:
            self._token.pop()
        except IndexError:
            return
        if self.budget is not None:
            self.budget.decoded.give_back(self.decoded)
            self.budget.stored.give_back(self.stored)


@dataclass(slots=True)
class _Turn:
    """What a thread, and those that it waits for, hold for metadata of tables."""

    tables: Pool
    held: int = 0
    changing: threading.Lock = field(default_factory=threading.Lock)


class _Current(threading.local):
    reading: Reading | None = None
    turn: _Turn | None = None
    waits: bool = True


_current: Final = _Current()


@contextmanager
def reading() -> Iterator[Reading]:
    """Hold what this thread reads and decodes in the body, one object, until its end. Within another, it is a part of that.

    A generator that holds one while it gives items may be left in the middle by an error: see `turn`.
    """
    if _current.reading is not None:
        yield _current.reading
        return
    mine = _current.reading = Reading()
    try:
        yield mine
    finally:
        if _current.reading is mine:
            _current.reading = None
        mine.give_back()


@contextmanager
def turn(budget: MemoryBudget | None) -> Iterator[None]:
    """One piece of work of a thread that lives on. At its end the thread holds nothing any more.

    Not even what a generator holds that an error has left in the middle, and that nobody has closed: it would make all later
    reading a part of that one, which waits for no room.
    """
    mine = _current.turn = _Turn(budget.tables) if budget is not None else None
    try:
        yield
    finally:
        _end()
        if mine is not None and mine.held:
            mine.tables.give_back(mine.held)


def _end() -> None:
    left, _current.reading, _current.turn = _current.reading, None, None
    if left is not None:
        left.give_back()


def in_this_turn(function: Callable[[_Item], _Answer]) -> Callable[[_Item], _Answer]:
    """Return the function for threads that this one waits for: what they hold of tables is held to the end of its turn."""
    turn = _current.turn

    def run(item: _Item) -> _Answer:
        _current.turn = turn
        try:
            return function(item)
        finally:
            _end()

    return run


@contextmanager
def holding_a_lock() -> Iterator[None]:
    """In the body this thread waits for no room: whoever holds some may wait for the lock that this thread has."""
    _current.waits = False
    try:
        yield
    finally:
        _current.waits = True


def most_table_bytes() -> int | None:
    """Return how much memory the metadata of a table may take in this turn; None outside of one with a budget."""
    return None if _current.turn is None else _current.turn.tables.most_bytes


def hold_table(size_bytes: int) -> None:
    """Wait for room for what a file of a table's metadata is decoded to, and hold it to the end of the turn.

    Of several files the largest counts: whoever reads them lets one go before the next, or they are a table's metadata and the
    list of its manifests, of which one is small beside the other. Only a turn's first file waits: later it would hold what others
    wait for, as it would within `reading`.
    """
    turn = _current.turn
    if turn is None or size_bytes <= turn.held:
        return
    if turn.held or _current.reading is not None or not _current.waits:
        with turn.changing:
            grown = max(0, size_bytes - turn.held)
            turn.tables.add(grown)
            turn.held += grown
    else:
        taken = turn.tables.take(size_bytes)
        with turn.changing:  # another thread of the turn may hold some by now
            less, turn.held = sorted((taken, turn.held))
        turn.tables.give_back(less)


@contextmanager
def room_for_stored(budget: MemoryBudget | None, size_bytes: int) -> Iterator[None]:
    """Wait for room for the bytes of an object. It is held to the end of `reading`, or of the body where nobody decodes."""
    current = _current.reading
    if budget is None or (current is not None and current.budget is not None):
        yield  # a second object of one reading, which never waits: it would hold what others wait for
        return
    if current is not None:
        current.budget, current.stored = budget, budget.stored.take(size_bytes)
        yield
        return
    taken = budget.stored.take(size_bytes)
    try:
        yield
    finally:
        budget.stored.give_back(taken)


def wait_for_room_to_decode(data: bytes, where: str) -> bool:
    """Wait for room for what an object is decoded to, if this thread reads it under a budget; return whether it does.

    Corrupt, naming the object, for one that would take more than there is.
    """
    current = _current.reading
    if current is None or current.budget is None:
        return False
    pool, wanted = current.budget.decoded, memory_to_decode(data)
    if wanted > pool.most_bytes:
        raise Corrupt(
            reasons.RECORD_UNREADABLE,
            f"{where} has {len(data):,} bytes, and reading it would take about {wanted:,} bytes of memory; this process has "
            f"{pool.most_bytes:,} for all that it reads at once: if a driver of ours has put it, give the operator more memory "
            "(recordMemory and resources.limits.memory in the chart's values)",
        )
    if not current.decoded:
        current.decoded, current.is_kept = pool.take(wanted), wanted <= _KEPT_BYTES
    return True
