"""How far an epoch is and how long it will take, for people: from its seals and its driver. No rule goes by it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from checkpoint_commit.results import count_quarantined_before
from checkpoint_control.progress.tallies import ChainTally, Tallies
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.progress_reports import DriverPhase, DriverProgress, Entered, Work, read_report
from checkpoint_protocol.records import CommitRecord


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of one epoch. Tasks are those of the latest attempt; rows and files are of all that counts.

    `input_files_done` are whole input files that earlier attempts have sealed, so that the latest one does not open them.
    `rows_failed` are quarantined, by this or by a stage before it. `phase` is what the driver of the latest attempt says that it
    is at, None where it says nothing; `rows_in_hand` is what its tasks have computed and not sealed. Of `positions_known` in the
    whole input (None: not known before it is read), in `unit`, `positions_done` are sealed or in hand. `calls_in_flight` and
    `tries_again` are those of running tasks, of steps that wait. `entered`: when a driver that was started for the latest attempt
    was first in each phase.
    """

    attempt: int
    tasks: int | None
    tasks_done: int
    rows_read: int
    rows_written: int
    files: int
    rows_taken_over: int
    rows_failed: int = 0
    input_files_done: int = 0
    phase: DriverPhase | None = None
    rows_in_hand: int = 0
    unit: Literal["rows", "bytes"] | None = None
    positions_done: int = 0
    positions_known: int | None = None
    calls_in_flight: int = 0
    tries_again: int = 0
    entered: tuple[Entered, ...] = ()


def measure(tallies: Tallies, commit: CommitRecord | None = None) -> Progress:
    """Return the progress of the epoch. `commit`: its commit record, where it is committed: its seals may be cleaned."""
    ledger = tallies.ledger
    if commit is not None and ledger.commits.read_cleaned() is not None:
        return Progress(
            attempt=commit.attempts,
            tasks=None,
            tasks_done=0,
            rows_read=commit.rows_read,
            rows_written=commit.rows_written,
            files=commit.files,
            rows_taken_over=0,
            rows_failed=commit.rows_failed,
        )
    attempts = ledger.attempts.list_attempts()
    if not attempts:
        return Progress(0, None, 0, 0, 0, 0, 0)
    number = attempts[-1]
    launch = ledger.attempts.read_launch(number)
    plan = ledger.plans.read_plan(number)
    earlier = [tallies.of_closed(counted) for counted in launch.counted] if launch else []
    chains = tallies.of_tasks(number) if plan else {}
    sums = [*earlier, *chains.values()]
    told = read_report(ledger.store, ledger.at.progress(number), DriverProgress)
    in_hand = [work for work in told.work if not _is_sealed(work, chains)] if told is not None and plan is not None else []
    if in_hand and ledger.attempts.read_closed(number) is not None:
        in_hand = []  # What a closed attempt has not sealed is lost.
    before_this = count_quarantined_before(ledger, launch) if launch is not None else 0
    size = told
    if (told is None or told.positions_known is None) and plan is None and launch is not None:
        # Attempts since `input_since` read the same input, and this one has not come so far as to say how much it is.
        for before in [counted for counted in launch.counted if counted >= launch.input_since][-1:]:
            size = read_report(ledger.store, ledger.at.progress(before), DriverProgress)
    return Progress(
        attempt=number,
        tasks=plan.task_count if plan else None,
        tasks_done=sum(chain.is_whole for chain in chains.values()),
        rows_read=sum(part.rows_read for part in sums),
        rows_written=sum(part.rows_written for part in sums),
        files=sum(part.files for part in sums),
        rows_taken_over=sum(part.rows_read for part in earlier),
        rows_failed=sum(part.rows_quarantined for part in sums) + before_this,
        input_files_done=plan.done_files if plan else 0,
        phase=told.phase if told is not None else None,
        rows_in_hand=sum(work.rows for work in in_hand),
        unit=size.unit if size is not None else None,
        positions_done=sum(part.positions for part in sums) + sum(work.positions for work in in_hand),
        positions_known=size.positions_known if size is not None else None,
        calls_in_flight=sum(work.calls_in_flight for work in in_hand),
        tries_again=sum(work.tries_again for work in in_hand),
        entered=told.entered if told is not None and told.started_as is None else (),
    )


def _is_sealed(work: Work, chains: dict[int, ChainTally]) -> bool:
    """Whether what a task had in hand is sealed by now, so that it is among the sums."""
    chain = chains.get(work.task)
    return chain is not None and (chain.is_whole or chain.length > work.link)


# What a driver is at, how far it is and how long that may still take, in words. For people; no rule rests on it.
#
# Called by the command line and by the cluster's controller. The time left is measured by the clock of who asks, and by no other.


