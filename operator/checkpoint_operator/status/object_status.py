"""The status of an object: read leniently, patched as little as can be; its conditions and its attempts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from checkpoint_control.decision.observation import Attempt
from checkpoint_control.decision.phases import Phase
from checkpoint_operator.crd.status_model import (
    MAX_ATTEMPTS_SHOWN,
    MAX_CONDITION_MESSAGE_LENGTH,
    AttemptStatus,
    Cause,
    Condition,
    ConditionType,
    Status,
    as_reason,
    bounded,
)
from checkpoint_protocol import reasons


def status_of(body: Mapping[str, Any]) -> Status:
    """Return the status in an object. One that cannot be read is as none: all of it can be told again."""
    try:
        return Status.model_validate_json(json.dumps(body.get("status") or {}))
    except ValidationError:
        return Status()


def status_patch(body: Mapping[str, Any], status: Status) -> dict[str, Any] | None:
    """Return the merge patch that brings an object's status to this one, if it has not changed meanwhile; None if it is so."""
    before: Mapping[str, Any] = body.get("status") or {}
    after = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    changes = _merge_patch(before, after)
    if not changes:
        return None
    return {"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "status": changes}


def _merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch (RFC 7386) from one object to another: what is not said in it stays, also within an object."""
    changes: dict[str, Any] = {}
    for name in {*before, *after}:
        old, new = before.get(name), after.get(name)
        if old != new:
            changes[name] = _merge_patch(old, new) if isinstance(old, Mapping) and isinstance(new, Mapping) else new
    return changes


class Conditions:
    """The conditions that were there, with those that are set now. A transition is a change of `status`, and has its time."""

    def __init__(self, before: Iterable[Condition], now: str, generation: int) -> None:
        self._now, self._generation = now, generation
        self._all = {condition.type: condition for condition in before}

    def set(self, kind: ConditionType, holds: bool, reason: str, message: str = "") -> None:
        status = "True" if holds else "False"
        before = self._all.get(kind)
        since = before.last_transition_time if before is not None and before.status == status else self._now
        self._all[kind] = Condition.model_validate(
            {
                "type": kind,
                "status": status,
                "reason": as_reason(reason),
                "message": bounded(message, MAX_CONDITION_MESSAGE_LENGTH),
                "lastTransitionTime": since,
                "observedGeneration": self._generation,
            }
        )

    def summarize(self, phase: Phase, reason: str | None, message: str | None, *, is_up_to_date: bool = True) -> None:
        """Set Ready and Reconciling, by which kstatus (Flux, Argo CD, kpt) tells whether an object is done, at work or failed.

        A running write is at work and not done; so is a committed one of which a new generation was not reconciled yet. One
        that is suspended is neither; what is deleted they know by the object.
        """
        is_ready = phase == "Committed" and is_up_to_date
        goes_on = not is_ready and phase not in ("Stalled", "Suspended", "Deleting")
        self.set("Ready", is_ready, phase if is_ready else reason or phase, "" if is_ready else bounded(message) or "")
        self.set("Reconciling", goes_on, phase)

    def result(self) -> tuple[Condition, ...]:
        return tuple(self._all.values())


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
