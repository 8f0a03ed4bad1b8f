"""The decision as an ordered list of rules: the first that applies wins. The list is the specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from checkpoint_control.decision.actions import (
    Action,
    Close,
    Commit,
    Finish,
    MakeTable,
    OpenEpoch,
    RecordAttempt,
    Stall,
    StartDriver,
    StopDriver,
    StopKeptDriver,
    Wait,
)
from checkpoint_control.decision.code_changes import ask_before_results_are_mixed_or_dropped, is_of_now
from checkpoint_control.decision.observation import Attempt, DriverState, Failure, Observation, RowErrorLimit
from checkpoint_control.decision.table_rules import TABLE_RULES, Rule
from checkpoint_control.decision.triggers import next_epoch
from checkpoint_protocol import reasons
from checkpoint_protocol.manifest.quantities import counted

#: Why an attempt ends that is at work.
_SUSPENDED: Final = Failure("Retryable", reasons.WRITE_SUSPENDED, "the write is suspended")
_OVERDUE: Final = Failure("Retryable", reasons.DEADLINE_EXCEEDED, "activeDeadlineSeconds has passed")
#: Attempts that were ended by what a person wants do not count as failed, ...
_WANTED: Final = frozenset({reasons.WRITE_SUSPENDED, reasons.DRIVER_REPLACED, reasons.SOURCE_EDITED, reasons.STREAM_ENDED})
#: ... nor do those whose driver's place was taken away, as for the pods of a Job that ignores DisruptionTarget.
_DISRUPTED: Final = frozenset({reasons.DRIVER_EVICTED, reasons.DRIVER_PREEMPTED, reasons.DRIVER_DELETED, reasons.NODE_LOST})
#: ... nor those that had no executors, and gave their place to others.
_STARVED: Final = frozenset({reasons.EXECUTORS_PENDING, reasons.EXECUTORS_REFUSED})
#: ... nor those that a service ended which their steps call: an outage lasts as long as it does.
_OUTSIDE: Final = frozenset({reasons.SERVICE_UNAVAILABLE})
_NOT_THEIRS: Final = _DISRUPTED | _STARVED | _OUTSIDE
#: A driver that has no executor for so long gives way (up to twice as long by its spread): others may wait for its place, and it
#: for theirs. A quota does not grow by itself; but nodes may be on their way for executors that are pending.
_GIVE_WAY_AFTER_S: Final = {reasons.EXECUTORS_REFUSED: 60.0, reasons.EXECUTORS_PENDING: 600.0}
#: Where others have none either, as after many writes are applied at once to a cluster that their drivers fill. Most nodes that
#: were on their way are there by then.
_GIVE_WAY_AMONG_SEVERAL_S: Final = 180.0

#: What may be put right outside of the manifest, without anybody telling us: it is tried again now and then.
ENVIRONMENT: Final = frozenset(
    {
        reasons.SOURCE_MISSING,
        reasons.SOURCE_CHANGED,
        reasons.SOURCE_MOVED,
        reasons.SOURCE_UNREADABLE,
        reasons.KEYS_NOT_UNIQUE,
        reasons.CREDENTIALS_REFUSED,
    }
)

#: How often the progress deadline is doubled at the most, as attempts fail by it: slow segments must not starve a write.
_MOST_DOUBLINGS: Final = 6


def open_the_next_epoch(seen: Observation) -> tuple[Action, ...] | None:
    """This epoch is committed, and another one is asked for; or it has ended by a deletion, and the write goes on."""
    was_deleted = seen.commit is not None and seen.commit.was_deleted
    between = seen.between if seen.between is not None and seen.between.begins else None
    is_triggered = between is not None or seen.is_stream
    following = next_epoch(seen.epoch, seen.began_with, seen.run_nonce, was_deleted=was_deleted, is_triggered=is_triggered)
    if not seen.is_committed or following is None:
        return None
    return (OpenEpoch(following.number, following.after, between.news if between is not None else None),)


def finish_what_is_committed(seen: Observation) -> tuple[Action, ...] | None:
    """That was recorded after the commit was seen in the table, so it is believed, whatever drivers do.

    A write with a trigger does not finish: it waits for new input.
    """
    if not seen.is_committed:
        return None
    stops = (StopKeptDriver(),) if seen.keeps_in_vain else ()
    if seen.goes_on:
        return (*stops, Wait("suspend to be unset" if seen.is_suspended else "new input"))
    return (*stops, Finish())


def finish_a_stream_that_has_ended(seen: Observation) -> tuple[Action, ...] | None:
    """Its query has done all that was there: the write is up to date. Run once more, it looks for more."""
    last = seen.last
    if last is None or not last.is_closed or last.is_complete or last.failure is None:
        return None
    is_over = last.failure.reason == reasons.STREAM_ENDED and last.number >= seen.first_counted_failure
    return (Finish(),) if seen.is_stream and is_over else None


def give_up_what_reads_another_source(seen: Observation) -> tuple[Action, ...] | None:
    """The source was edited: an attempt that has sealed nothing makes room for one that reads the new one, no other does."""
    last = seen.last
    if last is None or not last.is_of_other_source:
        return None
    if last.is_complete or _holds_seals(seen, last) or seen.epoch > 1:
        return (
            Stall(
                reasons.IDENTITY_CHANGED,
                "spec.source is not what rows of this write are sealed from already; undo the change and the write goes on, or "
                "give the new write another metadata.name",
            ),
        )
    if last.is_closed:
        return None
    failure = Failure("Retryable", reasons.SOURCE_EDITED, "the source was edited before anything was sealed")
    return (Close(last.number, failure.message, failure), StopDriver(last.number))


def _holds_seals(seen: Observation, last: Attempt) -> bool:
    """Whether anything is sealed of what an attempt takes over, and by itself."""
    return any(attempt.holds_seals for attempt in seen.attempts if attempt.number in (*last.counted, last.number))


def stop_over_the_limit_of_row_errors(seen: Observation) -> tuple[Action, ...] | None:
    """More rows are quarantined than the manifest allows: nothing goes on, and nothing is committed, until a person acts.

    But for what was claimed: then the limit was kept, and the commit may be in the table already.
    """
    last = seen.last
    if last is None or seen.row_errors is None or (last.is_complete and seen.is_claimed):
        return None
    # Of an attempt that is closed and not complete, what counts is what the next one would take over.
    taken = {*last.counted, last.number}
    if last.is_closed and not last.is_complete:
        taken = {attempt.number for attempt in _taken_over(seen)}
    rows = sum(attempt.rows_quarantined for attempt in seen.attempts if attempt.number in taken)
    if rows <= seen.row_errors.most_rows:
        return None
    if last.is_closed:
        return (Stall(reasons.TOO_MANY_ROW_ERRORS, too_many_failed(rows, seen.row_errors, last.is_complete)),)
    failure = Failure("NeedsChange", reasons.TOO_MANY_ROW_ERRORS, too_many_failed(rows, seen.row_errors, False))
    return (Close(last.number, f"{counted(rows, 'row')} failed", failure), StopDriver(last.number))


def too_many_failed(rows: int, limit: RowErrorLimit, is_complete: bool) -> str:
    """Say how many failed, which, and what a person can do."""
    allow_more = "allow more (spec.onRowError, spec.quarantine)"
    mend = "mend the code (of lines that cannot be read: source.files.types, source.files.csv)"
    options = [allow_more if is_complete else f"{mend} and {allow_more}"]
    if not is_complete:
        options.append("set onCodeChange: Restart to do all rows again with mended code")
    return (
        f"{counted(rows, 'quarantined row')}, and {limit.set_by}: {', or '.join(options)}. They stay so when the "
        f"code is mended, until a later epoch takes them again (quarantine.retry). The first: {'; '.join(limit.examples)}"
    )


def commit_what_is_complete(seen: Observation) -> tuple[Action, ...] | None:
    """Also if the driver died afterwards, and also with no driver left."""
    last = seen.last
    return (Commit(last.number),) if last and last.is_closed and last.is_complete else None


def close_what_is_sealed(seen: Observation) -> tuple[Action, ...] | None:
    """All is sealed: what the driver still does is of no interest."""
    last = seen.last
    if last is None or last.is_closed or not last.is_sealed:
        return None
    return (Close(last.number, "all its tasks are sealed", is_done=True),)


def close_what_nobody_drives(seen: Observation) -> tuple[Action, ...] | None:
    """The driver is gone, or thought to be: the next attempt skips what this one has sealed."""
    last = seen.last
    if last is None or last.is_closed:
        return None
    if last.driver is DriverState.GONE:
        has_ended = last.failure is not None and last.failure.reason == reasons.STREAM_ENDED
        cause = last.failure or last.problem
        if has_ended:
            why = "its query has ended, and what it had is sealed"
        elif cause is None:
            why = "its driver is gone"
        else:
            # What the driver itself has recorded, which is read once the attempt is closed, says more than that it has ended.
            why = "its driver has ended" if cause.reason == reasons.DRIVER_FAILED else f"its driver ended with {cause.reason}"
        return (Close(last.number, why, last.problem, is_done=has_ended),)
    # Too early only costs work, never rows; but what is sealed rarely, by its manifest, is not to be given up for that.
    if last.driver is DriverState.ELSEWHERE and last.idle_s > progress_deadline_s(seen):
        return (Close(last.number, f"its driver on another machine has sealed nothing for {last.idle_s:.0f} s"),)
    return None


def give_up_past_the_active_deadline(seen: Observation) -> tuple[Action, ...] | None:
    """The manifest bounds the time of an epoch; what is sealed stays, for a person who allows more."""
    last = seen.last
    if not seen.is_past_deadline or last is None or last.is_closed:
        return None
    return (Close(last.number, _OVERDUE.message, _OVERDUE), StopDriver(last.number))


def replace_what_cannot_start(seen: Observation) -> tuple[Action, ...] | None:
    """Its pod cannot start (a wrong image, no room), or has no executor, and the manifest has changed since it was asked for."""
    last = seen.last
    if last is None or last.is_closed:
        return None
    if last.driver is DriverState.STARTING and last.is_outdated:
        why = "its driver could not start"
    elif last.driver is DriverState.RUNNING and last.starved is not None and last.is_edited:
        why = "its driver had no executor"
    else:
        return None
    failure = Failure("Retryable", reasons.DRIVER_REPLACED, f"{why}, and the manifest has changed since")
    return (Close(last.number, failure.message, failure), StopDriver(last.number))


def give_up_what_makes_no_progress(seen: Observation) -> tuple[Action, ...] | None:
    """Progress decides, not patience: a driver that is slow but alive goes on as a zombie, and harms nobody."""
    last = seen.last
    if last is None or last.is_closed or last.driver not in (DriverState.RUNNING, DriverState.STARTING):
        return None
    if last.idle_s <= progress_deadline_s(seen):
        return None
    failure = last.problem or Failure("Retryable", reasons.NO_PROGRESS, f"no new seal for {last.idle_s:.0f} s")
    return (Close(last.number, f"no new seal for {last.idle_s:.0f} s", failure), StopDriver(last.number))


def give_way_without_executors(seen: Observation) -> tuple[Action, ...] | None:
    """Two drivers that hold the places which both their executors need would wait for each other for ever."""
    last = seen.last
    if last is None or last.is_closed or last.driver is not DriverState.RUNNING or last.starved is None:
        return None
    after_s = _GIVE_WAY_AFTER_S[last.starved.reason]
    if last.starved_beside:
        after_s = min(after_s, _GIVE_WAY_AMONG_SEVERAL_S)
    if last.starved_s <= after_s * (1 + last.spread):
        return None
    return (Close(last.number, f"no executor for {last.starved_s:.0f} s", last.starved), StopDriver(last.number))


def wait_while_suspended(seen: Observation) -> tuple[Action, ...] | None:
    """A suspended write starts nothing new; its driver is stopped, and what it has sealed stays."""
    if not seen.is_suspended:
        return None
    last = seen.last
    if last and not last.is_closed:
        return (Close(last.number, _SUSPENDED.message, _SUSPENDED), StopDriver(last.number))
    return (Wait("suspend to be unset"),)


def why_nothing_may_be_at_work(seen: Observation) -> Failure | None:
    """Return why drivers of the epoch's stages are ended, too: its rules see its own attempts, those of the last stage."""
    if seen.is_committed:
        return None
    return _OVERDUE if seen.is_past_deadline else _SUSPENDED if seen.is_suspended else None


