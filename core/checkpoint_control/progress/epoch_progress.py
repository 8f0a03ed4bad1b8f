"""How far an epoch is, for people: read from the seals, and from what its driver tells meanwhile; used by no rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from checkpoint_commit.results import count_quarantined_before
from checkpoint_control.progress.tallies import ChainTally, Tallies
from checkpoint_protocol.progress_reports import DriverPhase, DriverProgress, Work, read_report
from checkpoint_protocol.records import CommitRecord


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of one epoch. Tasks are those of the latest attempt; rows and files are of all that counts.

    `input_files_done` are whole input files that earlier attempts have sealed, so that the latest one does not open them.
    `rows_failed` are quarantined, by this or by a stage before it. `phase` is what the driver of the latest attempt says that it
    is at, None where it says nothing; `rows_in_hand` is what its tasks have computed and not sealed. Of `positions_known` in the
    whole input (None: not known before it is read), in `unit`, `positions_done` are sealed or in hand. `calls_in_flight` and
    `tries_again` are those of running tasks, of steps that wait.
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
    )


def _is_sealed(work: Work, chains: dict[int, ChainTally]) -> bool:
    """Whether what a task had in hand is sealed by now, so that it is among the sums."""
    chain = chains.get(work.task)
    return chain is not None and (chain.is_whole or chain.length > work.link)
