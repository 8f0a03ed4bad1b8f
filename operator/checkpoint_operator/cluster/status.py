"""The status that follows from a round. Pure: what was there, what was seen and done, and the time, make what will be there.

For people. No rule reads it but two things that only bound effort: since when the epoch runs, and which failures still count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from checkpoint_operator.activity import describe, how_far
from checkpoint_operator.core.actions import Action, Commit, Finish, Stall, StartDriver, Wait
from checkpoint_operator.core.observation import Attempt, DriverState
from checkpoint_operator.core.rules import ENVIRONMENT
from checkpoint_operator.progress import Progress
from checkpoint_operator.reconcile import Round
from checkpoint_operator.status_model import (
    MAX_ATTEMPTS_SHOWN,
    MAX_MESSAGE_LENGTH,
    AttemptStatus,
    Cause,
    CommitStatus,
    Condition,
    ConditionType,
    Phase,
    Status,
)
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest import Source, Spec
from checkpoint_protocol.records import LaunchRecord, MarkRecord

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

_STARTING: Final = "DriverStarting"
_EDITED: Final = "the manifest was changed, and that counts from the next attempt"
#: Another value of it asks for new tries, as an edit of the spec does.
RETRY_ANNOTATION: Final = "checkpointed.dev/retry"


@dataclass(frozen=True, slots=True)
class Frame:
    """What a status is made against: the manifest's generation, the time (RFC 3339), and what was there.

    `name`, `retry`: the object's, and the value of its retry annotation.
    """

    previous: Status
    generation: int
    now: str
    spec: Spec | None
    name: str = ""
    retry: str = ""


def after_round(
    frame: Frame, done: Round, progress: Progress, failed_before: int, pod: str | None, left_s: float | None = None
) -> Status:
    """Return the status after a round. `left_s`: how long the tasks may still take."""
    assert frame.spec is not None
    last_action = done.actions[-1]
    phase = _phase(done, last_action)
    reason, message = _why(frame, done, last_action, phase, pod)
    is_new_epoch = frame.previous.epoch != done.key.epoch
    attempts = done.seen.attempts
    mark = done.mark
    started_at = None if is_new_epoch else frame.previous.started_at
    last = done.seen.last
    return frame.previous.model_copy(
        update={
            "observed_generation": frame.generation,
            "phase": phase,
            "epoch": done.key.epoch,
            "started_at": started_at or (frame.now if attempts else None),
            "attempt": last.number if last else 0,
            "progress": how_far(progress),
            "activity": describe(progress, left_s) if phase == "Running" else None,
            "tasks": progress.tasks,
            "tasks_sealed": progress.tasks_done if progress.tasks is not None else None,
            "input_files_done": progress.input_files_done or None,
            "rows_sealed": progress.rows_written,
            "rows_quarantined": progress.rows_quarantined or None,
            "rows_committed": mark.rows_written if mark else frame.previous.rows_committed,
            "run_nonce": frame.spec.run_nonce,
            "driver_pod": pod,
            "reason": reason,
            "message": _bounded(message),
            "attempts": _attempts(frame, () if is_new_epoch else frame.previous.attempts or (), attempts, pod),
            "commit": _commit(frame, done, mark) or frame.previous.commit,
            "queue_position": None if done.seen.queued is None else done.seen.queued + 1,
            "failed_before": failed_before,
            "failed_before_generation": frame.generation,
            "retried": frame.retry or None,
            "conditions": _conditions(frame, done, progress, phase, pod),
        }
    )


def starting(frame: Frame, key: EpochKey, launch: LaunchRecord, pod: str, failed_before: int) -> Status:
    """Return the status that is written before an attempt's pod is made: whatever happens then, people can find the pod.

    Where they can already, nothing is written: a pod that is refused is asked for again and again.
    """
    is_new_epoch = frame.previous.epoch != key.epoch
    if not is_new_epoch and (launch.attempt, pod) in {(known.number, known.pod) for known in frame.previous.attempts or ()}:
        return frame.previous
    known = () if is_new_epoch else tuple(a for a in frame.previous.attempts or () if a.number != launch.attempt)
    attempt = AttemptStatus(number=launch.attempt, pod=pod, code_digest=launch.code_digest, recorded_at=frame.now)
    conditions = _Conditions(frame)
    conditions.set("Accepted", True, "ManifestValid", _way(launch.source))
    conditions.set("Running", False, _STARTING, f"the pod {pod} is asked for")
    conditions.set("Sealed", False, "WorkLeft")
    conditions.set("Committed", False, "NotYet")
    conditions.set("Stalled", False, "Going")
    return frame.previous.model_copy(
        update={
            "observed_generation": frame.generation,
            "phase": "Pending",
            "epoch": key.epoch,
            "started_at": (None if is_new_epoch else frame.previous.started_at) or frame.now,
            "queue_position": None,
            "attempt": launch.attempt,
            "progress": None if is_new_epoch else frame.previous.progress,
            "rows_sealed": frame.previous.rows_sealed or 0 if not is_new_epoch else 0,
            "rows_quarantined": None if is_new_epoch else frame.previous.rows_quarantined,
            "run_nonce": launch.run_nonce,
            "driver_pod": pod,
            "activity": None,
            "reason": _STARTING,
            "message": f"the pod {pod} is asked for",
            "attempts": (*known, attempt)[-MAX_ATTEMPTS_SHOWN:],
            "failed_before": failed_before,
            "failed_before_generation": frame.generation,
            "retried": frame.retry or None,
            "conditions": conditions.result(),
        }
    )


def committing(frame: Frame) -> Status:
    """Return the status that is written before a commit is tried; one that was refused is tried again without a word."""
    if frame.previous.phase in ("Stalled", "Committing"):
        return frame.previous
    conditions = _Conditions(frame)
    conditions.set("Running", False, "AllSealed")
    conditions.set("Sealed", True, "AllSealed")
    conditions.set("Stalled", False, "Going")
    return frame.previous.model_copy(
        update={
            "observed_generation": frame.generation,
            "phase": "Committing",
            "reason": None,
            "message": None,
            "activity": None,
            "conditions": conditions.result(),
        }
    )


def stalled(frame: Frame, reason: str, message: str) -> Status:
    """Return the status of a write that cannot even be looked at until a person acts."""
    is_manifest = reason in (reasons.MANIFEST_INVALID, reasons.IDENTITY_CHANGED)
    conditions = _Conditions(frame)
    conditions.set("Accepted", not is_manifest, reason if is_manifest else "ManifestValid", message if is_manifest else "")
    conditions.set("Stalled", True, reason, message)
    return frame.previous.model_copy(
        update={
            "observed_generation": frame.generation,
            "phase": "Stalled",
            "activity": None,
            "reason": reason,
            "message": _bounded(message),
            "conditions": conditions.result(),
        }
    )


def in_trouble(frame: Frame, reason: str, message: str) -> Status:
    """Return the status while something outside does not answer: all stays as it was, and what is missing is said, once."""
    if frame.previous.reason == reason:
        return frame.previous
    phase = frame.previous.phase or "Pending"
    conditions = _Conditions(frame)
    if phase == "Committing":
        conditions.set("Committed", False, reason, message)
    else:
        conditions.set("Running", phase == "Running", reason, message)
    return frame.previous.model_copy(
        update={
            "observed_generation": frame.generation,
            "phase": phase,
            "reason": reason,
            "message": _bounded(message),
            "conditions": conditions.result(),
        }
    )


def deleting(frame: Frame, reason: str, message: str) -> Status:
    """Return the status of a write that is deleted and whose end is held up."""
    conditions = _Conditions(frame)
    conditions.set("Stalled", True, reason, message)
    return frame.previous.model_copy(
        update={"phase": "Deleting", "reason": reason, "message": _bounded(message), "conditions": conditions.result()}
    )


def is_finished(status: Status, uid: str, spec: Spec, generation: int) -> bool:
    """Whether the status says that nothing is left to do. Only saves a look into the store: what it says was seen there."""
    return (
        condition_of(status, "Committed") == "True"
        and status.observed_generation == generation
        and status.run_nonce == spec.run_nonce
        and status.commit is not None
        and status.commit.key == f"{uid}/{status.epoch}"
    )


def condition_of(status: Status, kind: ConditionType) -> str | None:
    return next((condition.status for condition in status.conditions or () if condition.type == kind), None)


def cause_of(reason: str | None) -> Cause:
    """Return the class of an attempt's end."""
    return _CAUSES.get(reason or "", "Unknown")


