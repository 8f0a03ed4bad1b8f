"""Work on things that follow one another, several at once, and their results in order.

For steps that wait: while one group of rows waits for its slowest call, those behind it are at work. What may only be done by the
thread that asks for the results is handed to it (`CallerThread.do`): it does it while it waits.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from itertools import count
from typing import Any, Final, Generic, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_MOST_THREADS: Final = 256

#: Which of the items a thread works on: threads may overtake one another before they have begun.
order: Final = ContextVar("order", default=0)


class CallerThread:
    """Takes work for the thread that has made it, from other threads."""

    def __init__(self) -> None:
        self._owner = threading.get_ident()
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._is_closed = False
        self._has_news = False

    def do(self, work: Callable[[], _Result]) -> _Result:
        """Return what the owner's thread makes of the work; it raises what that raises."""
        if threading.get_ident() == self._owner:
            return work()
        future: Future[_Result] = Future()
        self._work.put((future, work))
        if self._is_closed:
            self._drop()
        return future.result()

    def tell(self) -> None:
        """Have the owner look again: it is given back from `wait`. For any thread."""
        if not self._has_news:
            self._has_news = True
            self._work.put(None)

    def wait(self) -> None:
        """Do the next work, or return when there is news. For the owner's thread, which looks before whether it has to wait."""
        if (task := self._work.get()) is not None:
            _do(*task)
        else:
            self._has_news = False

    def close(self) -> None:
        """Refuse what is asked for from now on: those who ask are given CancelledError."""
        self._is_closed = True
        self._drop()

    def _drop(self) -> None:
        while True:
            try:
                task = self._work.get_nowait()
            except queue.Empty:
                return
            if task is not None:
                task[0].cancel()


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # it is the asker's
        future.set_exception(error)


class Ahead(Generic[_Item, _Result]):
    """Gives the results of items in order, while later items are worked on in threads.

    `has_room`: whether one more may be begun beside those that are held: begun, and not given yet. It is asked again after each
    result, and after each work and news of the caller. `stop`: ends all work, where the results are not asked for any more.
    `in_turn`: nothing is begun before the result of the item before it was asked for, and all is done by the thread that asks.
    """

    def __init__(
        self,
        work: Callable[[_Item], _Result],
        has_room: Callable[[deque[tuple[_Item, Future[_Result]]]], bool],
        caller: CallerThread,
        stop: Callable[[], None],
        in_turn: bool = False,
    ) -> None:
        self._work = work
        self._has_room = has_room
        self._caller = caller
        self._stop = stop
        self._in_turn = in_turn

    def results(self, items: Iterator[_Item]) -> Iterator[tuple[_Item, _Result, _Item | None]]:
        """Give each item with its result, and the item behind it where that is held.

        What items, or the work on one, raise is raised after the results of those before.
        """
        held: deque[tuple[_Item, Future[_Result]]] = deque()
        numbers = count()
        is_over, problem = False, None
        with ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="steps") as threads:
            try:
                while True:
                    while not is_over and (not held or self._has_room(held)):
                        try:
                            item = next(items)
                        except StopIteration:
                            is_over = True
                        except BaseException as error:  # kept until its turn
                            is_over, problem = True, error
                        else:
                            held.append((item, Future() if self._in_turn else self._submit(threads, next(numbers), item)))
                    if not held:
                        break
                    item, future = held[0]
                    if self._in_turn:
                        _do(future, partial(self._work, item))
                    elif not future.done():
                        self._caller.wait()
                        continue
                    result = future.result()
                    held.popleft()
                    yield item, result, held[0][0] if held else None
                if problem is not None:
                    raise problem
            finally:
                # Else the threads would be waited for until all that is held is done.
                for _, future in held:
                    future.cancel()
                if held:
                    self._stop()
                    self._caller.close()

    def _submit(self, threads: ThreadPoolExecutor, number: int, item: _Item) -> Future[_Result]:
        def work() -> _Result:
            order.set(number)
            return self._work(item)

        future = threads.submit(work)
        future.add_done_callback(lambda _: self._caller.tell())
        return future
