"""The phases of a write, for people: one vocabulary for status, kubectl, events, metrics and commands. Pure; no rule reads it."""

from __future__ import annotations

from typing import Final, Literal

from checkpoint_control.decision.actions import Action, Commit, Stall, Wait
from checkpoint_control.decision.observation import Attempt, DriverState

Phase = Literal["Pending", "Running", "Sealed", "Committing", "Committed", "Suspended", "Stalled", "Deleting", "Unknown"]

#: What each means; the documentation and the commands say it in these words.
MEANINGS: Final[dict[Phase, str]] = {
    "Pending": "no driver is running: nothing has started yet, or the next attempt will continue",
    "Running": "an attempt is open: its driver is running, or was interrupted and the store does not show this yet",
    "Sealed": "all rows are sealed; the commit has still to be made or recorded",
    "Committing": "the commit is being made",
    "Committed": "the commit was seen in the table",
    "Suspended": "spec.suspend stops the write; sealed rows stay",
    "Stalled": "the write waits until a person changes something; the reason says what",
    "Deleting": "the write can no longer commit; what it has staged is being removed, or waits to be removed",
    "Unknown": "a record cannot be read",
}


def phase_of(
    last: Attempt | None,
    *,
    is_committed: bool,
    is_suspended: bool = False,
    is_deleted: bool = False,
    is_unreadable: bool = False,
    is_of_stage: bool = False,
    decided: Action | None = None,
) -> Phase:
    """Return the phase of an epoch with this last attempt; the first that applies wins. `is_of_stage`: the attempt is one of a
    stage, whose results are put into no table.

    `decided`: the last action of a round; None for who only reads the store, as the commands do: then a failure that a person has
    to act on says that the next round will stall.
    """
    if is_unreadable:
        return "Unknown"
    if is_deleted:
        return "Deleting"
    match decided:
        case Stall():
            return "Stalled"
        case Commit() if not is_of_stage:
            return "Committing"
        case Wait() if is_suspended:
            return "Suspended"
    if is_committed and not is_of_stage:
        return "Committed"
    if last is None:
        return "Pending"
    if last.is_complete or last.is_sealed:
        return "Sealed"
    if decided is None and last.failure is not None and last.failure.family != "Retryable":
        return "Stalled"
    is_at_work = not last.is_closed and last.driver in (DriverState.RUNNING, DriverState.ELSEWHERE)
    return "Running" if is_at_work else "Pending"


def phase_after_error(may_pass: bool, before: Phase | None) -> Phase:
    """Return the phase after a round that could not be done. `may_pass`: it is tried again, so that all stays as it was."""
    return (before or "Pending") if may_pass else "Stalled"
