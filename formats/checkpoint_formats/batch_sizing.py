"""How much to read at a time: little where the steps are slow, so that a segment can end in time; much where they are fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MOST_ROWS: Final = 65_536
_MOST_BYTES: Final = 8 << 20
_SMALLEST: Final = 1 / _MOST_ROWS
_FIRST: Final = 1 / 4096
_MOST_S: Final = 1.0


@dataclass(slots=True)
class BatchSizing:
    """The size of the next chunk, adapted to how long the last one took.

    Chunks aim at a quarter of the checkpoint interval and at one second at the most: a step of one second a row is then fed
    row by row, and a fast one 65,536 rows at a time.
    """

    interval_s: float
    scale: float = _FIRST

    @property
    def rows(self) -> int:
        return max(1, int(_MOST_ROWS * self.scale))

    @property
    def size_bytes(self) -> int:
        return max(1, int(_MOST_BYTES * self.scale))

    def took(self, seconds: float) -> None:
        """Adapt to the time that one chunk took from reading to writing."""
        aim = min(self.interval_s / 4, _MOST_S)
        if seconds > aim:
            self.scale = max(_SMALLEST, self.scale / max(2.0, seconds / aim))
        elif seconds < aim / 4:
            self.scale = min(1.0, self.scale * 4)
