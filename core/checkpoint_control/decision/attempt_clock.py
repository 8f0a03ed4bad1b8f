"""How long an attempt has made no progress, how long its driver has had no executor, and the pauses between attempts.

Counted by the clock of this process. What it starts from may be what an earlier process has noted (`Noted`), so that an operator
that is restarted again and again still gives up what makes no progress. No safety rests on it: to give up too early costs work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Noted:
    """What was noted of an attempt, and how many seconds ago.

    `mark`: as in AttemptClock, when progress was last noted, `idle_s` ago; None: nothing was. `starved_s`: for how long its
    driver has had no executor; None: it has, or needs none. `closed_s`: how long ago it was seen to be closed.
    """

    mark: str | None = None
    idle_s: float = 0.0
    starved_s: float | None = None
    closed_s: float = 0.0


@dataclass(slots=True)
class AttemptClock:
    """`now`: returns seconds since some moment. `attempt`: the one that is watched; 0: none yet."""

    now: Callable[[], float]
    attempt: int = 0
    #: How many links of its chains are there, and whether its plan is.
    links: int = 0
    is_planned: bool = False
    #: A digest of what its tasks have in hand, as far as that was asked.
    in_hand: str = ""
    _moved_at: float = 0.0
    _starved_at: float | None = None

    @property
    def mark(self) -> str:
        """Return what changes with each progress, and else stays the same, in all processes."""
        return f"{self.attempt}-{self.links}-{int(self.is_planned)}-{self.in_hand}"

    @property
    def idle_s(self) -> float:
        return self.now() - self._moved_at

    @property
    def is_starved(self) -> bool:
        return self._starved_at is not None

    @property
    def starved_s(self) -> float:
        return 0.0 if self._starved_at is None else self.now() - self._starved_at

    def start(self, attempt: int) -> None:
        """Begin the time of an attempt: its driver is started now."""
        self.attempt, self.links, self.is_planned, self.in_hand = attempt, 0, False, ""
        self._moved_at, self._starved_at = self.now(), None

    def see(self, attempt: int, links: int, is_planned: bool, noted: Callable[[], Noted]) -> None:
        """Take in what the store shows. `noted`: asked once, of the attempt that is found at work when this process begins."""
        if (attempt, links, is_planned) == (self.attempt, self.links, self.is_planned):
            return
        before = noted() if self.attempt == 0 else Noted()
        self.attempt, self.links, self.is_planned = attempt, links, is_planned
        self._moved_at = self.now()
        # Of a mark, only what was in hand is not seen here.
        shown, _, in_hand = (before.mark or "").rpartition("-")
        if shown == self.mark.rpartition("-")[0]:
            self.in_hand = in_hand
            self._moved_at -= before.idle_s if before.starved_s is None else 0.0
            self._starved_at = None if before.starved_s is None else self.now() - before.starved_s

    def hear(self, in_hand: str) -> None:
        """Take in what the tasks have in hand: where that has changed they are at work, though they have sealed nothing."""
        if in_hand != self.in_hand:
            self.in_hand = in_hand
            self.move()

    def move(self) -> None:
        """Note that the attempt is not idle: there is nothing that it could do."""
        self._moved_at = self.now()

    def starve(self, is_starved: bool) -> None:
        """Note whether the driver lacks executors. It was idle for want of them, and from now on it counts as starved instead."""
        if not is_starved:
            self._starved_at = None
            return
        if self._starved_at is None:
            self._starved_at = self._moved_at
        self.move()


_PAUSE_AFTER_PROGRESS_S: Final = 1.0
_FIRST_PAUSE_S: Final = 10.0
_MOST_PAUSE_S: Final = 300.0
_FIRST_RETRY_S: Final = 300.0
_MOST_RETRY_S: Final = 3600.0


def pause_after(failures: int) -> float:
    """Return the seconds between an attempt and the next: 10, 20, 40 ... 300, as for the pods of a Kubernetes Job.

    `failures`: attempts in a row that sealed nothing. At 0 the last one has sealed something (or does not count), and the next
    follows almost at once: of attempts that bring the end nearer there are no more than there is work.
    """
    if failures == 0:
        return _PAUSE_AFTER_PROGRESS_S
    return min(_MOST_PAUSE_S, _FIRST_PAUSE_S * float(1 << min(failures - 1, 10)))


def retry_after(failures: int) -> float:
    """Return the seconds until what failed by something outside is tried again: 5, 10, 20, 40, 60, 60 ... minutes."""
    return min(_MOST_RETRY_S, _FIRST_RETRY_S * float(1 << min(max(failures, 1) - 1, 10)))
