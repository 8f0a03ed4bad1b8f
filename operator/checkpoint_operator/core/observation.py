"""What one round sees of a write. Made anew each round from the store and the driver port; nothing else is remembered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum


class DriverState(Enum):
    """What is known of an attempt's driver. GONE is no proof of death: it says that nobody waits for it any more."""

    NOT_STARTED = "not started"  # recorded, and not started yet
    STARTING = "starting"  # asked for, and not at work yet; something may keep it from that
    RUNNING = "running"
    GONE = "gone"
    ELSEWHERE = "elsewhere"  # recorded by another machine, which alone can see it


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a driver ended, or cannot start: in its own words, or in those of what runs it."""

    family: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DriverSight:
    """What the driver port knows of one driver.

    `trouble`: what keeps a STARTING one from starting; what ended one that is GONE, where that is known; of one that is
    NOT_STARTED, what must have ended it if it was started all the same. `is_outdated`: it was asked for under an earlier
    manifest, so that one that cannot start might start now. `is_edited`: the same for what counts from the next attempt
    only, for people."""

    state: DriverState
    trouble: Failure | None = None
    is_outdated: bool = False
    is_edited: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of the epoch.

    `is_sealed`: its plan exists and each task shows its last seal, so that it can be closed whatever its driver does.
    `awaits_table`: its driver has proposed an output schema and no table was made for it yet.
    `counted`: the earlier attempts whose seals it takes over.
    `trouble`, `is_outdated`, `is_edited`: see DriverSight. `failure`: what is recorded of how a closed attempt ended.
    `rows_quarantined`: by its own seals. `has_sealed`: it is closed, and seals of it that count cover rows: those of
    tasks without any bring no end nearer, as the next attempt has such tasks again.
    `starved`: its driver is at work and has no executor, and why; `starved_s`: for so long, which does not count as idle.
    `spread`: a number from 0 to 1 of its own, so that attempts of different writes do not all act at one time.
    `holds_seals`: seals of it count, or it is open and shows some. `input_since`: as in its launch record. `is_of_other_source`:
    it reads other rows than the manifest says by now; `is_read_otherwise`: or the same in another way.
    """

    number: int
    code_digest: str
    driver: DriverState
    trouble: Failure | None = None
    is_outdated: bool = False
    is_edited: bool = False
    is_sealed: bool = False
    is_closed: bool = False
    is_complete: bool = False
    awaits_table: bool = False
    failure: Failure | None = None
    idle_s: float = 0.0
    counted: tuple[int, ...] = ()
    rows_quarantined: int = 0
    has_sealed: bool = False
    starved: Failure | None = None
    starved_s: float = 0.0
    spread: float = 0.0
    holds_seals: bool = False
    input_since: int = 1
    is_of_other_source: bool = False
    is_read_otherwise: bool = False


@dataclass(frozen=True, slots=True)
class RowErrorLimit:
    """How many rows of the epoch may be quarantined, what says so, and the first ones that are, in words."""

    most_rows: int
    set_by: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """A write in its current epoch.

    `attempts` are those of the epoch, ascending. `first_counted_failure` is the first attempt whose failure counts against
    the backoff limit: a person who runs a write again asks for new tries. `pause_left_s`: how long the next attempt waits after a
    failed one. `look_again_left_s`: the same where the last one waits for something outside of the manifest to change; infinite
    where only a person begins anew. `is_past_deadline`: the epoch has taken longer than its manifest allows. `row_errors`: None
    where no row was quarantined. `is_claimed`: a commit may have been tried. `queued`: the driver that is to be started has to
    wait for a place, and so many writes come before it.
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
    is_past_deadline: bool = False
    pause_left_s: float = 0.0
    look_again_left_s: float = math.inf
    row_errors: RowErrorLimit | None = None
    is_claimed: bool = False
    queued: int | None = None

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None
