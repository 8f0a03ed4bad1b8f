"""What keeps the executors of a driver from running: what their pods tell, or why the API server admits none. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from checkpoint_control.decision.observation import Failure
from checkpoint_operator.pods.capacity import with_way_out
from checkpoint_operator.pods.driver_status import obstacle_of
from checkpoint_protocol import reasons

Pod = Mapping[str, Any]


def starvation_of(pods: Sequence[Pod], refusal: str | None) -> Failure | None:
    """Return why a driver has no executor that runs; None if it has one, or nothing is known to keep them from running.

    `pods`: those of its executors. `refusal`: what the API server says to one more of them, where there are none. A driver whose
    executors come and go has as few as it likes: while one runs, none is missing, and a pod that it gives up waits for nothing.
    """
    waiting = [pod for pod in pods if _phase(pod) == "Pending" and not pod["metadata"].get("deletionTimestamp")]
    if any(_phase(pod) == "Running" for pod in pods):
        return None
    if waiting:
        found = (obstacle_of(pod.get("status") or {}, "executor") for pod in waiting)
        told = next((obstacle for obstacle in found if obstacle is not None), None)
        if told is None:
            return None
        count = f"{len(waiting)} executor{'s wait' if len(waiting) > 1 else ' waits'}"
        return Failure("Retryable", reasons.EXECUTORS_PENDING, f"{count}, and none runs: {told.message}")
    if refusal is not None:
        return Failure(
            "Retryable",
            reasons.EXECUTORS_REFUSED,
            f"the cluster does not admit the executors' pods: {with_way_out(refusal, 'executor')}",
        )
    return None


def _phase(pod: Pod) -> str | None:
    return (pod.get("status") or {}).get("phase")
