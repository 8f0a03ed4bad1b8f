"""Many requests to a store side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

#: So many requests are on their way at once.
READERS: Final = 16


class Mapper(Protocol):
    """Asks the same of many items, in any order, and returns the answers in theirs. Raises what one of them raises."""

    def __call__(self, function: Callable[[_Item], _Answer], items: Sequence[_Item]) -> list[_Answer]: ...


def in_threads(function: Callable[[_Item], _Answer], items: Sequence[_Item], at_once: int = READERS) -> list[_Answer]:
    """Ask many at a time: each answer is a round trip to the store."""
    if not items:
        return []
    with ThreadPoolExecutor(min(at_once, len(items))) as readers:
        return list(readers.map(function, items))


def streamed(
    ask_all: Mapper, function: Callable[[_Item], _Answer], items: Sequence[_Item], at_once: int = READERS
) -> Iterator[_Answer]:
    """Give the answers in the order of the items, so many at a time: with threads, the next are asked for meanwhile."""
    if ask_all is not in_threads:
        for start in range(0, len(items), at_once):
            yield from ask_all(function, items[start : start + at_once])
        return
    if not items:
        return
    with ThreadPoolExecutor(min(at_once, len(items))) as readers:
        asked: deque[Future[_Answer]] = deque()
        for item in items:
            asked.append(readers.submit(function, item))
            if len(asked) > at_once:
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()
