"""Cases of the rules about epochs, tables and commits, and about attempts that are closed for them."""

from __future__ import annotations

from checkpoint_control.decision.actions import (
    Action,
    Close,
    Commit,
    Finish,
    OpenEpoch,
    RecordAttempt,
    Stall,
    StopDriver,
    Wait,
)
from checkpoint_control.decision.observation import Failure, Observation, Tables
from checkpoint_protocol import reasons
from checkpoint_protocol.records import NoTarget
from tests.unit.decision.observations import (
    BEFORE,
    BROKEN,
    COMMITTED,
    GONE,
    LIMIT,
    NOT_STARTED,
    RETRYABLE,
    STREAM_ENDED,
    at_work,
    beginning_anew,
    closed,
    failed,
    seen,
    too_many,
    with_failed_rows,
)

#: The rule that applies, what is seen, and what follows.
COMMITS: dict[str, tuple[str, Observation, tuple[Action, ...]]] = {
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
}
