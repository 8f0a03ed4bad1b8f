"""Append the same files to an Iceberg table by keys, with a step that does nothing: DataFrames against Spark with the runtime.

As `append-iceberg`, and apart from it: there Python's workers would wait so long between two turns that Spark ends them, and each
turn would pay for their imports.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import outputs
from benchmarks.appending import appending
from benchmarks.bench import Bench
from benchmarks.pairs import interleave
from benchmarks.results import Result, result_of


def measure(bench: Bench) -> Iterator[Result]:
    with appending(bench) as job:
        expected, rows = outputs.of_files(job.source.files), job.source.rows
        sides = {"plain": job.plain, "int64": lambda: job.ours("id"), "text": lambda: job.ours("key")}
        times = interleave(sides, expected, bench.rounds, bench.warm_ups, bench.say)
    for name, key in (("int64", "an int64"), ("text", "16 characters")):
        about = f"append {rows:,} rows x 6 columns to Iceberg, no step: DataFrame way, key {key} / Spark + Iceberg runtime"
        yield result_of(f"append-frames-{name}", about, times, name, "plain", target=1.35)
