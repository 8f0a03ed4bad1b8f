"""Whether a write goes on with another epoch, and after which: the one place that answers it. Pure.

An epoch begins in the store with its first launch record; to open one before that changes nothing there. Asked by the rules, by
the controller before it opens a store for a write that is finished, and by the command `status`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NextEpoch:
    """The epoch that is asked for. Its input is what no epoch up to `after` has taken."""

    number: int
    after: int


def next_epoch(
    number: int, began_with: str | None, run_nonce: str, *, was_deleted: bool = False, is_triggered: bool = False
) -> NextEpoch | None:
    """Return the epoch that follows this one once it is committed; None if this one is the last that is asked for.

    `began_with`: the runNonce of its first attempt, None if that is not known, so that nothing follows from it; `run_nonce`:
    that of the manifest now. `was_deleted`: this one has ended by a deletion, so that what it was asked for is not done.
    `is_triggered`: the trigger of the write is due, and there is enough for another epoch.
    """
    if not was_deleted and not is_triggered and (began_with is None or began_with == run_nonce):
        return None
    return NextEpoch(number + 1, after=number)
