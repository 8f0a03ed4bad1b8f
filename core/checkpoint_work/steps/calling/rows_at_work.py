"""Which rows a step calls now: so many at once, in the order of the rows, while others wait for their next try."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
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


# So many calls at once; who waits for a slot gets it in the order of the rows.
#
# Not in the order of asking: a row that is tried again would wait behind all that were begun after it, and what is given in order
# would wait for it, until nothing more may be begun.


@dataclass(slots=True)
class Slots:
    """For the tasks of one event loop. `free`: how many may begin now."""

    free: int
    #: By the numbers of their rows; those that gave up are passed over.
    _waiting: list[tuple[tuple[int, int], int, asyncio.Future[None]]] = field(default_factory=list)
    _asked: int = 0

    @asynccontextmanager
    async def slot(self, number: tuple[int, int]) -> AsyncIterator[None]:
        """Hold a slot in the body; wait for one first. `number`: of the item that the row is of, and of the row."""
        if self.free:
            self.free -= 1
        else:
            await self._wait(number)
        try:
            yield
        finally:
            self._give_back()

    async def _wait(self, number: tuple[int, int]) -> None:
        given = asyncio.get_running_loop().create_future()
        self._asked += 1
        heapq.heappush(self._waiting, (number, self._asked, given))
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():  # it was given in the same moment
                self._give_back()
            raise

    def _give_back(self) -> None:
        while self._waiting:
            _, _, given = heapq.heappop(self._waiting)
            if not given.done():
                given.set_result(None)
                return
        self.free += 1
