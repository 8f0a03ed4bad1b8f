"""Cases of the rules about failures, other code, other sources, and the next attempt."""

from __future__ import annotations

from dataclasses import replace

from checkpoint_control.decision.actions import (
    Action,
    Close,
    RecordAttempt,
    Stall,
    StopDriver,
    Wait,
)
from checkpoint_control.decision.observation import Observation
from checkpoint_protocol import reasons
from tests.unit.decision.observations import (
    ASKS,
    BEFORE,
    BROKEN,
    CHANGE,
    EDITED,
    OF_OTHER_CODE,
    OTHER_SOURCE,
    REPLACED,
    REPLACED_FILE,
    RETRYABLE,
    SUSPENDED,
    UNDO_THE_EDIT,
    UNREADABLE,
    at_work,
    beginning_anew,
    closed,
    failed,
    seen,
)

#: The rule that applies, what is seen, and what follows.
ATTEMPTS: dict[str, tuple[str, Observation, tuple[Action, ...]]] = {
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