def make_the_table_that_is_asked_for(seen: Observation) -> tuple[Action, ...] | None:
    last = seen.last
    if last and not last.is_closed and last.driver is DriverState.RUNNING and last.awaits_table:
        return (MakeTable(last.number),)
    return None


def wait_for_the_driver(seen: Observation) -> tuple[Action, ...] | None:
    last = seen.last
    if last is None or last.is_closed:
        return None
    if last.driver is DriverState.RUNNING:
        return (Wait(f"the driver of attempt {last.number}", last.starved),)
    if last.driver is DriverState.STARTING:
        return (Wait(f"the driver of attempt {last.number} to start", last.problem),)
    if last.driver is DriverState.ELSEWHERE:
        return (Wait(f"the driver of attempt {last.number}, which another machine has started"),)
    return None


def wait_for_a_place(seen: Observation) -> tuple[Action, ...] | None:
    """Only so many drivers may be at work at once."""
    if seen.queued is None:
        return None
    busy = "as many drivers are at work in the namespace as the operator allows (driversPerNamespace); it waits for one to end"
    return (Wait("a place for its driver", Failure("Retryable", reasons.DRIVER_QUEUED, busy)),)


def start_the_recorded_driver(seen: Observation) -> tuple[Action, ...] | None:
    """The attempt was recorded and its driver was not made."""
    last = seen.last
    return (StartDriver(last.number),) if last and not last.is_closed else None


