"""What one round sees of a write. Made anew each round from the store and the driver port; nothing else is remembered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DriverState(Enum):
    """What is known of an attempt's driver. GONE is no proof of death: it says that nobody waits for it any more."""

    UNBORN = "unborn"  # recorded by us, and not started yet
    RUNNING = "running"
    GONE = "gone"
    ELSEWHERE = "elsewhere"  # recorded by another machine, which alone can see it


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a driver said that it ended."""

    family: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of the epoch.

    `is_sealed`: its plan exists and each task shows its last seal, so that it can be closed whatever its driver does.
    `awaits_table`: its driver has proposed an output schema and no table was made for it yet.
    `counted`: the earlier attempts whose seals it takes over.
    """

    number: int
    code_digest: str
    driver: DriverState
    is_sealed: bool = False
    is_closed: bool = False
    is_complete: bool = False
    awaits_table: bool = False
    failure: Failure | None = None
    idle_s: float = 0.0
    counted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """A write in its current epoch.

    `attempts` are those of the epoch, ascending. `first_counted_failure` is the first attempt whose failure counts against
    the backoff limit: a person who runs a write again asks for new tries.
    """

    epoch: int
    is_marked: bool
    attempts: tuple[Attempt, ...]
    code_digest: str
    on_code_change: str
    backoff_limit: int
    progress_deadline_s: float
    first_counted_failure: int = 1
    is_suspended: bool = False

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None
