"""Cases of the rules about drivers: those that nobody has, are given up, or wait."""

from __future__ import annotations

from checkpoint_control.decision.actions import (
    Action,
    Close,
    Commit,
    MakeTable,
    RecordAttempt,
    Stall,
    StartDriver,
    StopDriver,
    Wait,
)
from checkpoint_control.decision.observation import Failure, Observation
from checkpoint_protocol import reasons
from tests.unit.decision.observations import (
    DIED,
    ELSEWHERE,
    EVICTED,
    GONE,
    MISSING,
    NO_IMAGE,
    NO_PROGRESS_AT_ALL,
    NO_ROOM,
    NOT_STARTED,
    OUT,
    OUT_OF_MEMORY,
    QUEUED,
    QUOTA,
    REPLACED,
    RETRYABLE,
    STARTING,
    STARVED,
    SUSPENDED,
    TOO_LATE,
    at_work,
    closed,
    failed,
    seen,
)

#: The rule that applies, what is seen, and what follows.
DRIVERS: dict[str, tuple[str, Observation, tuple[Action, ...]]] = {
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
}
