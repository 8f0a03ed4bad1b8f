"""What one round sees of a write. Made anew each round from the store and the driver port; nothing else is remembered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from checkpoint_control.decision.triggers import Between
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import CommitRecord, PinnedIceberg, Target


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
class DriverObservation:
    """What the driver port knows of one driver.

    `problem`: what keeps a STARTING one from starting; what ended one that is GONE, where that is known; of one that is
    NOT_STARTED, what must have ended it if it was started all the same. `is_outdated`: it was asked for under an earlier
    manifest, so that one that cannot start might start now. `is_edited`: the same for what counts from the next attempt
    only, for people."""

    state: DriverState
    problem: Failure | None = None
    is_outdated: bool = False
    is_edited: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of the epoch.

    `is_sealed`: its plan exists and each task shows its last seal, so that it can be closed whatever its driver does.
    `awaits_table`: its driver has proposed an output schema and no table was made for it yet.
    `counted`: the earlier attempts whose seals it takes over.
    `problem`, `is_outdated`, `is_edited`: see DriverObservation. `failure`: what is recorded of how a closed attempt ended.
    `rows_quarantined`: by its own seals. `has_sealed`: it is closed, and seals of it that count cover rows: those of
    tasks without any bring no end nearer, as the next attempt has such tasks again.
    `idle_s`: for how long it has made no progress; `mark`: as in AttemptClock, of one that is open.
    `starved`: its driver is at work and has no executor, and why; `starved_s`: for so long, which does not count as idle;
    `starved_beside`: how many others are at the same time.
    `spread`: a number from 0 to 1 of its own, so that attempts of different writes do not all act at one time.
    `holds_seals`: seals of it count, or it is open and shows some. `input_since`: as in its launch record. `is_of_other_source`:
    it reads other rows than the manifest says by now; `is_read_otherwise`: or the same with other reading options.
    `is_of_other_stage`: of a pipeline, it does something else, or to another result of the stage before, than is to be done now.
    `is_of_other_reset`: what it has sealed is to be computed again (`spec.reset`).
    `place`: the attempt that its driver was started for, by which its process or pod is known, as far as was seen; None: itself.
    """

    number: int
    code_digest: str
    driver: DriverState
    problem: Failure | None = None
    is_outdated: bool = False
    is_edited: bool = False
    is_sealed: bool = False
    is_closed: bool = False
    is_complete: bool = False
    awaits_table: bool = False
    failure: Failure | None = None
    idle_s: float = 0.0
    mark: str | None = None
    counted: tuple[int, ...] = ()
    rows_quarantined: int = 0
    has_sealed: bool = False
    starved: Failure | None = None
    starved_s: float = 0.0
    starved_beside: int = 0
    #: The shortest time without a seal after which it may be given up, by what it was recorded with.
    least_deadline_s: float = 0.0
    spread: float = 0.0
    holds_seals: bool = False
    input_since: int = 1
    is_of_other_source: bool = False
    is_read_otherwise: bool = False
    is_of_other_stage: bool = False
    is_of_other_reset: bool = False
    place: tuple[EpochKey, int] | None = None


@dataclass(frozen=True, slots=True)
class RowErrorLimit:
    """How many rows of the epoch may be quarantined, what says so, and the first ones that are, in words."""

    most_rows: int
    set_by: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tables:
    """What the catalogs say before an attempt is recorded: their requests cost, so they are asked only if one is to be.

    `target`: the sink's table as it is now, None if there is none, and `creates_target` whether one is made then. `source_tables`
    are those of the source that only a catalog knows, if no attempt has fixed the input yet. `problem`: why sink or source cannot
    be used, in the words of whoever refuses. `is_own_source`: sink and source are one table. `staged_for_another`: the first of
    the attempts to be taken over whose seals belong to another table. `lost_rows`: there is no table, and the last earlier epoch
    that committed to one, and how many rows. `is_deleted`: the write was deleted meanwhile.
    """

    title: str
    creates_target: bool
    target: Target | None = None
    source_tables: tuple[PinnedIceberg | None, ...] = ()
    problem: Failure | None = None
    is_own_source: bool = False
    staged_for_another: int | None = None
    lost_rows: tuple[int, int] | None = None
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """What a person is to decide before the next attempt is recorded (onCodeChange: Ask), and has not decided.

    `digest`: of the code of all stages, and of the source, as they are now: what an approval names. `stage`: what is at work,
    empty where there are no stages. `rows_sealed`: by the attempts that it would take over. `redone`: the stages with sealed rows
    that are to be done anew, each with why; `kept`: those that stay. `is_of_stage_before`: the next attempt is one of an earlier
    stage than the attempts that are observed.
    """

    digest: str
    stage: str = ""
    rows_sealed: int = 0
    redone: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    is_of_stage_before: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """A write in its current epoch.

    `commit`: the record that the epoch's commit was seen in the table; None before. `began_with`: the runNonce of the
    epoch's first attempt, None before there is one; `run_nonce`: that of the manifest now. `attempts` are those of the
    epoch, ascending. `first_counted_failure` is the first attempt whose failure counts against the backoff limit: a person
    who runs a write again asks for new tries. `pause_left_s`: how long the next attempt waits after a failed one;
    `outage_left_s`: after one that an outage of a service has ended; `retry_left_s`: where the last one waits for something
    outside of the manifest to change, infinite where only a person begins anew. `is_past_deadline`: the epoch has taken longer
    than its manifest allows. `row_errors`: None where no row was quarantined. `is_claimed`: a commit may have been tried.
    `queued`: the driver that is to be started has to wait for a place, and so many writes come before it. `tables`: None where no
    attempt is to be recorded. `on_code_change`: Ask only where no person has decided; `change`: of what one is to, None where no
    attempt is to be recorded. `goes_on`: the write has a trigger, and never finishes; `between`: what is known between two of
    its epochs, None where nobody has asked. `keeps_drivers`: they wait for the next epoch;
    `keeps_in_vain`: one does, and is not to. `is_stream`: each epoch is a micro-batch of a stream, and is
    followed by another; `before`: of such an epoch that is not committed, the commit of the one before.
    """

    epoch: int
    attempts: tuple[Attempt, ...]
    code_digest: str
    on_code_change: str
    backoff_limit: int
    progress_deadline_s: float
    commit: CommitRecord | None = None
    began_with: str | None = None
    run_nonce: str = ""
    first_counted_failure: int = 1
    is_suspended: bool = False
    is_past_deadline: bool = False
    pause_left_s: float = 0.0
    outage_left_s: float = 0.0
    retry_left_s: float = math.inf
    row_errors: RowErrorLimit | None = None
    is_claimed: bool = False
    queued: int | None = None
    tables: Tables | None = None
    change: Change | None = None
    goes_on: bool = False
    between: Between | None = None
    keeps_drivers: bool = False
    keeps_in_vain: bool = False
    is_stream: bool = False
    before: CommitRecord | None = None

    @property
    def is_committed(self) -> bool:
        return self.commit is not None

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None