def stall_past_the_active_deadline(seen: Observation) -> tuple[Action, ...] | None:
    if not seen.is_past_deadline:
        return None
    return (
        Stall(
            reasons.DEADLINE_EXCEEDED,
            "the write has taken longer than activeDeadlineSeconds; what is sealed stays: raise it, or unset it, to go on",
        ),
    )


def stall_on_what_a_person_must_change(seen: Observation) -> tuple[Action, ...] | None:
    """The last attempt says that trying again cannot help, and nothing has changed since."""
    last = seen.last
    if last is None or last.failure is None or last.failure.family == "Retryable" or last.number < seen.first_counted_failure:
        return None
    if last.code_digest != seen.code_digest or (last.failure.reason in ENVIRONMENT and seen.retry_left_s <= 0):
        return None
    return (Stall(last.failure.reason, last.failure.message),)


def stall_when_too_many_failed(seen: Observation) -> tuple[Action, ...] | None:
    """Only attempts without sealed rows, in a row: whatever dies, one that has sealed some has brought the end nearer."""
    failed = failed_in_a_row(seen.attempts, seen.first_counted_failure)
    if len(failed) <= seen.backoff_limit:
        return None
    said = next((attempt.failure.message for attempt in reversed(failed) if attempt.failure), "no driver said why it ended")
    return (
        Stall(
            reasons.BACKOFF_LIMIT_EXCEEDED,
            f"{counted(len(failed), 'attempt')} in a row failed and sealed nothing "
            f"(backoffLimit: {seen.backoff_limit} beyond the first); the last said: {said}",
        ),
    )