# --- parts ----------------------------------------------------------------------------------------------------------------


def _phase(done: Round, last_action: Action) -> Phase:
    last = done.seen.last
    match last_action:
        case Finish():
            return "Committed"
        case Stall():
            return "Stalled"
        case Commit():
            return "Committing"
        case Wait() if done.seen.is_suspended:
            return "Suspended"
    if last is not None and (last.is_complete or last.is_sealed):
        return "Sealed"
    if last is not None and not last.is_closed and last.driver in (DriverState.RUNNING, DriverState.ELSEWHERE):
        return "Running"
    return "Pending"


def _why(frame: Frame, done: Round, last_action: Action, phase: Phase, pod: str | None) -> tuple[str | None, str | None]:
    match last_action:
        case Stall(reason, message) if reason in ENVIRONMENT:
            command = (
                f"kubectl annotate checkpointedwrite {frame.name} {RETRY_ANNOTATION}={done.seen.attempts[-1].number} --overwrite"
            )
            ending = f"; it is looked at again within the hour, and at once with: {command}"
            return reason, f"{_bounded(message, MAX_MESSAGE_LENGTH - len(ending))}{ending}"
        case Stall(reason, message):
            return reason, message
        case Wait(_, trouble) if trouble is not None:
            return trouble.reason, trouble.message
        case StartDriver() | Wait() if _is_starting(done):
            return _STARTING, f"the pod {pod} is asked for"
        case Wait(for_what, _) if phase != "Running":
            return "Waiting", f"waiting for {for_what}"
    return None, None


