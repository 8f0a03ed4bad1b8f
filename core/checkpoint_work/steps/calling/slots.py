"""So many calls at once; who waits for a slot gets it in the order of the rows.

Not in the order of asking: a row that is tried again would wait behind all that were begun after it, and what is given in order
would wait for it, until nothing more may be begun.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Slots:
    """For the tasks of one event loop. `free`: how many may begin now."""

    free: int
    #: By the numbers of their rows; those that gave up are passed over.
    _waiting: list[tuple[int, int, asyncio.Future[None]]] = field(default_factory=list)
    _asked: int = 0

    @asynccontextmanager
    async def slot(self, number: int) -> AsyncIterator[None]:
        """Hold a slot in the body; wait for one first. `number`: of the row."""
        if self.free:
            self.free -= 1
        else:
            await self._wait(number)
        try:
            yield
        finally:
            self._give_back()

    async def _wait(self, number: int) -> None:
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