def pause_before_the_next_attempt(seen: Observation) -> tuple[Action, ...] | None:
    """What failed by itself may need a moment; code that was changed need not wait."""
    last = seen.last
    if last is None or last.code_digest != seen.code_digest:
        return None
    if (seen.outage_left_s if _ended_by(last, _OUTSIDE) else seen.pause_left_s) <= 0:
        return None
    if not _counts(seen, last) and not _ended_by(last, _NOT_THEIRS):
        return None
    return (Wait(f"the pause before attempt {last.number + 1}", last.failure),)


def record_the_next_attempt(seen: Observation) -> tuple[Action, ...] | None:
    """With nothing sealed that counts, an edit of the source, or of how it is read, counts at once, and so does a mended file.

    What other stages have made, or the same of other rows, never counts; nor does a part of a micro-batch, whose partitions may
    have other numbers, and rows, when Spark plans it again.
    """
    last = seen.last
    if last is None:
        return (RecordAttempt(1, ()),)
    if last.is_of_other_stage or seen.is_stream:
        return (RecordAttempt(last.number + 1, (), last.number + 1),)
    taken = tuple(attempt.number for attempt in _taken_over(seen) if attempt.holds_seals)
    said = last.failure
    has_changed = said is not None and (said.family, said.reason) == ("NeedsChange", reasons.SOURCE_CHANGED)
    if not taken and (last.is_read_otherwise or has_changed):
        return (RecordAttempt(last.number + 1, (), last.number + 1),)
    return (RecordAttempt(last.number + 1, taken, last.input_since),)


