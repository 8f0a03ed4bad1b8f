"""What a round can decide to do. Each is safe to do twice, and to be cut off in."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_operator.core.observation import Failure


@dataclass(frozen=True, slots=True)
class Finish:
    """The epoch is committed, and it is the last that is asked for: nothing is left to do."""


@dataclass(frozen=True, slots=True)
class OpenEpoch:
    """Go on with the next epoch; `after` is committed. Changes nothing in the store: the next round records its first attempt."""

    epoch: int
    after: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit the results of this complete attempt, and record that they are committed."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Close:
    """Fix which seals of this attempt count. `failure` is recorded first, unless its driver has said why it ended."""

    attempt: int
    why: str
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class StopDriver:
    """Ask a driver that is no longer counted on to end."""

    attempt: int


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
class Stall:
    """Nothing can be done until a person acts."""

    reason: str
    message: str


Action = Finish | OpenEpoch | Commit | Close | StopDriver | MakeTable | StartDriver | RecordAttempt | Wait | Stall
