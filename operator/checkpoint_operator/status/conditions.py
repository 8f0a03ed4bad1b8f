"""The conditions of a status, as Kubernetes' metav1.Condition. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from checkpoint_control.decision.phases import Phase
from checkpoint_operator.crd.status_model import MAX_CONDITION_MESSAGE_LENGTH, Condition, ConditionType, as_reason, bounded


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
