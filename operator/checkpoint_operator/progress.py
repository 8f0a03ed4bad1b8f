"""How far an epoch is, for people: read from the seals, used by no rule."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_operator.tallies import Tallies


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of one epoch. Tasks are those of the latest attempt; rows and files are of all that counts.

    `input_files_done` are whole input files that earlier attempts have sealed, so that the latest one does not open them.
    """

    attempt: int
    tasks: int | None
    tasks_done: int
    rows_read: int
    rows_written: int
    files: int
    rows_taken_over: int
    rows_quarantined: int = 0
    input_files_done: int = 0


def measure(tallies: Tallies) -> Progress:
    """Return the progress of the epoch."""
    ledger = tallies.ledger
    attempts = ledger.list_attempts()
    if not attempts:
        return Progress(0, None, 0, 0, 0, 0, 0)
    number = attempts[-1]
    launch = ledger.read_launch(number)
    plan = ledger.read_plan(number)
    earlier = [tallies.of_closed(counted) for counted in launch.counted] if launch else []
    chains = tallies.of_tasks(number) if plan else {}
    sums = [*earlier, *chains.values()]
    return Progress(
        attempt=number,
        tasks=plan.task_count if plan else None,
        tasks_done=sum(chain.is_whole for chain in chains.values()),
        rows_read=sum(part.rows_read for part in sums),
        rows_written=sum(part.rows_written for part in sums),
        files=sum(part.files for part in sums),
        rows_taken_over=sum(part.rows_read for part in earlier),
        rows_quarantined=sum(part.rows_quarantined for part in sums),
        input_files_done=plan.done_files if plan else 0,
    )
