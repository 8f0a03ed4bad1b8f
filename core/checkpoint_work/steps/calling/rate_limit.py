"""How many calls may begin in a time: what the manifest allows, and less for as long as the service refuses many as too many.

Additive up, multiplicative down, as TCP shares a line: tasks that know nothing of one another come to even shares.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiolimiter import AsyncLimiter

from checkpoint_protocol.manifest.steps import RateLimit

#: Where more calls than this part were refused, and more than come together by chance where it is this part: so many standard
#: deviations. A few are, of any busy service; they are tried again.
_MANY: Final = 0.1
_DEVIATIONS: Final = 2.0
_DOWN: Final = 0.7
_UP_A_SECOND: Final = 0.05
_LEAST_SHARE: Final = 0.01
#: Judged at this distance, and of no fewer calls.
_STEP_S: Final = 1.0
_LEAST_CALLS: Final = 10
#: So many seconds' worth of calls may begin at once, and no fewer than so many calls: what a process that was held up, or a timer
#: that is late, makes up for. Of a limiter that lets one begin at a time, each such moment would be lost.
_BURST_S: Final = 0.1
_LEAST_BURST: Final = 2.0


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
                burst = max(_LEAST_BURST, self.calls_per_s * _BURST_S)
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
        passed_s = now_s - self._since_s
        if passed_s < _STEP_S or self._begun < _LEAST_CALLS:
            return
        if self._refused > most_by_chance(self._begun):
            self._use(max(_LEAST_SHARE, self.share * _DOWN))
        else:
            self._use(min(1.0, self.share + _UP_A_SECOND * passed_s))
        self._since_s, self._begun, self._refused = now_s, 0, 0

    def _use(self, share: float) -> None:
        if share != self.share:
            self.share, self._limiter = share, None


def most_by_chance(calls: int) -> float:
    """Return up to how many of so many calls a service may refuse that is asked no more than it can take."""
    return _MANY * calls + _DEVIATIONS * math.sqrt(_MANY * (1 - _MANY) * calls)
