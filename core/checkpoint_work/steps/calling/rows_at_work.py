"""How many rows a step has begun, and which of them it does not call now: they wait for their next try, or for evidence.

Rows that wait keep no call going. While they do, and few others are left, more rows are to be begun: flow.py is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: So many times the calls at once are too few rows to keep them going while more are being read.
_FEW: Final = 4


@dataclass(slots=True)
class RowsAtWork:
    """Of one event loop; the properties are for any thread. `at_once`: how many calls may be made at once."""

    at_once: int
    #: Called when few are left while rows wait for their next try.
    tell_few: Callable[[], None] = lambda: None
    begun: int = 0
    #: Of these, those whose tries are used up, and that wait until it is known whether they are at fault.
    judged: int = 0
    _delayed: int = 0

    @property
    def has_delayed(self) -> bool:
        """Whether rows wait for their next try."""
        return self._delayed > 0

    @property
    def has_few(self) -> bool:
        """Whether few rows are being called, or will be as soon as they may."""
        return self.begun - self._delayed - self.judged < _FEW * self.at_once

    @property
    def is_idle(self) -> bool:
        """Whether all wait for evidence, so that none comes."""
        return self.judged == self.begun

    def end(self, rows: int) -> None:
        self.begun -= rows
        self._look()

    async def sleep(self, seconds: float) -> None:
        """Wait for a row's next try."""
        self._delayed += 1
        self._look()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._delayed -= 1

    def _look(self) -> None:
        if self._delayed and self.has_few:
            self.tell_few()
