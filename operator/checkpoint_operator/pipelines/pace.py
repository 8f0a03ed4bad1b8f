"""How fast the rows of a stage were done, by when its objects were put: for people who ask what an edit costs."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_operator.progress.epoch_progress import measure
from checkpoint_operator.progress.tallies import Tallies
from checkpoint_protocol.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Pace:
    """How many rows were read in how many seconds, by all tasks together."""

    rows: int
    seconds: float

    def seconds_for(self, rows: int) -> int:
        return round(rows * self.seconds / self.rows)


def pace_of(ledger: Ledger) -> Pace | None:
    """Return the pace of a stage: of each attempt, the time from its plan to its last seal, by the store's clock.

    None where no row is sealed, or the store does not say when objects were put. The first part of an attempt, before its plan,
    and what was not sealed are left out. One listing for each attempt.
    """
    seconds = 0.0
    for number in ledger.attempts.list_attempts():
        plan, folder = ledger.at.plan(number), ledger.at.seals(number)
        put = {stored.path: stored.modified for stored in ledger.store.list(plan.rpartition("/")[0] + "/") if stored.modified}
        sealed = [at for path, at in put.items() if path.startswith(folder)]
        if plan in put and sealed:
            seconds += max(0.0, (max(sealed) - put[plan]).total_seconds())
    rows = measure(Tallies(ledger)).rows_read
    return Pace(rows, seconds) if rows and seconds else None
