"""How many calls may begin in a time: what the manifest allows, and less for as long as the service refuses many as too many.

Additive up, multiplicative down, as TCP shares a line: tasks that know nothing of one another come to even shares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiolimiter import AsyncLimiter

from checkpoint_protocol.steps import RateLimit

#: Where more of a second's calls than this were refused. A few are, of any busy service; they are tried again.
_MANY: Final = 0.1
_DOWN: Final = 0.7
_UP: Final = 0.05
_LEAST_SHARE: Final = 0.01
_STEP_S: Final = 1.0
#: So many seconds' worth of calls may begin at once: timers are not finer.
_BURST_S: Final = 0.05


@dataclass(slots=True)
class Pacing:
    """Lets the calls of one task begin, on one event loop. `tasks`: how many run at once; each has the same part of the limit."""

    limit: RateLimit
    tasks: int
    clock: Callable[[], float]
    #: Of the task's part, what is used now.
    share: float = 1.0
    _since_s: float | None = None
    _begun: int = 0
    _refused: int = 0
    _limiter: AsyncLimiter | None = None
    #: Only one waits at the limiter, so that a change counts for all others.
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def calls_per_s(self) -> float:
        return self.limit.calls / self.limit.per / max(1, self.tasks) * self.share

    async def begin(self) -> None:
        """Return when a call may begin."""
        async with self._turn:
            self._adapt()
            if self._limiter is None:
                burst = max(1.0, self.calls_per_s * _BURST_S)
                self._limiter = AsyncLimiter(burst, burst / self.calls_per_s)
            await self._limiter.acquire()
            self._begun += 1

    def refused(self) -> None:
        """Note that the service has refused a call as one too many."""
        self._refused += 1

    def _adapt(self) -> None:
        now_s = self.clock()
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < _STEP_S or not self._begun:
            return
        if self._refused > self._begun * _MANY:
            self._use(max(_LEAST_SHARE, self.share * _DOWN))
        else:
            self._use(min(1.0, self.share + _UP))
        self._since_s, self._begun, self._refused = now_s, 0, 0

    def _use(self, share: float) -> None:
        if share != self.share:
            self.share, self._limiter = share, None
