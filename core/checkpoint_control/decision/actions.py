"""What a round can decide to do. Each is safe to do twice, and to be cut off in."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_control.decision.observation import Failure
from checkpoint_control.decision.triggers import News


@dataclass(frozen=True, slots=True)
class Finish:
    """The epoch is committed, and it is the last that is asked for: nothing is left to do."""


@dataclass(frozen=True, slots=True)
class OpenEpoch:
    """Go on with the next epoch; `after` is committed. Changes nothing in the store: the next round records its first attempt.

    `news`: for which its trigger begins it; None where a person has asked for it.
    """

    epoch: int
    after: int
    news: News | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit the results of this complete attempt, and record that they are committed."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Close:
    """Fix which seals of this attempt count. `failure` is recorded first, unless its driver has said why it ended.

    `why` is for people. `is_done`: the attempt has done all that it had to do.
    """

    attempt: int
    why: str
    failure: Failure | None = None
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class StopDriver:
    """Ask a driver that is no longer counted on to end."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopKeptDriver:
    """Ask the driver to end that waits for the next epoch: the write is suspended, or drivers are started otherwise by now."""


@dataclass(frozen=True, slots=True)
class MakeTable:
    """Make the table for the output that this attempt's driver has proposed."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StartDriver:
    """Start the driver of this recorded attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class RecordAttempt:
    """Record the next attempt, which takes over the seals of these closed ones. The record comes before the driver.

    `input_since`: from which attempt on the input is what it reads; itself, where it is to read the source anew.
    """

    attempt: int
    counted: tuple[int, ...]
    input_since: int = 1


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until something changes. `problem`: a person may have to act for that, or it may pass."""

    for_what: str
    problem: Failure | None = None


@dataclass(frozen=True, slots=True)
class BeginStage:
    """Instead of the commit, which needs it: have drivers do this stage of the epoch. Changes nothing in the store.

    `is_before`: instead of the next attempt, which reads its result.
    """

    name: str
    is_before: bool = False


@dataclass(frozen=True, slots=True)
class EndStage:
    """A stage of the epoch is done: what waits for it goes on in the next round. Changes nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing can be done until a person acts."""

    reason: str
    message: str


Action = (
    Finish
    | OpenEpoch
    | Commit
    | BeginStage
    | EndStage
    | Close
    | StopDriver
    | StopKeptDriver
    | MakeTable
    | StartDriver
    | RecordAttempt
    | Wait
    | Stall
)
