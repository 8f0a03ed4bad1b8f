"""Which staged objects of an ended epoch are still needed, from its records alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_protocol.store import layout
from checkpoint_protocol.store.layout import EpochLayout


@dataclass(frozen=True, slots=True)
class Needed:
    """What later epochs of a write read of a committed one.

    `input_since`: the input that was committed; its files are not taken again. `attempts`: those whose seals count, where later
    epochs read them: for the keys of rows that have a result, or for the rows that are quarantined. Empty where none do. `at`: of
    the epoch, or of its stage that has read the source.
    """

    at: EpochLayout
    input_since: int
    attempts: tuple[int, ...] = ()

    def has(self, path: str) -> bool:
        """Whether an object of the epoch must stay."""
        at = self.at
        if path == at.input_since(self.input_since) or layout.is_part(path, at.input_parts):
            return True
        return any(path.startswith(folder) for number in self.attempts for folder in _folders(at, number)) or path in {
            at.plan(number) for number in self.attempts
        }


def _folders(at: EpochLayout, attempt: int) -> tuple[str, ...]:
    return (at.seals(attempt), at.keys(attempt), at.quarantines(attempt), at.plan_parts(attempt))
