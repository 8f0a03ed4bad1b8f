"""Where the adversary's decisions come from. 0 is always the dullest choice, so that shrinking leaves only what matters."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from hypothesis import strategies as st


class Choices(Protocol):
    def below(self, limit: int) -> int:
        """Return a number from 0 to limit - 1."""


class Dull:
    """No adversary."""

    def below(self, limit: int) -> int:
        return 0


class Seeded:
    """A pseudo-random adversary; the seed is the whole example."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)


@cache
def _up_to(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Hypothesis is the adversary, and shrinks what it finds. `draw` is that of a composite strategy."""

    draw: st.DrawFn

    def below(self, limit: int) -> int:
        return self.draw(_up_to(limit - 1)) if limit > 1 else 0


def weighted(choices: Choices, weights: Sequence[int]) -> int:
    """Return an index, each as likely as its weight says. The first should be the dullest."""
    number = choices.below(sum(weights))
    for index, weight in enumerate(weights):
        if number < weight:
            return index
        number -= weight
    raise AssertionError("unreachable")
