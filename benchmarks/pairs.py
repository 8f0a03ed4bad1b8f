"""Run sides in turn, A B A B, and compare what they took: what changes on the machine meanwhile meets all of them alike.

Outputs are compared before a time counts. The ratio is that of the medians; its spread is that of the ratios within the rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

#: The seconds of each side, one a round.
Times = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a side: how long it took, and what it left."""

    seconds: float
    output: Hashable


Side = Callable[[], Ran]


class OutputsDiffer(Exception):
    """The sides did not do the same work, so their times cannot be compared."""


@dataclass(frozen=True, slots=True)
class Ratio:
    middle: float
    lowest: float
    highest: float


def interleave(sides: Mapping[str, Side], expected: Hashable, rounds: int, warm_ups: int, say: Callable[[str], None]) -> Times:
    """Run each side once a round, in order, and return the times. Raises OutputsDiffer where an output is another."""
    times: Times = {name: [] for name in sides}
    for number in range(-warm_ups + 1, rounds + 1):
        done: dict[str, Ran] = {}
        for name, side in sides.items():
            done[name] = side()
            if done[name].output != expected:
                raise OutputsDiffer(f"{name} left {done[name].output}, and expected was {expected}")
        told = ", ".join(f"{name} {ran.seconds:.2f} s" for name, ran in done.items())
        say(f"{f'round {number}' if number > 0 else 'warm-up'}: {told}")
        if number > 0:
            for name, ran in done.items():
                times[name].append(round(ran.seconds, 4))
    return times


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Return ours / theirs: of the medians, and the least and the most of one round."""
    within = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return Ratio(statistics.median(ours) / statistics.median(theirs), min(within), max(within))
