"""How many rows steps want at a time, as far as the manifest says so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from checkpoint_protocol.manifest.steps import MOST_ROWS_OF_A_BATCH, Step

#: Batches of sizes that have no smaller multiple in common are not exact.
_MOST_EXACT_ROWS: Final = MOST_ROWS_OF_A_BATCH


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of some steps, which take batches one after another."""

    steps: Sequence[Step]

    @property
    def rows_at_once(self) -> int:
        """How many rows the row steps do at once."""
        return max((step.concurrency or 1 for step in self.steps if step.input == "row"), default=1)

    @property
    def batches_at_once(self) -> int:
        """How many batches the batch steps do at once."""
        return max((step.concurrency or 1 for step in self.steps if step.input != "row"), default=1)

    @property
    def exact_rows(self) -> int | None:
        """Of how many rows the batches of the first batch step are to be; None where no step says so."""
        sizes = [step.batch_size for step in self.steps if step.batch_size is not None]
        if not sizes:
            return None
        common = math.lcm(*sizes)
        return common if common <= _MOST_EXACT_ROWS else max(sizes)

    @property
    def least_rows(self) -> int:
        """The fewest rows that should be read at a time."""
        return max(self.rows_at_once, self.exact_rows or 1)
