"""Judging for as long as somebody says, which looks for cases that are red."""

from __future__ import annotations

import argparse
import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

_MOST_SHOWN: Final = 2_500


def search(judge: Callable[[int, Counter[str]], None], step: int = 1) -> None:
    """Judge from --seed on for --seconds; print what is red, by its seed, and counts. `step`: how many seeds a call takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    end, verdicts, red = time.monotonic() + asked.seconds, Counter[str](), 0
    for seed in itertools.count(asked.seed, step):
        if time.monotonic() > end:
            break
        try:
            judge(seed, verdicts)
        except Exception as error:
            red += 1
            print(f"--- RED, {seed}: {type(error).__name__}: {error}"[:_MOST_SHOWN])
    print(dict(verdicts), f"red: {red}")
