"""The process's event loop, on which async code of steps runs, and what has to be awaited on it.

After a fork, so in each of Spark's Python workers: a loop of the process before would be one that nobody runs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import os
import threading
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from checkpoint_work.steps.values.taking import as_it_is

_Result = TypeVar("_Result")

_lock = threading.Lock()
#: By the number of the process that runs it.
_loops: Final[dict[int, asyncio.AbstractEventLoop]] = {}


def submit(coroutine: Coroutine[Any, Any, _Result]) -> concurrent.futures.Future[_Result]:
    """Run a coroutine on the process's loop; from any thread but the loop's own."""
    return asyncio.run_coroutine_threadsafe(_quietly(coroutine), _loop())


async def _quietly(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine. Where its future was cancelled nobody asks what it raised, and asyncio would log that."""
    task = asyncio.current_task()
    assert task is not None
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return await coroutine


def run(coroutine: Coroutine[Any, Any, _Result], timeout_s: float | None = None) -> _Result:
    """Run a coroutine on the process's loop to its end. Where the caller is interrupted, so is the coroutine.

    TimeoutError, and the coroutine is cancelled, where it takes longer than is allowed.
    """
    future = submit(coroutine)
    try:
        return future.result(timeout_s)
    except BaseException as error:
        # What has ended is not cancelled any more: then it raised this itself.
        if future.cancel() and isinstance(error, TimeoutError):
            raise TimeoutError(f"it did not end in {timeout_s:g} s, and was cancelled") from None
        raise


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = asyncio.new_event_loop()
            _loops.clear()
            _loops[os.getpid()] = loop
            threading.Thread(target=loop.run_forever, name="event-loop-of-steps", daemon=True).start()
        return loop


def _forget_lock() -> None:
    # It may have been held by a thread that the child does not have.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


class MustWait(Exception):
    """Raised where a result is used: it has to be awaited first."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


def is_async(found: Any) -> bool:
    """Whether a callable, or a method of an instance, is async."""
    while isinstance(found, partial):
        found = found.func
    called = found if inspect.isroutine(found) else inspect.getattr_static(type(found), "__call__", None)
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)


def refuse_unawaited(result: object) -> None:
    """Raise MustWait for what nobody has awaited."""
    if inspect.isawaitable(result) or hasattr(result, "__aiter__"):
        raise MustWait(result)


async def awaited(result: Any) -> Any:
    """Return what a coroutine gives, or all that an async generator does; anything else as it is."""
    if hasattr(result, "__aiter__"):
        return [as_it_is(one) async for one in result]
    return await result if inspect.isawaitable(result) else result
