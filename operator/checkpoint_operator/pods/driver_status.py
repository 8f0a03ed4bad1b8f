"""What a driver's pod tells: at work, kept from starting and by what, ended and why. Pure.

Read for people, for restarts and for the backoff. Whether a driver has done its work is read from the store, never from here.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from checkpoint_control.decision.observation import DriverObservation, DriverState, Failure
from checkpoint_operator.pods.driver_pod import DRIVER_CONTAINER, EDIT_ANNOTATION, GENERATION_ANNOTATION
from checkpoint_protocol import reasons
from checkpoint_protocol.printable import printable
from checkpoint_protocol.progress_reports import read_last_words

Pod = Mapping[str, Any]

_IMAGE_WORDS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}
)
_INCOMPLETE_WORDS: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
#: What a DisruptionTarget condition says (kubernetes.io: Pod disruption conditions), where it is not an eviction.
_DISRUPTIONS: Final = {
    "PreemptionByScheduler": reasons.DRIVER_PREEMPTED,
    "DeletionByTaintManager": reasons.NODE_LOST,
    "DeletionByPodGC": reasons.NODE_LOST,
}
_MOST_TEXT: Final = 1000
_SIGKILL: Final = 137
_SIGTERM: Final = 143


def observe_pod(pod: Pod | None, generation: int, digest: str = "") -> DriverObservation:
    """Return what a driver's pod says. None: there is no such pod, so nobody has started the driver, or somebody removed it.

    Only the caller may know which; `problem` is what to say if it was removed.
    """
    if pod is None:
        return DriverObservation(
            DriverState.NOT_STARTED, _failure(reasons.DRIVER_DELETED, "the driver's pod is gone: it was deleted")
        )
    annotations = pod["metadata"].get("annotations") or {}
    is_outdated = annotations.get(GENERATION_ANNOTATION) != str(generation)
    status = pod.get("status") or {}
    if (end := _end(pod, status)) is not None:
        return DriverObservation(DriverState.GONE, end, is_outdated)
    if (obstacle := obstacle_of(status, "driver")) is not None:
        return DriverObservation(DriverState.STARTING, obstacle, is_outdated)
    state = DriverState.RUNNING if status.get("phase") == "Running" else DriverState.STARTING
    return DriverObservation(state, None, is_outdated, annotations.get(EDIT_ANNOTATION, digest) != digest)


@dataclass(frozen=True, slots=True)
class PodStart:
    """Seconds from the creation of a pod until it was scheduled, and until its container was started; None: it was not yet."""

    scheduled_s: float | None
    container_s: float | None


def start_of(pod: Pod) -> PodStart:
    """Return how long the pod took to start, by its own times."""
    status = pod.get("status") or {}
    scheduled = next(
        (one.get("lastTransitionTime") for one in status.get("conditions") or () if _is_true(one, "PodScheduled")), None
    )
    containers = (one.get("state") or {} for one in status.get("containerStatuses") or () if one.get("name") == DRIVER_CONTAINER)
    states = next(containers, {})
    container = next((state.get("startedAt") for name in ("running", "terminated") if (state := states.get(name))), None)
    created = datetime.datetime.fromisoformat(pod["metadata"]["creationTimestamp"])

    def after_s(moment: str | None) -> float | None:
        return max(0.0, (datetime.datetime.fromisoformat(moment) - created).total_seconds()) if moment else None

    return PodStart(after_s(scheduled), after_s(container))


def _is_true(condition: Mapping[str, Any], kind: str) -> bool:
    return condition.get("type") == kind and condition.get("status") == "True"


def _end(pod: Pod, status: Mapping[str, Any]) -> Failure | None:
    for condition in status.get("conditions") or ():
        if _is_true(condition, "DisruptionTarget"):
            word = condition.get("reason", "")
            text = f"the driver's pod was taken away: {word}: {condition.get('message', '')}"
            return _failure(_DISRUPTIONS.get(word, reasons.DRIVER_EVICTED), text)
    if (word := status.get("reason")) in ("Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated"):
        reason = reasons.NODE_LOST if word == "NodeLost" else reasons.DRIVER_EVICTED
        return _failure(reason, f"the driver's pod was taken away: {word}: {status.get('message', '')}")
    is_deleted = pod["metadata"].get("deletionTimestamp") is not None
    for container in _containers(status):
        ended = (container.get("state") or {}).get("terminated")
        # A pod that is deleted has its processes ended by signals: that is no failure of theirs.
        is_by_signal = ended is not None and ended.get("exitCode") in (_SIGTERM, _SIGKILL) and ended.get("reason") != "OOMKilled"
        if ended is not None and container.get("name") == DRIVER_CONTAINER and not (is_deleted and is_by_signal):
            return _ended(ended)
    if is_deleted:
        return _failure(reasons.DRIVER_DELETED, "the driver's pod was deleted")
    if status.get("phase") in ("Failed", "Succeeded"):
        return _failure(reasons.DRIVER_FAILED, f"the driver's pod ended: {status.get('reason', '')} {status.get('message', '')}")
    return None


def _ended(ended: Mapping[str, Any]) -> Failure:
    code, reason = ended.get("exitCode"), ended.get("reason", "")
    if reason == "OOMKilled":
        return _failure(
            reasons.DRIVER_OUT_OF_MEMORY,
            "the driver took more memory than its pod may (OOMKilled); raise spec.driver.memory, or spec.driver.memoryOverhead "
            "for what Python takes",
        )
    if reason in ("ContainerCannotRun", "StartError"):
        return _failure(reasons.IMAGE_UNAVAILABLE, f"the driver's container could not be run: {ended.get('message', '')}")
    if code == _SIGKILL:
        return _failure(reasons.DRIVER_FAILED, "the driver was killed (exit code 137)")
    if last_words := str(ended.get("message") or "").strip():
        said = read_last_words(last_words)
        if said is not None and reasons.is_of_drivers(said.reason):
            return Failure(said.family, said.reason, printable(" ".join(said.message.split())[:_MOST_TEXT]))
        return _failure(reasons.DRIVER_FAILED, f"the driver ended with exit code {code}: {last_words}")
    return _failure(
        reasons.DRIVER_FAILED, f"the driver ended with exit code {code} and did not say why; its log may: kubectl logs"
    )


def obstacle_of(status: Mapping[str, Any], role: str) -> Failure | None:
    """Return what keeps a pod from starting, by its status; None if nothing does, as far as it tells."""
    for container in _containers(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, text = waiting.get("reason", ""), waiting.get("message", "")
        if reason in _IMAGE_WORDS:
            image = container.get("image", "?")
            return _failure(
                reasons.IMAGE_UNAVAILABLE, f"{reason}: {text or image}; correct spec.image, or give the node access to it"
            )
        if reason in _INCOMPLETE_WORDS:
            return _failure(reasons.POD_INCOMPLETE, f"{reason}: {text}; make what is missing, or correct its name")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            text = f"{condition.get('reason', '')}: {condition.get('message', '')}"
            return _failure(reasons.POD_UNSCHEDULABLE, f"no node takes the {role}'s pod: {text}")
    return None


def _containers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _failure(reason: str, message: str) -> Failure:
    return Failure("Retryable", reason, printable(" ".join(message.split())[:_MOST_TEXT]))
