"""The status that follows from a round. Pure: what was there, the round (observation, decision, outcome), and the time make it.

For people. No rule reads it but two things that only bound effort: since when the epoch runs, and which failures still count.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import Final, assert_never

from checkpoint_control.decision.actions import Commit, Finish, Stall, StartDriver, Wait
from checkpoint_control.decision.code_changes import Approval
from checkpoint_control.decision.observation import DriverState
from checkpoint_control.decision.phases import Phase, phase_after_error, phase_of
from checkpoint_control.decision.rules import ENVIRONMENT
from checkpoint_control.decision.triggers import News, next_epoch
from checkpoint_control.loop.reconcile import Round
from checkpoint_control.pipelines.decisions import IN_WORDS, named
from checkpoint_control.progress.epoch_progress import Progress, describe, how_far
from checkpoint_control.views.reason_texts import with_command
from checkpoint_operator.crd.status_model import (
    MAX_EPOCHS_SHOWN,
    MAX_MESSAGE_LENGTH,
    CommitStatus,
    Condition,
    ConditionType,
    EpochStatus,
    StageStatus,
    Status,
    bounded,
    fitted,
)
from checkpoint_operator.pods.driver_pod import Owner, pod_name
from checkpoint_operator.status.object_status import Conditions, attempts_shown
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.quantities import counted, format_size
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.manifest.spec import Spec

_ROOM_FOR_A_COMMAND: Final = 100
_STARTING: Final = "DriverStarting"
_EDITED: Final = "the manifest was changed, and the change counts from the next attempt"
#: Another value of it asks for new tries, as an edit of the spec does.
RETRY_ANNOTATION: Final = "checkpointed.dev/retry"
#: What a person has decided where the manifest says onCodeChange: Ask, and of which code.
APPROVE_ANNOTATION: Final = "checkpointed.dev/approve"


@dataclass(frozen=True, slots=True)
class Failed:
    """A round that an error has ended, or kept from beginning. `may_pass`: it is tried again by itself."""

    reason: str
    message: str
    may_pass: bool


@dataclass(frozen=True, slots=True)
class DeletionWaits:
    """The write is deleted, and something holds that up."""

    reason: str
    message: str


#: What a status follows from.
Outcome = Round | Failed | DeletionWaits


@dataclass(frozen=True, slots=True)
class Figures:
    """How far the epoch is by a round, and how long its tasks may still take."""

    progress: Progress
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """What a status is made against: what was there, whose it is, the time (RFC 3339) and the manifest, if that can be read."""

    previous: Status
    owner: Owner
    now: str
    spec: Spec | None
    #: As the status names this operator.
    operator: str | None = None

    @property
    def conditions(self) -> Conditions:
        return Conditions(self.previous.conditions or (), self.now, self.owner.generation)


def derive(frame: Frame, outcome: Outcome, figures: Figures | None = None) -> Status:
    """Return the status after a round, or, where only its decision is made, before what people must be able to find."""
    return fitted(_derived(frame, outcome, figures))


def _derived(frame: Frame, outcome: Outcome, figures: Figures | None) -> Status:
    match outcome:
        case Round() if outcome.is_decision and not _is_told_before(frame, outcome):
            return frame.previous
        case Round():
            return _after_round(frame, outcome, figures)
        case Failed():
            return _after_error(frame, outcome)
        case DeletionWaits(reason, message):
            conditions = frame.conditions
            conditions.set("Stalled", True, reason, with_command(reason, message))
            said = _message(reason, message)
            conditions.summarize("Deleting", reason, said)
            return frame.previous.model_copy(
                update={"phase": "Deleting", "reason": reason, "message": said, "conditions": conditions.result()}
            )
        case _:
            assert_never(outcome)


def is_finished(status: Status, owner: Owner, spec: Spec) -> bool:
    """Whether the status says that nothing is left to do. Only saves a request to the store: what it says was seen there.

    Of this very object: one that was restored from a backup may bring a status of long ago.
    """
    return (
        condition_of(status, "Committed") == "True"
        and (status.observed_uid, status.observed_generation) == (owner.uid, owner.generation)
        and status.commit is not None
        and status.epoch is not None
        and status.run_nonce is not None
        and spec.trigger is None
        and spec.source.stream is None
        and next_epoch(status.epoch, status.run_nonce, spec.run_nonce) is None
        and status.commit.key == f"{status.write_uid}/{status.epoch}"
    )


def condition_of(status: Status, kind: ConditionType) -> str | None:
    return next((condition.status for condition in status.conditions or () if condition.type == kind), None)


# --- rounds ---------------------------------------------------------------------------------------------------------------


def _is_told_before(frame: Frame, decided: Round) -> bool:
    """Whether a decision is told before it is carried out: a pod that is asked for, so that people find it, and a commit.

    Once: a pod that is refused is asked for again and again, and so is a commit.
    """
    match decided.actions[-1]:
        case StartDriver(attempt):
            known = frame.previous.attempts or () if _is_about(frame.previous, decided.key) else ()
            return (attempt, _pod(frame, decided)) not in {(shown.number, shown.pod) for shown in known}
        case Commit() if not decided.key.stage:
            return frame.previous.phase not in ("Stalled", "Committing")
    return False


def _is_about(status: Status, key: EpochKey) -> bool:
    """Whether a status tells of the attempts of this epoch, or of this stage of it."""
    return status.epoch == key.epoch and (status.stage or "") == key.stage


def _is_of_pipeline(key: EpochKey) -> bool:
    """Whether this is one of spec.stages, but for the last: not a stage that the commit needs, such as a merge."""
    return named(key.stage) is not None


def _after_round(frame: Frame, done: Round, figures: Figures | None) -> Status:
    assert frame.spec is not None
    previous, seen, last = frame.previous, done.seen, done.seen.last
    pod = _pod(frame, done)
    phase = phase_of(
        last,
        is_committed=seen.is_committed or _is_up_to_date(done),
        is_suspended=seen.is_suspended,
        is_of_stage=bool(done.key.stage),
        decided=done.actions[-1],
    )
    if phase == "Sealed" and _is_of_pipeline(done.key):
        phase = "Pending"  # the next stage begins
    reason, message = _why(frame, done, phase, pod)
    is_new_epoch = previous.epoch != done.key.epoch
    is_same = _is_about(previous, done.key)
    status = previous.model_copy(
        update={
            "observed_uid": frame.owner.uid,
            "write_uid": done.key.uid,
            "observed_generation": frame.owner.generation,
            "operator": frame.operator,
            "phase": phase,
            "epoch": done.key.epoch,
            "stage": done.key.stage or None,
            "started_at": (None if is_new_epoch else previous.started_at) or (frame.now if seen.attempts else None),
            "attempt": last.number if last else 0,
            "run_nonce": _run_nonce(frame.spec, previous, done),
            "driver_pod": pod,
            "reason": reason,
            "message": _message(reason, message),
            "attempts": attempts_shown(frame.now, previous.attempts or () if is_same else (), seen.attempts, pod),
            "commit": _commit(frame, done) or previous.commit,
            "epochs": _epochs(frame, done),
            "stages": _stages(frame, done),
            "rows_committed": done.last_commit[1].rows_written if done.last_commit else previous.rows_committed,
            "queue_position": None if seen.queued is None else seen.queued + 1,
            "failed_before": seen.first_counted_failure - 1,
            "failed_before_generation": frame.owner.generation,
            "retried": frame.owner.retry or None,
            **_times(frame, done),
            **_figures(frame, done, phase, figures),
        }
    )
    return status.model_copy(update={"conditions": _conditions(frame, done, status)})


def _is_up_to_date(done: Round) -> bool:
    """Whether the query of a stream has ended, and all that it had is in the table."""
    return done.seen.before is not None and isinstance(done.outcome, Finish)


def _run_nonce(spec: Spec, previous: Status, done: Round) -> str | None:
    """Return with what the epoch was begun. A stage does not know: what was said of its epoch stays."""
    if done.key.stage:
        return previous.run_nonce if previous.epoch == done.key.epoch else None
    return spec.run_nonce if done.seen.began_with is None else done.seen.began_with


def _times(frame: Frame, done: Round) -> dict[str, object]:
    """Return since when the latest attempt has made no progress, or has had no executor, for the operator that comes next.

    Times that stand in the status stay as long as they say the same: each look counts them anew, a moment later or earlier.
    """
    previous, last = frame.previous, done.seen.last
    if last is None or last.mark is None:
        return {"progressed_at": None, "progress_mark": None, "starved_since": None}
    is_same = _is_about(previous, done.key) and previous.progress_mark == last.mark
    is_starved = last.starved is not None
    stays = is_same and previous.progressed_at is not None and (previous.starved_since is not None) == is_starved
    return {
        "progressed_at": previous.progressed_at if stays else _before(frame.now, last.idle_s),
        "progress_mark": last.mark,
        "starved_since": None if not is_starved else previous.starved_since if stays else _before(frame.now, last.starved_s),
    }


def _before(now: str, seconds: float) -> str:
    moment = datetime.datetime.fromisoformat(now) - datetime.timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _figures(frame: Frame, done: Round, phase: Phase, figures: Figures | None) -> dict[str, object]:
    """Return what is said of how far the epoch is, or its stage. Before a round is carried out, what was said of it stays.

    Rows that failed are those of the epoch: what a stage before has quarantined stays said, and so does all while a merge, or
    whatever else the commit needs, is at work.
    """
    if figures is None and _is_about(frame.previous, done.key):
        return {"activity": None}
    is_of_commit = bool(done.key.stage) and not _is_of_pipeline(done.key)
    stays = frame.previous.epoch == done.key.epoch and (figures is None or is_of_commit)
    progress = figures.progress if figures is not None else Progress(0, None, 0, 0, 0, 0, 0)
    return {
        "progress": how_far(progress),
        "activity": describe(progress, figures.left_s) if figures is not None and phase == "Running" else None,
        "tasks": progress.tasks,
        "tasks_sealed": progress.tasks_done if progress.tasks is not None else None,
        "input_files_done": progress.input_files_done or None,
        "rows_sealed": progress.rows_written,
        "rows_quarantined": frame.previous.rows_quarantined if stays else progress.rows_failed or None,
    }


def _pod(frame: Frame, done: Round) -> str | None:
    last = done.seen.last
    return pod_name(frame.owner.name, *(last.place or (done.key, last.number))) if last is not None else None


def _named(frame: Frame) -> str:
    return f"{frame.owner.name} -n {frame.owner.namespace}"


def _why(frame: Frame, done: Round, phase: Phase, pod: str | None) -> tuple[str | None, str | None]:
    match done.actions[-1]:
        case Stall(reason, message) if reason in ENVIRONMENT and done.seen.attempts:
            number = done.seen.attempts[-1].number
            command = f"kubectl annotate checkpointedwrite {_named(frame)} {RETRY_ANNOTATION}={number} --overwrite"
            ending = f"; the operator tries again within an hour, or at once if you run: {command}"
            return reason, f"{bounded(message, MAX_MESSAGE_LENGTH - len(ending))}{ending}"
        case Stall(reasons.CODE_CHANGED as reason, message) if done.seen.change is not None:
            value = Approval("Continue", done.seen.change.digest)
            command = f"kubectl annotate checkpointedwrite {_named(frame)} {APPROVE_ANNOTATION}={value} --overwrite"
            ending = f"; approve it with: {command} (or {replace(value, choice='Restart')})"
            return reason, f"{bounded(message, MAX_MESSAGE_LENGTH - len(ending))}{ending}"
        case Stall(reason, message):
            return reason, message
        case Wait(_, problem) if problem is not None:
            return problem.reason, problem.message
        case StartDriver() | Wait() if _is_starting(done):
            return _STARTING, f"the pod {pod} was requested"
        case Wait(for_what, _) if phase != "Running":
            return "Waiting", f"waiting for {for_what}"
    return None, None


def _message(reason: str | None, message: str | None) -> str | None:
    """Return a message as the status says it, with the command that explains its reason behind it, which is not cut."""
    if reason is None or message is None:
        return bounded(message)
    return with_command(reason, bounded(message, MAX_MESSAGE_LENGTH - len(with_command(reason, ""))) or "")


def _is_starting(done: Round) -> bool:
    last = done.seen.last
    return last is not None and not last.is_closed and last.driver in (DriverState.NOT_STARTED, DriverState.STARTING)


def _commit(frame: Frame, done: Round) -> CommitStatus | None:
    if done.last_commit is None or frame.spec is None:
        return None
    key, commit = done.last_commit
    before = frame.previous.commit
    return CommitStatus(
        format=frame.spec.sink.format,
        target=commit.target[:1024],
        id=None if commit.commit_id is None else str(commit.commit_id)[:20],
        key=commit.key[:128],
        committed_at=before.committed_at if before is not None and before.key == str(key) else frame.now,
    )


def _epochs(frame: Frame, done: Round) -> tuple[EpochStatus, ...] | None:
    """Return the last epochs that are committed, of a write with a trigger."""
    before, commit = frame.previous.epochs or (), done.commit
    if not done.seen.goes_on or commit is None or done.key.stage or any(one.number == done.key.epoch for one in before):
        return frame.previous.epochs
    mine = EpochStatus(
        number=done.key.epoch,
        committed_at=frame.now,
        id=None if commit.commit_id is None else str(commit.commit_id)[:20],
        rows=commit.rows_written,
    )
    return (*before, mine)[-MAX_EPOCHS_SHOWN:]


def _conditions(frame: Frame, done: Round, status: Status) -> tuple[Condition, ...]:
    last, phase = done.seen.last, status.phase
    # A condition's message may be longer than the status's own.
    reason, message = _why(frame, done, phase or "Pending", status.driver_pod)
    is_committed, is_sealed = phase == "Committed", _are_all_rows_sealed(done, phase)
    conditions = frame.conditions
    if last is not None and last.is_edited and phase == "Running":
        conditions.set(
            "Accepted", True, "EditWaits", f"{_EDITED}; the driver of attempt {last.number} continues without the change"
        )
    else:
        attached = done.key.uid != frame.owner.uid
        before = f"it continues the write {done.key.uid}, which an earlier object of its name began; " if attached else ""
        identified_by = _identified_by(frame.spec.source) if frame.spec else ""
        conditions.set("Accepted", True, "Attached" if attached else "ManifestValid", f"{before}{identified_by}")
    of_phase = {"Running": "DriverAtWork", "Committing": "AllSealed"}.get(phase or "", phase or "Pending")
    conditions.set("Running", phase == "Running", reason or of_phase, message or "")
    conditions.set("Sealed", is_sealed, "AllSealed" if is_sealed else "WorkLeft")
    if is_committed:
        conditions.set("Committed", True, "CommitSeen", _said_of_commit(done, status))
    else:
        conditions.set("Committed", False, "NotYet")
    if phase == "Stalled":
        conditions.set("Stalled", True, reason or phase, with_command(reason or phase, message or ""))
    else:
        conditions.set("Stalled", False, "Going")
    conditions.summarize(phase or "Pending", status.reason, status.message)
    if done.seen.goes_on and not done.key.stage:
        _say_how_far_behind(conditions, done)
    return conditions.result()


def _are_all_rows_sealed(done: Round, phase: Phase | None) -> bool:
    """Return whether all rows that the epoch commits are sealed.

    Stages of a pipeline come before these rows; a stage that the commit needs, such as a merge, begins when they are sealed.
    """
    if done.key.stage:
        return not _is_of_pipeline(done.key)
    last = done.seen.last
    return phase in ("Committing", "Committed") or (last is not None and last.is_complete)


def _say_how_far_behind(conditions: Conditions, done: Round) -> None:
    """Set whether all that a look has found is taken. Without another look, or other news, it stays as it was."""
    between = done.seen.between
    if not done.seen.is_committed:
        conditions.set("UpToDate", False, "EpochAtWork", f"epoch {done.key.epoch} is taking the new input")
    elif between is not None:
        # Before another look it is as when the epoch fixed what it takes.
        news = between.news or News()
        if not news.counted:
            conditions.set(
                "UpToDate", True, "NotLookedAt", "only a driver can tell what is new, so each due time begins an epoch"
            )
        elif news.is_any:
            since = f" since {news.since.strftime('%Y-%m-%dT%H:%M:%SZ')}" if news.since is not None else ""
            waits = "" if between.begins else "; trigger.atLeast waits for more"
            behind = f"{counted(news.files, 'new file')}, {format_size(news.size_bytes)}{since}{waits}"
            conditions.set("UpToDate", False, "Behind", behind)
        else:
            conditions.set("UpToDate", True, "NothingNew", f"epoch {done.key.epoch} has taken all input that was found")


def _stages(frame: Frame, done: Round) -> tuple[StageStatus, ...] | None:
    """Return what becomes of the stages; what was said of the epoch stays where this round has not decided it."""
    if (done.seen.is_committed and not done.key.stage) or frame.spec is None or not frame.spec.stages:
        return None
    if not done.stages:
        return frame.previous.stages if frame.previous.epoch == done.key.epoch else None
    return tuple(
        StageStatus(name=one.name, what=one.what, because="; ".join(IN_WORDS[cause] for cause in one.because) or None)
        for one in done.stages
    )


def _said_of_commit(done: Round, status: Status) -> str:
    rolled_back = done.commit is not None and done.commit.was_rolled_back
    failed = status.rows_quarantined or 0
    return "; ".join(
        text
        for text, is_so in (
            ("the table was rolled back to a state before this commit, so its rows are not in the current state", rolled_back),
            (f"{counted(failed, 'row is', 'rows are')} quarantined, and not in the table", failed > 0),
        )
        if is_so
    )


def _identified_by(source: Source) -> str:
    return f"a row is identified by its {source.row_identity}"


# --- errors ---------------------------------------------------------------------------------------------------------------


def _of_another_operator(message: str, other: str | None) -> str:
    """Say of a record with a foreign MAC whose it is likely to be, before anybody looks for an attacker."""
    ending = (
        f"; the operator with the record keys {other} has worked on this write: if it still runs, let only one of the two watch "
        "this namespace (watch.namespaces in the chart's values); if it is gone, give its keys to this one "
        "(recordKeys.existingSecret)"
    )
    return f"{bounded(message, MAX_MESSAGE_LENGTH - len(ending) - _ROOM_FOR_A_COMMAND)}{ending}"


def _after_error(frame: Frame, error: Failed) -> Status:
    """Return the status of a write that cannot be reconciled until a person acts, or until something outside answers.

    In the second case all stays as it was, and what is missing is said, once.
    """
    if error.may_pass and frame.previous.reason == error.reason:
        return frame.previous
    if error.reason == reasons.RECORD_FORGED and frame.previous.operator not in (None, frame.operator):
        error = replace(error, message=_of_another_operator(error.message, frame.previous.operator))
    phase = phase_after_error(error.may_pass, frame.previous.phase)
    conditions = frame.conditions
    if not error.may_pass:
        is_manifest = error.reason in (reasons.MANIFEST_INVALID, reasons.IDENTITY_CHANGED)
        said = with_command(error.reason, error.message)
        accepted = (error.reason, said) if is_manifest else ("ManifestValid", "")
        conditions.set("Accepted", not is_manifest, *accepted)
        conditions.set("Stalled", True, error.reason, said)
    elif phase == "Committing":
        conditions.set("Committed", False, error.reason, error.message)
    else:
        conditions.set("Running", phase == "Running", error.reason, error.message)
    message = _message(error.reason, error.message)
    conditions.summarize(phase, error.reason, message, is_up_to_date=False)
    return frame.previous.model_copy(
        update={
            "observed_generation": frame.owner.generation,
            "phase": phase,
            "activity": frame.previous.activity if error.may_pass else None,
            "reason": error.reason,
            "message": message,
            "conditions": conditions.result(),
        }
    )
