"""How far an epoch is, for people: read from the seals, used by no rule."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_protocol.ledger import Ledger


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
    input_files_done: int = 0


def measure(ledger: Ledger) -> Progress:
    """Return the progress of the epoch. Reads each seal once in the life of the ledger."""
    attempts = ledger.list_attempts()
    if not attempts:
        return Progress(0, None, 0, 0, 0, 0, 0)
    number = attempts[-1]
    launch = ledger.read_launch(number)
    plan = ledger.read_plan(number)
    earlier = list(ledger.counted_seals(launch.counted)) if launch else []
    chains = ledger.read_seals(number, ledger.list_links(number)) if plan else {}
    current = [seal for chain in chains.values() for seal in chain]
    return Progress(
        attempt=number,
        tasks=len(plan.tasks) if plan else None,
        tasks_done=sum(bool(chain) and chain[-1].last for chain in chains.values()),
        rows_read=sum(seal.rows_read for seal in (*earlier, *current)),
        rows_written=sum(seal.rows_written for seal in (*earlier, *current)),
        files=sum(len(seal.files) for seal in (*earlier, *current)),
        rows_taken_over=sum(seal.rows_read for seal in earlier),
        input_files_done=plan.done_files if plan else 0,
    )
