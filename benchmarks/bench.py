"""What a figure is given: where it may write, how large it is to be, and whom to tell how far it is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.inputs import Input, make_input

_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Bench:
    """One figure's surroundings.

    `folder` is the figure's own and is removed after it; `shared` keeps inputs for all figures of one command. `small`: a smoke
    test, whose numbers mean nothing.
    """

    folder: Path
    shared: Path
    cores: int
    small: bool
    rounds_asked: int | None = None
    say: Callable[[str], None] = field(default_factory=lambda: teller())

    @property
    def rounds(self) -> int:
        return self.rounds_asked or (1 if self.small else _ROUNDS)

    @property
    def warm_ups(self) -> int:
        """Rounds that are run first and do not count."""
        return 0 if self.small else 1

    def input(self, rows: int, small_rows: int, group_rows: int | None = None) -> Input:
        """Return the input of so many rows, which is made at first use."""
        return make_input(self.shared, small_rows if self.small else rows, group_rows)


def teller() -> Callable[[str], None]:
    """Return what says a line on stderr, with the seconds since now."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:7.1f} s  {text}", file=sys.stderr, flush=True)

    return say
