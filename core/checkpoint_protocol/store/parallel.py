"""Many requests to a store side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from checkpoint_protocol.store.memory import in_this_turn

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

#: So many requests are on their way at once.
READERS: Final = 16


class Mapper(Protocol):
    """Asks the same of many items, in any order, and returns the answers in theirs. Raises what one of them raises."""

    def __call__(self, function: Callable[[_Item], _Answer], items: Sequence[_Item]) -> list[_Answer]: ...


def in_threads(function: Callable[[_Item], _Answer], items: Sequence[_Item], at_once: int = READERS) -> list[_Answer]:
    """Ask many at a time: each answer is a round trip to the store."""
    return list(streamed(in_threads, function, items, at_once))


def streamed(
    map_all: Mapper, function: Callable[[_Item], _Answer], items: Sequence[_Item], at_once: int = READERS
) -> Generator[_Answer, None, None]:
    """Give the answers in the order of the items, so many at a time: with threads, the next are asked for meanwhile.

    Whoever stops in the middle waits for nobody: what was asked by then is still answered, in threads that end by themselves.
    """
    if map_all is not in_threads:
        for start in range(0, len(items), at_once):
            yield from map_all(function, items[start : start + at_once])
        return
    if not items:
        return
    with _readers(min(at_once, len(items))) as readers:
        asked: deque[Future[_Answer]] = deque()
        ask = in_this_turn(function)
        for item in items:
            asked.append(readers.submit(ask, item))
            if len(asked) > at_once:
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()


@contextmanager
def _readers(at_once: int) -> Iterator[ThreadPoolExecutor]:
    """Give threads to a generator, and wait for them at its end, but not where it is closed before.

    A generator that was left in the middle is closed by the garbage collector, in any thread and between any two lines, also in
    the middle of `threading`, which holds locks then that the thread that is waited for needs to end. After that no thread of the
    process can begin or end any more.
    """
    readers = ThreadPoolExecutor(at_once)
    try:
        yield readers
    except GeneratorExit:
        readers.shutdown(wait=False, cancel_futures=True)
        raise
    except BaseException:
        readers.shutdown(cancel_futures=True)
        raise
    readers.shutdown()
