"""Whether a call that kept failing for a reason outside is the fault of its row, or the service is out. Pure.

A row may be what a service cannot digest: it is set apart, and the others go on. An outage must not set apart all rows that come
by. So a row whose tries are used up waits for evidence: where others fail as it did, it is an outage; where the service answers a
call that began after the row's last one, it is the row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

_WINDOW_S: Final = 60.0
#: Of fewer calls in that time nothing is most.
_LEAST_CALLS: Final = 10
#: One failure of another row may be that row's own.
_LEAST_FAILURES: Final = 3


class Verdict(Enum):
    """What a call that kept failing tells."""

    OPEN = "it is not known yet"
    ROW = "the row is at fault"
    OUTAGE = "the service is out"


@dataclass(slots=True, eq=False)
class Tried:
    """A row, or a batch, that is being tried: when its last call began, and what there was before its first."""

    answers_before: int
    failures_before: int
    began_s: float = 0.0
    failures: int = 0


@dataclass(slots=True)
class _Second:
    """How many calls ended in one second, and how."""

    at: int
    answers: int = 0
    failures: int = 0


@dataclass(slots=True)
class Outages:
    """Counts how the calls of one step end, and judges those that kept failing. Not for several threads at once.

    `may_doubt`: a row may be set apart for the time being, while nothing tells that the service was there.
    """

    clock: Callable[[], float]
    may_doubt: bool = True
    #: A row was set apart, and the service has not answered since.
    is_uncertain: bool = False
    answers: int = 0
    failures: int = 0
    _last_answered_began_s: float = float("-inf")
    _recent: deque[_Second] = field(default_factory=deque)

    def begin(self) -> Tried:
        """Note that a row is tried for the first time."""
        return Tried(self.answers, self.failures)

    def call(self, tried: Tried) -> None:
        """Note that a call begins."""
        tried.began_s = self.clock()

    def answered(self, tried: Tried) -> None:
        """Note that a call succeeded, or failed for a reason of the row: the service was there."""
        self.answers += 1
        self.is_uncertain = False
        self._last_answered_began_s = max(self._last_answered_began_s, tried.began_s)
        self._second().answers += 1

    def failed(self, tried: Tried) -> bool:
        """Note that a call failed for a reason outside. Return whether for a minute most have."""
        self.failures += 1
        tried.failures += 1
        now = self._second()
        now.failures += 1
        answers, failures = sum(one.answers for one in self._recent), sum(one.failures for one in self._recent)
        is_whole_minute = now.at - self._recent[0].at >= _WINDOW_S - 1
        return is_whole_minute and answers + failures >= _LEAST_CALLS and failures > answers

    def judge(self, tried: Tried, *, is_idle: bool) -> Verdict:
        """Say whose fault it is that a row's tries are used up. `is_idle`: no more evidence comes before that is known.

        What counts is how the calls of others have ended since the row's first call.
        """
        others_failed = self.failures - tried.failures_before - tried.failures
        others_answered = self.answers - tried.answers_before
        if others_failed >= _LEAST_FAILURES and others_failed > others_answered:
            return Verdict.OUTAGE
        if self._last_answered_began_s > tried.began_s:
            return Verdict.ROW
        if not is_idle:
            return Verdict.OPEN
        # The service may have gone meanwhile: the rows that come next will tell.
        if others_answered > others_failed or (self.may_doubt and not self.is_uncertain):
            self.is_uncertain = True
            return Verdict.ROW
        return Verdict.OUTAGE

    def _second(self) -> _Second:
        at = int(self.clock())
        if not self._recent or self._recent[-1].at != at:
            self._recent.append(_Second(at))
            while at - self._recent[0].at > _WINDOW_S:
                self._recent.popleft()
        return self._recent[-1]
