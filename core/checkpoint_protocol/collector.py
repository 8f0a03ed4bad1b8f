"""The garbage collector, while a great many objects are made of which none is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep Python from looking for objects that only hold each other. All others are freed as ever.

    It goes through all objects each time they have become a quarter more: while a million files are listed and planned that is
    a third of the time, and nothing is found. For whoever is alone in a process with what it makes; not for the operator.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
