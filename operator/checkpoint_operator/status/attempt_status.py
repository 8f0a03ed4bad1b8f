"""What the status says of attempts: the last ones of the epoch, each with the class of its end. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from checkpoint_control.decision.observation import Attempt
from checkpoint_operator.crd.status_model import MAX_ATTEMPTS_SHOWN, AttemptStatus, Cause, bounded
from checkpoint_protocol import reasons

_CAUSES: Final[dict[str, Cause]] = {
    reasons.DRIVER_OUT_OF_MEMORY: "OOMKilled",
    reasons.DRIVER_EVICTED: "Evicted",
    reasons.DRIVER_PREEMPTED: "Preempted",
    reasons.DRIVER_DELETED: "Deleted",
    reasons.NODE_LOST: "NodeLost",
    reasons.CREDENTIALS_REFUSED: "Credentials",
    reasons.SOURCE_MISSING: "Source",
    reasons.SOURCE_CHANGED: "Source",
    reasons.SOURCE_UNREADABLE: "Source",
    reasons.KEYS_NOT_UNIQUE: "Source",
    reasons.KEYS_UNSUITABLE: "Source",
    reasons.IMAGE_UNAVAILABLE: "Image",
    reasons.POD_UNSCHEDULABLE: "Scheduling",
    reasons.POD_INCOMPLETE: "Scheduling",
    reasons.POD_REFUSED: "Scheduling",
    reasons.DRIVER_REPLACED: "Scheduling",
    reasons.EXECUTORS_PENDING: "Scheduling",
    reasons.EXECUTORS_REFUSED: "Scheduling",
    reasons.NO_PROGRESS: "NoProgress",
    reasons.DEADLINE_EXCEEDED: "Deadline",
    reasons.WRITE_SUSPENDED: "Suspended",
    reasons.CODE_FAILED: "UserCode",
    reasons.CODE_MISSING: "UserCode",
    reasons.OUTPUT_SCHEMA_WRONG: "UserCode",
    reasons.TOO_MANY_ROW_ERRORS: "UserCode",
}


def cause_of(reason: str | None) -> Cause:
    """Return the class of an attempt's end."""
    return _CAUSES.get(reason or "", "Unknown")


def attempts_shown(
    now: str, known: Iterable[AttemptStatus], seen: Iterable[Attempt], pod: str | None
) -> tuple[AttemptStatus, ...] | None:
    """Return the last attempts of an epoch. `known`: as they were shown before, with their times; `now`: RFC 3339."""
    before = {attempt.number: attempt for attempt in known}
    shown = [_attempt(now, before.get(attempt.number), attempt, pod) for attempt in list(seen)[-MAX_ATTEMPTS_SHOWN:]]
    return tuple(shown) or None


def _attempt(now: str, before: AttemptStatus | None, attempt: Attempt, pod: str | None) -> AttemptStatus:
    shown = before or AttemptStatus(number=attempt.number, code_digest=attempt.code_digest[:64], recorded_at=now)
    if not attempt.is_closed:
        return shown.model_copy(update={"pod": pod or shown.pod})
    failure = attempt.failure
    return shown.model_copy(
        update={
            "closed_at": shown.closed_at or now,
            "cause": "Completed" if attempt.is_complete else cause_of(failure.reason if failure else None),
            "message": bounded(failure.message) if failure and not attempt.is_complete else None,
        }
    )
