"""What a step gives that has to be awaited first: a coroutine, or an async generator."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from checkpoint_work.steps.values.taking import as_it_is


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