def _is_starting(done: Round) -> bool:
    last = done.seen.last
    return last is not None and not last.is_closed and last.driver in (DriverState.NOT_STARTED, DriverState.STARTING)


def _attempts(
    frame: Frame, known: Iterable[AttemptStatus], seen: Iterable[Attempt], pod: str | None
) -> tuple[AttemptStatus, ...] | None:
    before = {attempt.number: attempt for attempt in known}
    shown = [_attempt(frame, before.get(attempt.number), attempt, pod) for attempt in list(seen)[-MAX_ATTEMPTS_SHOWN:]]
    return tuple(shown) or None


def _attempt(frame: Frame, before: AttemptStatus | None, attempt: Attempt, pod: str | None) -> AttemptStatus:
    shown = before or AttemptStatus(number=attempt.number, code_digest=attempt.code_digest, recorded_at=frame.now)
    if not attempt.is_closed:
        return shown.model_copy(update={"pod": pod or shown.pod})
    failure = attempt.failure
    return shown.model_copy(
        update={
            "closed_at": shown.closed_at or frame.now,
            "cause": "Completed" if attempt.is_complete else cause_of(failure.reason if failure else None),
            "message": _bounded(failure.message) if failure and not attempt.is_complete else None,
        }
    )


def _commit(frame: Frame, done: Round, mark: MarkRecord | None) -> CommitStatus | None:
    if mark is None or frame.spec is None:
        return None
    before = frame.previous.commit
    return CommitStatus(
        format=frame.spec.sink.format,
        target=mark.target[:1024],
        id=None if mark.commit_id is None else str(mark.commit_id),
        key=mark.key,
        committed_at=before.committed_at if before is not None and before.key == str(done.key) else frame.now,
    )


class _Conditions:
    """The conditions that were there, with those that are set now. A transition is a change of `status`, and has its time."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._all = {condition.type: condition for condition in frame.previous.conditions or ()}

    def set(self, kind: ConditionType, holds: bool, reason: str, message: str = "") -> None:
        status = "True" if holds else "False"
        before = self._all.get(kind)
        since = before.last_transition_time if before is not None and before.status == status else self._frame.now
        self._all[kind] = Condition.model_validate(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": since,
                "observedGeneration": self._frame.generation,
            }
        )

    def result(self) -> tuple[Condition, ...]:
        return tuple(self._all.values())


def _conditions(frame: Frame, done: Round, progress: Progress, phase: Phase, pod: str | None) -> tuple[Condition, ...]:
    last_action, last = done.actions[-1], done.seen.last
    is_committed = phase == "Committed"
    is_sealed = is_committed or phase == "Committing" or (last is not None and last.is_complete)
    reason, message = _why(frame, done, last_action, phase, pod)
    conditions = _Conditions(frame)
    if last is not None and last.is_edited and phase == "Running":
        conditions.set("Accepted", True, "EditWaits", f"{_EDITED}; the driver of attempt {last.number} goes on without it")
    else:
        conditions.set("Accepted", True, "ManifestValid", _way(frame.spec.source) if frame.spec else "")
    conditions.set("Running", phase == "Running", reason or ("DriverAtWork" if phase == "Running" else phase), message or "")
    conditions.set("Sealed", is_sealed, "AllSealed" if is_sealed else "WorkLeft")
    quarantined = f"{progress.rows_quarantined:,} rows are quarantined, and not in the table" if progress.rows_quarantined else ""
    rolled_back = (
        "the table was rolled back to before this commit: its rows are not in the current state" if _is_lost(done) else ""
    )
    said = "; ".join(filter(None, (rolled_back, quarantined)))
    conditions.set("Committed", is_committed, "CommitSeen" if is_committed else "NotYet", said if is_committed else "")
    conditions.set(
        "Stalled",
        phase == "Stalled",
        reason or phase if phase == "Stalled" else "Going",
        message or "" if phase == "Stalled" else "",
    )
    return conditions.result()


def _is_lost(done: Round) -> bool:
    return done.mark is not None and done.mark.was_rolled_back


def _way(source: Source) -> str:
    """Say how rows are known, and why so."""
    return f"{'dataframes' if source.is_dataframe else 'splits'}: {source.why_this_way}"


def _bounded(text: str | None, most: int = MAX_MESSAGE_LENGTH) -> str | None:
    return text if text is None or len(text) <= most else f"{text[: most - 3]}..."
