"""The decision: each rule with what it sees and what follows, and what may never follow from anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_control.decision import rules
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
    Wait,
)
from checkpoint_control.decision.observation import Attempt, Change, DriverState, Failure, Observation, RowErrorLimit, Tables
from checkpoint_control.decision.rules import RULES, decide, progress_deadline_s
from checkpoint_control.decision.triggers import Between, News
from checkpoint_protocol import reasons
from checkpoint_protocol.records import CommitRecord, NoTarget
from tests.support.effort import examples

NOW, BEFORE = "code now", "code before"
NOT_STARTED, STARTING, RUNNING = DriverState.NOT_STARTED, DriverState.STARTING, DriverState.RUNNING
GONE, ELSEWHERE = DriverState.GONE, DriverState.ELSEWHERE
RETRYABLE = Failure("Retryable", reasons.DRIVER_FAILED, "the driver's memory ended")
BROKEN = Failure("NeedsChange", reasons.CODE_FAILED, "step 'x' raised on row 7")
UNREADABLE = Failure("Corrupt", reasons.RECORD_UNREADABLE, "a record is garbage")

COMMITTED = CommitRecord(
    token="0" * 32,
    key=f"{'ab' * 16}/1",
    target="lake.rows",
    table_identity="0" * 32,
    commit_id=7,
    rows_read=10,
    rows_written=10,
    files=1,
    attempts=1,
    code_digests=(),
)

SUSPENDED = Failure("Retryable", reasons.WRITE_SUSPENDED, "the write is suspended")
EDITED = Failure("Retryable", reasons.SOURCE_EDITED, "the source was edited before anything was sealed")
REPLACED_FILE = Failure("NeedsChange", reasons.SOURCE_CHANGED, "source file /in/a was replaced")
UNDO_THE_EDIT = (
    "spec.source is not what rows of this write are sealed from already; undo the change and the write goes on, or give the new "
    "write another metadata.name"
)
OTHER_SOURCE: dict[str, Any] = {"is_of_other_source": True, "is_read_otherwise": True}
TOO_LATE = Failure("Retryable", reasons.DEADLINE_EXCEEDED, "activeDeadlineSeconds has passed")
NO_PROGRESS_AT_ALL = Failure("Retryable", reasons.NO_PROGRESS, "no new seal for 1201 s")
STARVED = Failure("Retryable", reasons.DRIVER_REPLACED, "its driver had no executor, and the manifest has changed since")
REPLACED = Failure("Retryable", reasons.DRIVER_REPLACED, "its driver could not start, and the manifest has changed since")
NO_IMAGE = Failure("Retryable", reasons.IMAGE_UNAVAILABLE, "no such image")
DIED = Failure("Retryable", reasons.DRIVER_FAILED, "exit code 1")
OUT_OF_MEMORY = Failure("Retryable", reasons.DRIVER_OUT_OF_MEMORY, "more than 1 GiB")

NO_ROOM = Failure("Retryable", reasons.EXECUTORS_PENDING, "1 executor waits: no node has room")
QUOTA = Failure("Retryable", reasons.EXECUTORS_REFUSED, "exceeded quota")
OUT = Failure("Retryable", reasons.SERVICE_UNAVAILABLE, "503")
EVICTED = Failure("Retryable", reasons.DRIVER_EVICTED, "the node is drained")
STREAM_ENDED = Failure("Retryable", reasons.STREAM_ENDED, "the query has ended: what was there is committed")
MISSING = Failure("NeedsChange", reasons.SOURCE_MISSING, "there is no such file")
QUEUED = "as many drivers are at work in the namespace as the operator allows (driversPerNamespace); it waits for one to end"


def seen(*attempts: Attempt, **fields: object) -> Observation:
    """Each attempt takes over all before it, unless it says what it does."""
    chained = tuple(
        replace(attempt, counted=tuple(earlier.number for earlier in attempts[:index])) if attempt.counted == () else attempt
        for index, attempt in enumerate(attempts)
    )
    nothing = Observation(
        epoch=1,
        attempts=chained,
        code_digest=NOW,
        on_code_change="Continue",
        backoff_limit=3,
        progress_deadline_s=600.0,
    )
    return replace(nothing, **fields)  # type: ignore[arg-type]


def at_work(number: int = 1, driver: DriverState = RUNNING, **fields: object) -> Attempt:
    return replace(Attempt(number=number, code_digest=NOW, driver=driver), **fields)  # type: ignore[arg-type]


def closed(number: int = 1, failure: Failure | None = None, code: str = NOW, complete: bool = False) -> Attempt:
    """An attempt of which something counts, for the next one to take over."""
    ended = Attempt(number=number, code_digest=code, driver=GONE, is_closed=True, is_complete=complete, failure=failure)
    return replace(ended, holds_seals=True)


def with_failed_rows(attempt: Attempt, rows: int) -> Attempt:
    return replace(attempt, rows_quarantined=rows)


CHANGE = Change("0123456789abcdef", rows_sealed=1200)
ASKS: dict[str, Any] = {"on_code_change": "Ask", "change": CHANGE}
OF_OTHER_CODE = (
    "1,200 rows are sealed, and attempt 1 sealed rows with other code, or with other options for reading, than the manifest has "
    "now; approve Continue (sealed rows stay, and only the remaining rows are computed) or Restart (all rows are computed "
    "again), or undo the edit"
)

LIMIT = RowErrorLimit(most_rows=10, set_by="quarantine.maxRows allows 10", examples=("row 7 of /in/a: predict: KeyError: 'x'",))


def too_many(rows: int, *, complete: bool = False) -> str:
    return rules.too_many_failed(rows, LIMIT, complete)


def beginning_anew(attempt: Attempt) -> Attempt:
    """An attempt that takes over nothing of those before it, which is said by naming only itself."""
    return replace(attempt, counted=(attempt.number,))


def failed(count: int, failure: Failure | None = RETRYABLE) -> list[Attempt]:
    return [closed(number, failure) for number in range(1, count + 1)]


CASES: dict[str, tuple[str, Observation, tuple[Action, ...]]] = {
    # --- finish_what_is_committed
    "a committed epoch is done": ("finish_what_is_committed", seen(closed(complete=True), commit=COMMITTED), (Finish(),)),
    "a committed epoch is done whatever a driver still does": (
        "finish_what_is_committed",
        seen(at_work(), commit=COMMITTED),
        (Finish(),),
    ),
    "a committed epoch is done although the last attempt failed": (
        "finish_what_is_committed",
        seen(closed(failure=BROKEN), commit=COMMITTED),
        (Finish(),),
    ),
    "a committed epoch is done although no attempt is to be seen": (
        "finish_what_is_committed",
        seen(commit=COMMITTED),
        (Finish(),),
    ),
    "a committed epoch is done although the write is suspended": (
        "finish_what_is_committed",
        seen(closed(complete=True), commit=COMMITTED, is_suspended=True),
        (Finish(),),
    ),
    # --- streams
    "an epoch of a stream that is committed is followed by the next": (
        "open_the_next_epoch",
        seen(closed(complete=True), commit=COMMITTED, is_stream=True),
        (OpenEpoch(2, 1),),
    ),
    "a stream whose query has ended is closed as that": (
        "close_what_nobody_drives",
        seen(at_work(driver=GONE, failure=STREAM_ENDED), is_stream=True),
        (Close(1, "its query has ended, and what it had is sealed", is_done=True),),
    ),
    "a stream whose query has ended is up to date": (
        "finish_a_stream_that_has_ended",
        seen(closed(failure=STREAM_ENDED), is_stream=True),
        (Finish(),),
    ),
    "a stream that is run again looks for more": (
        "record_the_next_attempt",
        seen(closed(failure=STREAM_ENDED), is_stream=True, first_counted_failure=2),
        (RecordAttempt(2, (), 2),),
    ),
    "of half a micro-batch nothing is taken over": (
        "record_the_next_attempt",
        seen(closed(failure=RETRYABLE), is_stream=True),
        (RecordAttempt(2, (), 2),),
    ),
    # --- open_the_next_epoch
    "a committed epoch is followed by another once runNonce is another": (
        "open_the_next_epoch",
        seen(closed(complete=True), commit=COMMITTED, began_with="", run_nonce="2"),
        (OpenEpoch(2, 1),),
    ),
    "an epoch that was deleted is followed by another, which does what it was asked for": (
        "open_the_next_epoch",
        seen(closed(), commit=COMMITTED.model_copy(update={"was_deleted": True})),
        (OpenEpoch(2, 1),),
    ),
    "the next epoch is opened also while the write is suspended, which then keeps it from beginning": (
        "open_the_next_epoch",
        seen(closed(complete=True), epoch=7, commit=COMMITTED, began_with="a", run_nonce="b", is_suspended=True),
        (OpenEpoch(8, 7),),
    ),
    "another runNonce waits for the end of the epoch that is at work": (
        "wait_for_the_driver",
        seen(at_work(), began_with="", run_nonce="2"),
        (Wait("the driver of attempt 1"),),
    ),
    "a new epoch that has no attempt yet begins with its first": (
        "record_the_next_attempt",
        seen(epoch=2, began_with=None, run_nonce="2"),
        (RecordAttempt(1, ()),),
    ),
    # --- the tables, asked before an attempt is recorded
    "a write that was deleted meanwhile gets no attempt": (
        "stall_on_a_deleted_write",
        seen(tables=Tables("lake.rows", creates_target=False, is_deleted=True)),
        (Stall(reasons.WRITE_DELETED, "the write was deleted; give a new write a new name"),),
    ),
    "what a catalog refuses stalls the write before an attempt is recorded": (
        "stall_on_a_table_that_cannot_be_used",
        seen(tables=Tables("lake.rows", creates_target=True, problem=BROKEN)),
        (Stall(BROKEN.reason, BROKEN.message),),
    ),
    "a table is not appended to itself": (
        "stall_where_source_and_sink_are_one_table",
        seen(tables=Tables("lake.rows", creates_target=False, target=NoTarget(), is_own_source=True)),
        (
            Stall(
                reasons.MANIFEST_INVALID,
                "source and sink are one table (lake.rows): what a run appends would be the next one's input; write to "
                "another table",
            ),
        ),
    ),
    "a table that is not there is not waited for": (
        "stall_on_a_missing_table",
        seen(tables=Tables("lake.rows", creates_target=False)),
        (
            Stall(
                reasons.TABLE_MISSING,
                "lake.rows does not exist; make it, or set sink.create: true to have it made from the steps' output",
            ),
        ),
    ),
    "a table that is gone with what an earlier epoch has committed is not made anew for the new rows alone": (
        "stall_where_the_table_is_gone_with_its_rows",
        seen(epoch=3, tables=Tables("lake.rows", creates_target=True, lost_rows=(2, 1_500))),
        (
            Stall(
                reasons.TABLE_MISSING,
                "lake.rows is gone, and with it what earlier epochs of the write had committed (epoch 2: 1,500 rows), which this "
                "one does not write again; restore the table, or give the write a new name to write all rows again, or create "
                "the table yourself if it needs only the new rows",
            ),
        ),
    ),
    "a table that is not there and may be made keeps no attempt from being recorded": (
        "record_the_next_attempt",
        seen(tables=Tables("lake.rows", creates_target=True)),
        (RecordAttempt(1, ()),),
    ),
    "what is sealed for a table that was made again is not taken over": (
        "stall_on_a_replaced_table",
        seen(closed(1), tables=Tables("lake.rows", creates_target=True, target=NoTarget(), staged_for_another=1)),
        (
            Stall(
                reasons.TABLE_REPLACED,
                "lake.rows was dropped and made again after attempt 1 had sealed results for it, whose files belong to the old "
                "table: restore that one, or give the write a new name to compute all again",
            ),
        ),
    ),
    "nor for one that was dropped": (
        "stall_on_a_replaced_table",
        seen(closed(1), tables=Tables("lake.rows", creates_target=True, staged_for_another=1)),
        (
            Stall(
                reasons.TABLE_REPLACED,
                "lake.rows was dropped after attempt 1 had sealed results for it, whose files belong to the old table: restore "
                "that one, or give the write a new name to compute all again",
            ),
        ),
    ),
    "a table that can be used lets the attempt be recorded": (
        "record_the_next_attempt",
        seen(tables=Tables("lake.rows", creates_target=False, target=NoTarget())),
        (RecordAttempt(1, ()),),
    ),
    "other problem comes before the tables": (
        "stall_on_what_a_person_must_change",
        seen(closed(failure=BROKEN), tables=Tables("lake.rows", creates_target=False)),
        (Stall(BROKEN.reason, BROKEN.message),),
    ),
    # --- stop_over_the_limit_of_row_errors
    "a driver at work is stopped once more rows failed than may, in all attempts together": (
        "stop_over_the_limit_of_row_errors",
        seen(with_failed_rows(closed(1), 6), with_failed_rows(at_work(2), 5), row_errors=LIMIT),
        (
            Close(2, "11 rows failed", Failure("NeedsChange", reasons.TOO_MANY_ROW_ERRORS, too_many(11))),
            StopDriver(2),
        ),
    ),
    "what is complete and beyond the limit is not committed": (
        "stop_over_the_limit_of_row_errors",
        seen(with_failed_rows(closed(complete=True), 11), row_errors=LIMIT),
        (Stall(reasons.TOO_MANY_ROW_ERRORS, too_many(11, complete=True)),),
    ),
    "what is complete and beyond the limit is not dropped by a Restart either": (
        "stop_over_the_limit_of_row_errors",
        seen(with_failed_rows(closed(complete=True, code=BEFORE), 11), row_errors=LIMIT, on_code_change="Restart"),
        (Stall(reasons.TOO_MANY_ROW_ERRORS, too_many(11, complete=True)),),
    ),
    "mended code alone does not make good what is quarantined": (
        "stop_over_the_limit_of_row_errors",
        seen(with_failed_rows(closed(code=BEFORE), 11), row_errors=LIMIT),
        (Stall(reasons.TOO_MANY_ROW_ERRORS, too_many(11)),),
    ),
    "as many failed rows as may are committed": (
        "commit_what_is_complete",
        seen(with_failed_rows(closed(complete=True), 10), row_errors=LIMIT),
        (Commit(1),),
    ),
    "a limit that was lowered after the claim stops nothing": (
        "commit_what_is_complete",
        seen(with_failed_rows(closed(complete=True), 11), row_errors=LIMIT, is_claimed=True),
        (Commit(1),),
    ),
    "a Restart with mended code drops rows that failed with the old": (
        "record_the_next_attempt",
        seen(with_failed_rows(closed(code=BEFORE), 11), row_errors=LIMIT, on_code_change="Restart"),
        (RecordAttempt(2, ()),),
    ),
    "rows that failed in an attempt that was dropped do not count": (
        "wait_for_the_driver",
        seen(with_failed_rows(closed(1), 11), beginning_anew(at_work(2)), row_errors=LIMIT),
        (Wait("the driver of attempt 2"),),
    ),
    # --- commit_what_is_complete
    "a complete attempt is committed": ("commit_what_is_complete", seen(closed(complete=True)), (Commit(1),)),
    "a complete attempt is committed although its driver told a failure afterwards": (
        "commit_what_is_complete",
        seen(closed(complete=True, failure=BROKEN)),
        (Commit(1),),
    ),
    "a complete attempt is committed after more failures than are allowed": (
        "commit_what_is_complete",
        seen(*failed(4), closed(5, complete=True)),
        (Commit(5),),
    ),
    "a complete attempt is committed although the code has changed since": (
        "commit_what_is_complete",
        seen(closed(complete=True, code=BEFORE), on_code_change="Restart"),
        (Commit(1),),
    ),
    "a complete attempt is committed although the write is suspended: nothing new is started for it": (
        "commit_what_is_complete",
        seen(closed(complete=True), is_suspended=True),
        (Commit(1),),
    ),
    # --- close_what_is_sealed
    "an attempt whose tasks are all sealed is closed while its driver runs": (
        "close_what_is_sealed",
        seen(at_work(is_sealed=True)),
        (Close(1, "all its tasks are sealed", is_done=True),),
    ),
    "an attempt whose tasks are all sealed is closed although its driver is gone": (
        "close_what_is_sealed",
        seen(at_work(driver=GONE, is_sealed=True)),
        (Close(1, "all its tasks are sealed", is_done=True),),
    ),
    "an attempt whose tasks are all sealed is closed although it was not seen to start": (
        "close_what_is_sealed",
        seen(at_work(driver=NOT_STARTED, is_sealed=True)),
        (Close(1, "all its tasks are sealed", is_done=True),),
    ),
    "an attempt whose tasks are all sealed is closed although the write is suspended": (
        "close_what_is_sealed",
        seen(at_work(is_sealed=True), is_suspended=True),
        (Close(1, "all its tasks are sealed", is_done=True),),
    ),
    # --- close_what_nobody_drives
    "an attempt whose driver is gone is closed": (
        "close_what_nobody_drives",
        seen(at_work(driver=GONE)),
        (Close(1, "its driver is gone"),),
    ),
    "an attempt whose driver is gone is closed before a table is made for it": (
        "close_what_nobody_drives",
        seen(at_work(driver=GONE, awaits_table=True)),
        (Close(1, "its driver is gone"),),
    ),
    "the driver of another machine that has sealed nothing for a while is given up": (
        "close_what_nobody_drives",
        seen(at_work(driver=ELSEWHERE, idle_s=601.0)),
        (Close(1, "its driver on another machine has sealed nothing for 601 s"),),
    ),
    "the driver of another machine is waited for": (
        "wait_for_the_driver",
        seen(at_work(driver=ELSEWHERE, idle_s=600.0)),
        (Wait("the driver of attempt 1, which another machine has started"),),
    ),
    "the table that the driver of another machine waits for is made by that machine": (
        "wait_for_the_driver",
        seen(at_work(driver=ELSEWHERE, awaits_table=True)),
        (Wait("the driver of attempt 1, which another machine has started"),),
    ),
    "an attempt of another machine whose tasks are all sealed is closed": (
        "close_what_is_sealed",
        seen(at_work(driver=ELSEWHERE, is_sealed=True)),
        (Close(1, "all its tasks are sealed", is_done=True),),
    ),
    "what ended a driver that is gone is recorded": (
        "close_what_nobody_drives",
        seen(at_work(driver=GONE, problem=OUT_OF_MEMORY)),
        (Close(1, f"its driver ended with {OUT_OF_MEMORY.reason}", OUT_OF_MEMORY),),
    ),
    "of a driver of which no more is seen than that it has ended no reason is told": (
        "close_what_nobody_drives",
        seen(at_work(driver=GONE, problem=DIED)),
        (Close(1, "its driver has ended", DIED),),
    ),
    "of a driver that has said why it ended that is told": (
        "close_what_nobody_drives",
        seen(at_work(driver=GONE, failure=OUT_OF_MEMORY)),
        (Close(1, f"its driver ended with {OUT_OF_MEMORY.reason}"),),
    ),
    # --- give_up_past_the_active_deadline, stall_past_the_active_deadline
    "past its active deadline an attempt is closed, its driver stopped": (
        "give_up_past_the_active_deadline",
        seen(at_work(), is_past_deadline=True),
        (Close(1, TOO_LATE.message, TOO_LATE), StopDriver(1)),
    ),
    "past its active deadline a write stalls": (
        "stall_past_the_active_deadline",
        seen(closed(failure=TOO_LATE), is_past_deadline=True),
        (
            Stall(
                reasons.DEADLINE_EXCEEDED,
                "the write has taken longer than activeDeadlineSeconds; what is sealed stays: raise it, or unset it, to go on",
            ),
        ),
    ),
    "past its active deadline what is complete is committed": (
        "commit_what_is_complete",
        seen(closed(complete=True), is_past_deadline=True),
        (Commit(1),),
    ),
    "past its active deadline what is sealed is closed": (
        "close_what_is_sealed",
        seen(at_work(is_sealed=True), is_past_deadline=True),
        (Close(1, "all its tasks are sealed", is_done=True),),
    ),
    # --- replace_what_cannot_start
    "a driver that cannot start is waited for, and why is told": (
        "wait_for_the_driver",
        seen(at_work(driver=STARTING, problem=NO_IMAGE)),
        (Wait("the driver of attempt 1 to start", NO_IMAGE),),
    ),
    "a driver that cannot start is replaced when the manifest has changed": (
        "replace_what_cannot_start",
        seen(at_work(driver=STARTING, problem=NO_IMAGE, is_outdated=True)),
        (Close(1, REPLACED.message, REPLACED), StopDriver(1)),
    ),
    "an attempt is given as long as the intervals take that it was recorded with, whatever the manifest says now": (
        "wait_for_the_driver",
        seen(at_work(idle_s=1_000.0, least_deadline_s=1_200.0)),
        (Wait("the driver of attempt 1"),),
    ),
    "and no longer": (
        "give_up_what_makes_no_progress",
        seen(at_work(idle_s=1_201.0, least_deadline_s=1_200.0)),
        (Close(1, "no new seal for 1201 s", NO_PROGRESS_AT_ALL), StopDriver(1)),
    ),
    "a driver without executors is replaced when what it was started with has changed": (
        "replace_what_cannot_start",
        seen(at_work(starved=NO_ROOM, starved_s=1.0, is_edited=True, is_outdated=True)),
        (Close(1, STARVED.message, STARVED), StopDriver(1)),
    ),
    "and is not where the edit counts at once": (
        "wait_for_the_driver",
        seen(at_work(starved=NO_ROOM, starved_s=1.0, is_outdated=True)),
        (Wait("the driver of attempt 1", NO_ROOM),),
    ),
    "a driver at work is not replaced when the manifest has changed": (
        "wait_for_the_driver",
        seen(at_work(is_outdated=True)),
        (Wait("the driver of attempt 1"),),
    ),
    "a driver that could not start for too long is given up with its reason": (
        "give_up_what_makes_no_progress",
        seen(at_work(driver=STARTING, problem=NO_IMAGE, idle_s=601.0)),
        (Close(1, "no new seal for 601 s", NO_IMAGE), StopDriver(1)),
    ),
    # --- give_up_what_makes_no_progress
    "an attempt without progress is closed first and its driver stopped then": (
        "give_up_what_makes_no_progress",
        seen(at_work(idle_s=601.0)),
        (Close(1, "no new seal for 601 s", Failure("Retryable", reasons.NO_PROGRESS, "no new seal for 601 s")), StopDriver(1)),
    ),
    "an attempt after one that failed has twice the time": (
        "give_up_what_makes_no_progress",
        seen(closed(1), at_work(2, idle_s=1201.0)),
        (Close(2, "no new seal for 1201 s", Failure("Retryable", reasons.NO_PROGRESS, "no new seal for 1201 s")), StopDriver(2)),
    ),
    "an attempt within its doubled time is waited for": (
        "wait_for_the_driver",
        seen(closed(1), at_work(2, idle_s=1199.0)),
        (Wait("the driver of attempt 2"),),
    ),
    "an attempt at its deadline to the second is waited for": (
        "wait_for_the_driver",
        seen(at_work(idle_s=600.0)),
        (Wait("the driver of attempt 1"),),
    ),
    "a recorded driver that was not started is started, however long ago": (
        "start_the_recorded_driver",
        seen(at_work(driver=NOT_STARTED, idle_s=1e9)),
        (StartDriver(1),),
    ),
    # --- give_way_without_executors
    "a driver without executors gives way to others after its time": (
        "give_way_without_executors",
        seen(at_work(starved=NO_ROOM, starved_s=901.0, spread=0.5)),
        (Close(1, "no executor for 901 s", NO_ROOM), StopDriver(1)),
    ),
    "a driver whose executors a quota refuses gives way much sooner": (
        "give_way_without_executors",
        seen(at_work(starved=QUOTA, starved_s=91.0, spread=0.5)),
        (Close(1, "no executor for 91 s", QUOTA), StopDriver(1)),
    ),
    "before that it waits, and says for what": (
        "wait_for_the_driver",
        seen(at_work(starved=NO_ROOM, starved_s=899.0, spread=0.5)),
        (Wait("the driver of attempt 1", NO_ROOM),),
    ),
    "attempts that had no executors are no failures": (
        "record_the_next_attempt",
        seen(*failed(9, NO_ROOM)),
        (RecordAttempt(10, tuple(range(1, 10))),),
    ),
    "nor are drivers whose pods were taken away": (
        "record_the_next_attempt",
        seen(*failed(9, EVICTED)),
        (RecordAttempt(10, tuple(range(1, 10))),),
    ),
    "after a driver's pod was taken away the next one pauses": (
        "pause_before_the_next_attempt",
        seen(*failed(1, EVICTED), pause_left_s=5.0),
        (Wait("the pause before attempt 2", EVICTED),),
    ),
    "nor are those that an outage of a service has ended": (
        "record_the_next_attempt",
        seen(*failed(9, OUT)),
        (RecordAttempt(10, tuple(range(1, 10))),),
    ),
    "an outage is waited for, also on one machine": (
        "pause_before_the_next_attempt",
        seen(*failed(1, OUT), outage_left_s=5.0),
        (Wait("the pause before attempt 2", OUT),),
    ),
    "code that was mended does not wait for the end of an outage": (
        "record_the_next_attempt",
        seen(*failed(1, OUT), outage_left_s=5.0, code_digest="mended"),
        (RecordAttempt(2, (1,)),),
    ),
    "files that are missing are waited for": (
        "stall_on_what_a_person_must_change",
        seen(*failed(1, MISSING), retry_left_s=5.0),
        (Stall(MISSING.reason, MISSING.message),),
    ),
    "files that are missing are looked for again": (
        "record_the_next_attempt",
        seen(*failed(9, MISSING), retry_left_s=0.0),
        (RecordAttempt(10, tuple(range(1, 10))),),
    ),
    # --- wait_for_a_place
    "a driver waits for a place": (
        "wait_for_a_place",
        seen(at_work(driver=NOT_STARTED), queued=3),
        (Wait("a place for its driver", Failure("Retryable", reasons.DRIVER_QUEUED, QUEUED)),),
    ),
    # --- wait_while_suspended
    "a suspended write closes its attempt and stops its driver": (
        "wait_while_suspended",
        seen(at_work(), is_suspended=True),
        (Close(1, "the write is suspended", SUSPENDED), StopDriver(1)),
    ),
    "a suspended write does not start a recorded driver": (
        "wait_while_suspended",
        seen(at_work(driver=NOT_STARTED), is_suspended=True),
        (Close(1, "the write is suspended", SUSPENDED), StopDriver(1)),
    ),
    "a suspended write starts nothing": ("wait_while_suspended", seen(is_suspended=True), (Wait("suspend to be unset"),)),
    "a suspended write does not go on after a failure": (
        "wait_while_suspended",
        seen(closed(failure=RETRYABLE), is_suspended=True),
        (Wait("suspend to be unset"),),
    ),
    # --- make_the_table_that_is_asked_for
    "a table that a driver waits for is made": (
        "make_the_table_that_is_asked_for",
        seen(at_work(awaits_table=True)),
        (MakeTable(1),),
    ),
    # --- wait_for_the_driver
    "a driver at work is waited for": ("wait_for_the_driver", seen(at_work(idle_s=10.0)), (Wait("the driver of attempt 1"),)),
    # --- start_the_recorded_driver
    "a recorded attempt without a driver gets one": (
        "start_the_recorded_driver",
        seen(closed(1), at_work(2, driver=NOT_STARTED)),
        (StartDriver(2),),
    ),
    # --- stall_on_what_a_person_must_change
    "code that failed stalls with what it said": (
        "stall_on_what_a_person_must_change",
        seen(closed(failure=BROKEN)),
        (Stall(reasons.CODE_FAILED, "step 'x' raised on row 7"),),
    ),
    "an unreadable record stalls and is not tried again": (
        "stall_on_what_a_person_must_change",
        seen(closed(failure=UNREADABLE)),
        (Stall(reasons.RECORD_UNREADABLE, "a record is garbage"),),
    ),
    "what a person must change is told rather than the number of failures": (
        "stall_on_what_a_person_must_change",
        seen(*failed(4), closed(5, BROKEN)),
        (Stall(reasons.CODE_FAILED, "step 'x' raised on row 7"),),
    ),
    "code that failed and was changed since is tried again": (
        "record_the_next_attempt",
        seen(closed(failure=BROKEN, code=BEFORE)),
        (RecordAttempt(2, (1,)),),
    ),
    "code that failed is tried again by a person who runs the write again": (
        "record_the_next_attempt",
        seen(closed(failure=BROKEN), first_counted_failure=2),
        (RecordAttempt(2, (1,)),),
    ),
    "an earlier failure that needed a change does not stall a later attempt that did not": (
        "record_the_next_attempt",
        seen(closed(1, BROKEN), closed(2, RETRYABLE)),
        (RecordAttempt(3, (1, 2)),),
    ),
    # --- stall_when_too_many_failed
    "as many failures as are allowed are followed by another attempt": (
        "record_the_next_attempt",
        seen(*failed(3)),
        (RecordAttempt(4, (1, 2, 3)),),
    ),
    "one failure more than is allowed stalls with the last that was said": (
        "stall_when_too_many_failed",
        seen(*failed(3), closed(4)),
        (
            Stall(
                reasons.BACKOFF_LIMIT_EXCEEDED,
                "4 attempts in a row failed and sealed nothing (backoffLimit: 3 beyond the first); the last said: the driver's "
                "memory ended",
            ),
        ),
    ),
    "failures of which nobody said anything stall all the same": (
        "stall_when_too_many_failed",
        seen(*failed(1, None), backoff_limit=0),
        (
            Stall(
                reasons.BACKOFF_LIMIT_EXCEEDED,
                "1 attempt in a row failed and sealed nothing (backoffLimit: 0 beyond the first); the last said: no driver said "
                "why it ended",
            ),
        ),
    ),
    "failures before this run do not count": (
        "record_the_next_attempt",
        seen(*failed(9), first_counted_failure=10),
        (RecordAttempt(10, tuple(range(1, 10))),),
    ),
    "failures of this run count from its first": (
        "stall_when_too_many_failed",
        seen(*failed(13), first_counted_failure=10),
        (
            Stall(
                reasons.BACKOFF_LIMIT_EXCEEDED,
                "4 attempts in a row failed and sealed nothing (backoffLimit: 3 beyond the first); the last said: the driver's "
                "memory ended",
            ),
        ),
    ),
    "failures before an attempt that has sealed something do not count": (
        "record_the_next_attempt",
        seen(*failed(3), replace(closed(4, RETRYABLE), has_sealed=True), closed(5, RETRYABLE), backoff_limit=1),
        (RecordAttempt(6, (1, 2, 3, 4, 5)),),
    ),
    "failures after an attempt that has sealed something count": (
        "stall_when_too_many_failed",
        seen(replace(closed(1, RETRYABLE), has_sealed=True), closed(2, RETRYABLE), closed(3, RETRYABLE), backoff_limit=1),
        (
            Stall(
                reasons.BACKOFF_LIMIT_EXCEEDED,
                "2 attempts in a row failed and sealed nothing (backoffLimit: 1 beyond the first); the last said: the driver's "
                "memory ended",
            ),
        ),
    ),
    "attempts that were suspended or replaced do not count as failed": (
        "record_the_next_attempt",
        seen(closed(1, SUSPENDED), closed(2, REPLACED), backoff_limit=0),
        (RecordAttempt(3, (1, 2)),),
    ),
    # --- pause_before_the_next_attempt
    "after a failure there is a pause": (
        "pause_before_the_next_attempt",
        seen(closed(1, RETRYABLE), pause_left_s=3.0),
        (Wait("the pause before attempt 2", RETRYABLE),),
    ),
    "after the pause the next attempt is recorded": (
        "record_the_next_attempt",
        seen(closed(1, RETRYABLE), pause_left_s=0.0),
        (RecordAttempt(2, (1,)),),
    ),
    "code that was changed does not wait": (
        "record_the_next_attempt",
        seen(closed(1, RETRYABLE, code=BEFORE), pause_left_s=3.0),
        (RecordAttempt(2, (1,)),),
    ),
    "what was suspended goes on at once": (
        "record_the_next_attempt",
        seen(closed(1, SUSPENDED), pause_left_s=3.0),
        (RecordAttempt(2, (1,)),),
    ),
    # --- give_up_what_reads_another_source
    "an attempt without seals is given up when the source is edited": (
        "give_up_what_reads_another_source",
        seen(at_work(**OTHER_SOURCE)),
        (Close(1, EDITED.message, EDITED), StopDriver(1)),
    ),
    "an attempt with seals goes on, and the edit of its source is refused": (
        "give_up_what_reads_another_source",
        seen(at_work(holds_seals=True, **OTHER_SOURCE)),
        (Stall(reasons.IDENTITY_CHANGED, UNDO_THE_EDIT),),
    ),
    "so is one after seals that the attempt takes over": (
        "give_up_what_reads_another_source",
        seen(replace(closed(), holds_seals=True), at_work(2, **OTHER_SOURCE)),
        (Stall(reasons.IDENTITY_CHANGED, UNDO_THE_EDIT),),
    ),
    "what was sealed between the look and the closing counts: the edit is refused": (
        "give_up_what_reads_another_source",
        seen(replace(closed(failure=EDITED), holds_seals=True, **OTHER_SOURCE)),
        (Stall(reasons.IDENTITY_CHANGED, UNDO_THE_EDIT),),
    ),
    "a complete attempt is never followed by one of another source, also if it had no rows": (
        "give_up_what_reads_another_source",
        seen(replace(closed(complete=True), **OTHER_SOURCE)),
        (Stall(reasons.IDENTITY_CHANGED, UNDO_THE_EDIT),),
    ),
    "a later epoch keeps its source": (
        "give_up_what_reads_another_source",
        seen(replace(closed(), **OTHER_SOURCE), epoch=2),
        (Stall(reasons.IDENTITY_CHANGED, UNDO_THE_EDIT),),
    ),
    "the edited source is looked at by the next attempt, which takes nothing over": (
        "record_the_next_attempt",
        seen(replace(closed(1, EDITED), holds_seals=False, **OTHER_SOURCE), backoff_limit=0),
        (RecordAttempt(2, (), 2),),
    ),
    "the attempt after that reads the same input": (
        "record_the_next_attempt",
        seen(closed(), replace(closed(2, RETRYABLE), input_since=2, counted=(2,))),
        (RecordAttempt(3, (2,), 2),),
    ),
    "with nothing sealed another way of reading counts for all, ...": (
        "record_the_next_attempt",
        seen(replace(closed(), holds_seals=False, is_read_otherwise=True)),
        (RecordAttempt(2, (), 2),),
    ),
    "... and with rows sealed for what is left": (
        "record_the_next_attempt",
        seen(replace(closed(), is_read_otherwise=True, holds_seals=True)),
        (RecordAttempt(2, (1,)),),
    ),
    "with Restart, what was read in another way is dropped": (
        "record_the_next_attempt",
        seen(replace(closed(), is_read_otherwise=True, holds_seals=True), on_code_change="Restart"),
        (RecordAttempt(2, (), 2),),
    ),
    "what a reset drops is not taken over, and the input stays": (
        "record_the_next_attempt",
        seen(replace(closed(), is_of_other_reset=True, holds_seals=True)),
        (RecordAttempt(2, ()),),
    ),
    "what the attempt after a reset has sealed is": (
        "record_the_next_attempt",
        seen(replace(closed(), is_of_other_reset=True, holds_seals=True), replace(closed(2), holds_seals=True)),
        (RecordAttempt(3, (2,)),),
    ),
    "with nothing sealed a file that was replaced is looked at anew, ...": (
        "record_the_next_attempt",
        seen(replace(closed(failure=REPLACED_FILE), holds_seals=False), first_counted_failure=2),
        (RecordAttempt(2, (), 2),),
    ),
    "... and with rows sealed it is not": (
        "record_the_next_attempt",
        seen(replace(closed(failure=REPLACED_FILE), holds_seals=True), first_counted_failure=2),
        (RecordAttempt(2, (1,)),),
    ),
    # --- ask_before_results_are_mixed_or_dropped
    "with Ask, results of other code wait for a person": (
        "ask_before_results_are_mixed_or_dropped",
        seen(closed(code=BEFORE), **ASKS),
        (Stall(reasons.CODE_CHANGED, OF_OTHER_CODE),),
    ),
    "... and so do those that were read in another way, whose stage is named": (
        "ask_before_results_are_mixed_or_dropped",
        seen(replace(closed(), is_read_otherwise=True), on_code_change="Ask", change=replace(CHANGE, stage="embed")),
        (Stall(reasons.CODE_CHANGED, OF_OTHER_CODE.replace("1,200 rows", "1,200 rows of the stage embed")),),
    ),
    "... until an attempt with the code of now was recorded, which took over what was decided": (
        "record_the_next_attempt",
        seen(closed(1, code=BEFORE), closed(2), **ASKS),
        (RecordAttempt(3, (1, 2)),),
    ),
    "... and after a Restart that is what it has sealed itself": (
        "record_the_next_attempt",
        seen(closed(1, code=BEFORE), beginning_anew(closed(2)), **ASKS),
        (RecordAttempt(3, (2,)),),
    ),
    "other code that has sealed nothing is no question": (
        "record_the_next_attempt",
        seen(replace(closed(code=BEFORE), holds_seals=False), **ASKS),
        (RecordAttempt(2, ()),),
    ),
    "code that was taken back before anything was sealed with it is no question": (
        "record_the_next_attempt",
        seen(closed(1), replace(closed(2, code=BEFORE), holds_seals=False), **ASKS),
        (RecordAttempt(3, (1,)),),
    ),
    "a part of a micro-batch of other code is no question, as nothing of it counts": (
        "record_the_next_attempt",
        seen(closed(code=BEFORE), is_stream=True, **ASKS),
        (RecordAttempt(2, (), 2),),
    ),
    "stages with results that would be done anew wait for a person": (
        "ask_before_results_are_mixed_or_dropped",
        seen(on_code_change="Ask", change=replace(CHANGE, redone=("embed (its code has changed)",), kept=("parse",))),
        (
            Stall(
                reasons.CODE_CHANGED,
                "stages with sealed rows would be computed again: embed (its code has changed); kept: parse; approve that, or "
                "undo the edit",
            ),
        ),
    ),
    "while an earlier stage is next, attempts of the last one are no question": (
        "record_the_next_attempt",
        seen(closed(code=BEFORE), on_code_change="Ask", change=replace(CHANGE, is_of_stage_before=True)),
        (RecordAttempt(2, (1,)),),
    ),
    # --- record_the_next_attempt
    "an attempt of which nothing counts has nothing to take over": (
        "record_the_next_attempt",
        seen(closed(1), replace(closed(2), holds_seals=False)),
        (RecordAttempt(3, (1,)),),
    ),
    "a new write begins with attempt 1, which takes nothing over": ("record_the_next_attempt", seen(), (RecordAttempt(1, ()),)),
    "the attempt after a failure takes over what is sealed": (
        "record_the_next_attempt",
        seen(closed(failure=RETRYABLE)),
        (RecordAttempt(2, (1,)),),
    ),
    "with Continue, sealed results of other code stay": (
        "record_the_next_attempt",
        seen(closed(1, code=BEFORE), closed(2)),
        (RecordAttempt(3, (1, 2)),),
    ),
    "with Restart, sealed results of other code are dropped and those of this code stay": (
        "record_the_next_attempt",
        seen(closed(1, code=BEFORE), closed(2), closed(3, code=BEFORE), on_code_change="Restart"),
        (RecordAttempt(4, (2,)),),
    ),
    "after a Restart, Continue takes over what the restarted attempt has sealed and nothing that it did again": (
        "record_the_next_attempt",
        seen(closed(1, code=BEFORE), beginning_anew(closed(2))),
        (RecordAttempt(3, (2,)),),
    ),
    "after a Restart, another Restart with the first code does not bring back what was dropped": (
        "record_the_next_attempt",
        seen(closed(1), beginning_anew(closed(2, code=BEFORE)), on_code_change="Restart"),
        (RecordAttempt(3, ()),),
    ),
    "with Restart, nothing stays of other code only": (
        "record_the_next_attempt",
        seen(closed(1, code=BEFORE), on_code_change="Restart"),
        (RecordAttempt(2, ()),),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_follows(case: str) -> None:
    _, observation, actions = CASES[case]

    assert decide(observation) == actions


@pytest.mark.parametrize("case", CASES)
def test_the_rule_that_applies_first_is_the_one_that_is_meant(case: str) -> None:
    rule, observation, _ = CASES[case]

    assert next(candidate.__name__ for candidate in RULES if candidate(observation) is not None) == rule


def test_every_rule_has_a_case() -> None:
    assert {rule.__name__ for rule in RULES} == {rule for rule, _, _ in CASES.values()}


# --- the progress deadline ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("earlier", "factor"), [(0, 1), (1, 2), (2, 4), (5, 32), (6, 64), (7, 64), (30, 64)])
def test_the_progress_deadline_doubles_with_each_failure_before_it_up_to_a_bound(earlier: int, factor: int) -> None:
    observation = seen(*failed(earlier), at_work(earlier + 1))

    assert progress_deadline_s(observation) == 600.0 * factor


def test_failures_that_do_not_count_do_not_lengthen_the_deadline() -> None:
    assert progress_deadline_s(seen(*failed(5), at_work(6), first_counted_failure=6)) == 600.0
    assert progress_deadline_s(seen(*failed(5), at_work(6), first_counted_failure=5)) == 1200.0


def test_the_last_attempt_itself_does_not_lengthen_its_deadline() -> None:
    assert progress_deadline_s(seen(closed(1))) == 600.0
    assert progress_deadline_s(seen()) == 600.0


def test_a_driver_that_was_given_up_and_is_at_work_still_is_told_to_end_beside_what_else_is_done() -> None:
    still_there = replace(closed(1, SUSPENDED), driver=DriverState.RUNNING)

    assert decide(seen(still_there, is_suspended=True)) == (StopDriver(1), Wait("suspend to be unset"))
    assert decide(seen(still_there)) == (StopDriver(1), RecordAttempt(2, (1,)))
    assert decide(seen(replace(still_there, is_complete=True))) == (Commit(1),)


def test_a_driver_whose_attempt_another_runner_has_closed_and_followed_is_told_to_end() -> None:
    own = replace(closed(1), driver=DriverState.RUNNING)

    assert decide(seen(own, at_work(2, ELSEWHERE))) == (
        StopDriver(1),
        Wait("the driver of attempt 2, which another machine has started"),
    )
    assert decide(seen(own, closed(2, complete=True), commit=COMMITTED)) == (Finish(),)


# --- whatever is seen -----------------------------------------------------------------------------------------------------


@st.composite
def attempts(draw: st.DrawFn, number: int, is_last: bool) -> Attempt:
    is_closed = not is_last or draw(st.booleans())
    return Attempt(
        number=number,
        code_digest=draw(st.sampled_from([NOW, BEFORE])),
        driver=draw(st.sampled_from(DriverState)),
        is_sealed=draw(st.booleans()),
        is_closed=is_closed,
        is_complete=is_closed and draw(st.booleans()),
        awaits_table=draw(st.booleans()),
        failure=draw(st.none() | st.sampled_from([RETRYABLE, BROKEN, UNREADABLE, SUSPENDED])),
        is_outdated=draw(st.booleans()),
        idle_s=draw(st.floats(0, 1e6)),
        counted=tuple(sorted(draw(st.sets(st.integers(1, number - 1))))) if number > 1 else (),
        rows_quarantined=draw(st.sampled_from([0, 0, 1, 3])),
        has_sealed=is_closed and draw(st.booleans()),
    )


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    count = draw(st.integers(0, 5))
    return Observation(
        epoch=draw(st.integers(1, 3)),
        commit=draw(st.none() | st.just(COMMITTED)),
        began_with=draw(st.sampled_from(["", "2"])),
        run_nonce=draw(st.sampled_from(["", "2"])),
        attempts=tuple(draw(attempts(number, number == count)) for number in range(1, count + 1)),
        code_digest=NOW,
        on_code_change=draw(st.sampled_from(["Continue", "Restart", "Ask"])),
        change=draw(st.sampled_from([None, CHANGE, replace(CHANGE, redone=("embed",))])),
        backoff_limit=draw(st.integers(0, 4)),
        progress_deadline_s=draw(st.floats(1, 1e4)),
        first_counted_failure=draw(st.integers(1, 7)),
        is_suspended=draw(st.booleans()),
        is_past_deadline=draw(st.booleans()),
        pause_left_s=draw(st.floats(-10, 10)),
        row_errors=draw(st.none() | st.just(RowErrorLimit(2, "quarantine.maxRows allows 2"))),
        is_claimed=draw(st.booleans()),
        goes_on=draw(st.booleans()),
        between=draw(st.sampled_from([None, Between(5.0), Between(0.0, News(files=1), begins=True)])),
    )


@given(observations())
@settings(deadline=None, max_examples=examples(250))
def test_whatever_is_seen_something_follows_and_it_is_safe(observation: Observation) -> None:
    actions = decide(observation)

    assert actions
    last = observation.last
    is_open = last is not None and not last.is_closed
    for action in actions:
        match action:
            case Commit(attempt):
                assert last is not None
                assert attempt == last.number
                assert last.is_closed
                assert last.is_complete, "only what is complete is committed"
                taken = [one for one in observation.attempts if one.number in (*last.counted, last.number)]
                is_kept = observation.row_errors is None or sum(one.rows_quarantined for one in taken) <= 2
                assert is_kept or observation.is_claimed, "never beyond the limit, but for what may be in the table"
            case RecordAttempt(attempt, counted):
                assert not is_open, "two attempts of one epoch would be open"
                assert not observation.is_suspended
                assert not (last and last.is_complete), "a complete attempt is committed, not followed"
                assert attempt == len(observation.attempts) + 1
                assert all(observation.attempts[number - 1].is_closed for number in counted), "live seals are never taken over"
                assert tuple(sorted(set(counted))) == counted
                assert last is not None or not counted
                assert last is None or {*counted} <= {*last.counted, last.number}, "what was dropped would be there twice"
            case StartDriver(attempt) | MakeTable(attempt):
                assert is_open
                assert last is not None
                assert attempt == last.number
                assert not observation.is_suspended
            case Close(attempt, why, _):
                assert is_open
                assert last is not None
                assert attempt == last.number
                assert why
            case StopDriver(attempt):
                stopped = observation.attempts[attempt - 1]
                is_closed = stopped.is_closed or any(isinstance(other, Close) and other.attempt == attempt for other in actions)
                assert is_closed, "a driver is stopped only after its attempt was closed"
            case Finish():
                assert observation.is_committed
                assert observation.began_with == observation.run_nonce
                assert not observation.goes_on, "a write with a trigger never finishes"
            case OpenEpoch(epoch, after):
                assert observation.is_committed
                is_due = observation.between is not None and observation.between.begins
                assert observation.began_with != observation.run_nonce or is_due
                assert (epoch, after) == (observation.epoch + 1, observation.epoch), "epochs are strictly sequential"
            case Wait() | Stall():
                assert not observation.is_committed or (observation.goes_on and isinstance(action, Wait))
    if observation.is_committed:
        (action,) = actions
        assert isinstance(action, Finish | OpenEpoch | Wait)
    if last is not None and is_open and StopDriver(last.number) in actions:
        before = actions[: actions.index(StopDriver(last.number))]
        assert any(isinstance(one, Close) for one in before), "closed first: a stop that is answered late is harmless only then"


@given(observations())
@settings(deadline=None)
def test_deciding_twice_gives_the_same(observation: Observation) -> None:
    assert decide(observation) == decide(observation)


def test_the_list_of_rules_ends_with_one_that_always_applies() -> None:
    assert RULES[-1] is rules.record_the_next_attempt
    assert RULES[-1](seen()) is not None
