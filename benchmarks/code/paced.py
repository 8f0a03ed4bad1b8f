"""A step that takes a fixed time for each row and changes nothing; it writes down what it did.

The rivals import it too, in their own environments: it needs nothing but a batch that knows its `num_rows`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import Any


class Paced:
    """`log`: a file to which each process adds a line when it begins (`b`) and after each batch (`r`, rows)."""

    def __init__(self, row_us: float, log: str | None = None) -> None:
        self._row_s = row_us / 1e6
        self._log = log

    def setup(self) -> None:
        self._note("b 0")

    def __call__(self, batch: Any) -> Any:
        time.sleep(batch.num_rows * self._row_s)
        self._note(f"r {batch.num_rows}")
        return batch

    def each(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The same as Spark's mapInArrow wants it."""
        for batch in batches:
            yield self(batch)

    def _note(self, text: str) -> None:
        if self._log is not None:
            # One write of a line to a file opened for appending is never mixed with another's.
            handle = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                os.write(handle, f"{time.time():.4f} {text}\n".encode())
            finally:
                os.close(handle)


class Faulty(Paced):
    """The same before somebody has mended it."""

    def __call__(self, batch: Any) -> Any:
        raise ValueError("not mended yet")
