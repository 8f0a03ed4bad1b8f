"""What the tests of the decision see: attempts, their failures, and observations of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from checkpoint_control.decision import rules
from checkpoint_control.decision.observation import Attempt, Change, DriverState, Failure, Observation, RowErrorLimit
from checkpoint_protocol import reasons
from checkpoint_protocol.records import CommitRecord

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