#: What running tasks have in hand is told every ten seconds: a rate over less says nothing.
_LEAST_S: Final = 20.0
_OVER_S: Final = 180.0
_LEAST_STEP_S: Final = 1.0
_DECIMAL: Final = ("", "k", "M", "G", "T", "P", "E")
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


@dataclass(slots=True)
class TimeLeft:
    """Measures how fast the positions of an attempt are done, over the last minutes."""

    _attempt: int = 0
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def measure(self, now_s: float, progress: Progress) -> float | None:
        """Return how many seconds are left if it goes on as it did; None while that cannot be known."""
        if progress.attempt != self._attempt or not is_running(progress):
            # Planning and starting Spark are no part of the rate.
            self._attempt = progress.attempt
            self._seen.clear()
        if progress.positions_known is None or not is_running(progress):
            return None
        done = progress.positions_done
        if not self._seen or now_s - self._seen[-1][0] >= _LEAST_STEP_S:
            self._seen.append((now_s, done))
        while len(self._seen) > 2 and now_s - self._seen[0][0] > _OVER_S:
            self._seen.popleft()
        first_s, first = self._seen[0]
        if now_s - first_s < _LEAST_S or done <= first:
            return None
        return max(0, progress.positions_known - done) * (now_s - first_s) / (done - first)


def is_running(progress: Progress) -> bool:
    """Whether tasks are at work, as far as can be told: a driver that says nothing has sealed something."""
    if progress.tasks is None or progress.tasks_done == progress.tasks:
        return False
    if progress.phase is None:
        return progress.rows_read > progress.rows_taken_over
    return progress.phase == "RunningTasks"


def describe(progress: Progress, left_s: float | None = None) -> str:
    """Say what the driver of the latest attempt is at."""
    if progress.tasks is not None and progress.tasks_done == progress.tasks:
        return "all tasks are sealed"
    if progress.tasks is None and progress.phase == "AwaitingRows":
        return "awaiting rows"
    if not is_running(progress):
        return "starting Spark" if progress.tasks is not None or progress.phase == "StartingSpark" else "planning"
    share = share_of(progress)
    rows = progress.rows_read + progress.rows_in_hand
    if share is not None and progress.unit == "rows":
        done = f"{progress.positions_done:,} of {progress.positions_known:,} rows ({share:.0%})"
    elif share is not None:
        done = f"{counted(rows, 'row')}, {how_far(progress)} of the input ({share:.0%})"
    else:
        done = counted(rows, "row")
    in_hand = f", {progress.rows_in_hand:,} of them not sealed yet" if progress.rows_in_hand else ""
    calls = f"; {counted(progress.calls_in_flight, 'call')} in flight" if progress.calls_in_flight else ""
    again = f", {progress.tries_again:,} made again" if progress.tries_again else ""
    left = f"; about {time_text(left_s)} left" if left_s is not None else ""
    return f"tasks running: {done}{in_hand}{calls}{again}{left}"


def share_of(progress: Progress) -> float | None:
    """Return how much of the input is done, from 0 to 1; None where it is not known how much there is."""
    if not progress.positions_known:
        return None
    return min(1.0, progress.positions_done / progress.positions_known)


def how_far(progress: Progress) -> str | None:
    """Return briefly how much of the input is done, and of how much: "1.23M/10M" rows, or "3.44Gi/12Gi" where bytes are counted.

    Where it is not known how much there is, the source rows that are done: "1.23M"; None before anything is known. Without a
    space, as it is a column of kubectl, which people cut at spaces. It moves while a long task has sealed nothing, since what is
    in hand is counted. Nothing is rounded up: what is not done is not said.
    """
    known = progress.positions_known
    if known is None:
        is_silent = progress.tasks is None and not progress.rows_read
        return None if is_silent else _short(progress.rows_read + progress.rows_in_hand, 1000, _DECIMAL)
    base, suffixes = (1024, _BINARY) if progress.unit == "bytes" else (1000, _DECIMAL)
    done = min(progress.positions_done, known)
    text = f"{_short(done, base, suffixes)}/{_short(known, base, suffixes)}"
    return f"{text}B" if progress.unit == "bytes" and known < base else text


def _short(count: int, base: int, suffixes: Sequence[str]) -> str:
    """Return a count with three digits and a suffix of Kubernetes' quantities, what is beyond them cut off."""
    power = 0
    while power + 1 < len(suffixes) and count >= base ** (power + 1):
        power += 1
    whole = count // base**power
    decimals = 0 if power == 0 or whole >= 100 else 1 if whole >= 10 else 2
    cut = count * 10**decimals // base**power
    text = f"{cut // 10**decimals}.{cut % 10**decimals:0{decimals}d}".rstrip("0").rstrip(".") if decimals else str(cut)
    return f"{text}{suffixes[power]}"


def time_text(seconds: float) -> str:
    """Return a time for people, no finer than it is known."""
    if seconds < 90:
        return f"{max(10, round(seconds / 10) * 10)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"
