"""Measure one figure in this process and keep its results as they come. Started by `python -m benchmarks`, one after the other.

python -m benchmarks.one FIGURE --folder FOLDER --shared FOLDER --results FILE [--small] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks import figures, machine, results
from benchmarks.bench import Bench


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("figure")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    facts = machine.facts()
    bench = Bench(
        folder=arguments.folder,
        shared=arguments.shared,
        cores=os.cpu_count() or 1,
        small=arguments.small,
        rounds_asked=arguments.rounds,
    )
    for result in figures.find(arguments.figure).load()(bench):
        results.keep(result.model_copy(update={"machine": facts}), arguments.results)
        state = "reached" if result.is_reached else "NOT reached"
        bench.say(f"{result.figure}: {result.ratio:g} (to reach: {result.target}, {state})")


if __name__ == "__main__":
    main()