RULES: Final[tuple[Rule, ...]] = (
    open_the_next_epoch,
    finish_what_is_committed,
    finish_a_stream_that_has_ended,
    give_up_what_reads_another_source,
    stop_over_the_limit_of_row_errors,
    commit_what_is_complete,
    close_what_is_sealed,
    close_what_nobody_drives,
    give_up_past_the_active_deadline,
    replace_what_cannot_start,
    give_up_what_makes_no_progress,
    give_way_without_executors,
    wait_while_suspended,
    make_the_table_that_is_asked_for,
    wait_for_the_driver,
    wait_for_a_place,
    start_the_recorded_driver,
    stall_past_the_active_deadline,
    stall_on_what_a_person_must_change,
    stall_when_too_many_failed,
    pause_before_the_next_attempt,
    *TABLE_RULES,
    ask_before_results_are_mixed_or_dropped,
    record_the_next_attempt,
)


def decide(seen: Observation) -> tuple[Action, ...]:
    """Return what to do, in order."""
    return (*stop_what_was_given_up(seen), *next(actions for rule in RULES if (actions := rule(seen)) is not None))


def stop_what_was_given_up(seen: Observation) -> tuple[StopDriver, ...]:
    """Its attempt is closed, and its driver is still at work: whoever was to tell it has died, or was not heard.

    Or another runner has closed the attempt, and has begun the next.
    """
    if seen.is_committed:
        return ()
    given_up = (attempt for attempt in seen.attempts if attempt.is_closed and not attempt.is_complete)
    return tuple(StopDriver(one.number) for one in given_up if one.driver in (DriverState.STARTING, DriverState.RUNNING))


def failed_in_a_row(attempts: Sequence[Attempt], first_counted: int) -> list[Attempt]:
    """Return the last attempts that count as failed, back to one that has sealed rows."""
    return [attempt for attempt in in_vain_in_a_row(attempts, first_counted) if _is_failed(attempt)]


def in_vain_in_a_row(attempts: Sequence[Attempt], first_counted: int) -> list[Attempt]:
    """Return the last attempts that brought nothing, back to one that has sealed rows: the next one waits for longer.

    Those that were disrupted, had no executors, or met something outside that was missing or out, are among them.
    """
    in_vain: list[Attempt] = []
    for attempt in reversed(attempts):
        if attempt.has_sealed or attempt.number < first_counted:
            break
        if _is_failed(attempt) or _ended_by(attempt, _NOT_THEIRS | ENVIRONMENT):
            in_vain.insert(0, attempt)
    return in_vain


def progress_deadline_s(seen: Observation) -> float:
    """The deadline of the last attempt: doubled with each attempt before it that counts as failed.

    It is never shorter than the intervals at which the attempt seals, which the manifest may have had longer then.
    """
    earlier = sum(_counts(seen, attempt) for attempt in seen.attempts[:-1])
    least_s = seen.last.least_deadline_s if seen.last is not None else 0.0
    return float(max(seen.progress_deadline_s, least_s) * 2 ** min(earlier, _MOST_DOUBLINGS))


def _counts(seen: Observation, attempt: Attempt) -> bool:
    return _is_failed(attempt) and attempt.number >= seen.first_counted_failure


def _is_failed(attempt: Attempt) -> bool:
    if attempt.failure is not None and attempt.failure.reason in _WANTED | _NOT_THEIRS | ENVIRONMENT:
        return False
    return attempt.is_closed and not attempt.is_complete


def _ended_by(attempt: Attempt, found: frozenset[str]) -> bool:
    is_over = attempt.is_closed and not attempt.is_complete
    return is_over and attempt.failure is not None and attempt.failure.reason in found


def _taken_over(seen: Observation) -> tuple[Attempt, ...]:
    """The closed attempts whose seals the next one takes over: what the last took over, and itself.

    What the last one left out (under another onCodeChange) was computed again since: counting both would double rows. With Ask
    all of it: where a person is to say so first, no attempt is recorded.
    """
    if seen.last is None:
        return ()
    candidates = {*seen.last.counted, seen.last.number}
    return tuple(
        attempt
        for attempt in seen.attempts
        if attempt.number in candidates
        and not attempt.is_of_other_stage
        and not attempt.is_of_other_reset
        and (seen.on_code_change != "Restart" or is_of_now(seen, attempt))
    )
