"""Append the same files to an Iceberg table with a step that does nothing: splits against Spark with Iceberg's runtime.

Both in one Spark of one process. What is timed: from "the files are there" to "the snapshot is in the table". Spark is run twice:
as it is by default, and with its tasks shared out evenly, which takes settings that few people know.
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
        sides = {"plain": job.plain, "splits": job.ours, "plain evenly": job.plain_evenly}
        times = interleave(sides, expected, bench.rounds, bench.warm_ups, bench.say)
    about = f"append {rows:,} rows x 6 columns to Iceberg, no step: splits / Spark + Iceberg runtime, same codec"
    yield result_of("append-iceberg", about, times, "splits", "plain", target=0.6)
    about = "the same / Spark + Iceberg runtime with one task a file, so that no core is idle"
    yield result_of("append-iceberg-even", about, times, "splits", "plain evenly", target=0.6)
