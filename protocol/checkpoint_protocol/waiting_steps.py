"""Steps that would have to be awaited: refused in the same words before a run and in it."""

from __future__ import annotations

from typing import Final

#: The methods of a class that are called; async ones would only make coroutines that nobody awaits.
CALLED_METHODS: Final = ("__init__", "setup", "__call__")


def refuse_to_wait(name: str) -> str:
    """Return what is said of an async function, method or generator."""
    return f"{name} is async, and nobody awaits a step; make it a plain def, which may call asyncio.run(...) itself"
