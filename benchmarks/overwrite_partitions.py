"""Overwrite the partitions of an Iceberg table that the rows are in: splits against Spark's dynamic overwrite.

Both in one Spark of one process. The table is partitioned by hour and has rows in those partitions, which go. What is timed: from
"the files are there" to "the snapshot is in the table". Spark shuffles the rows by partition first, as Iceberg asks it to by
default (`write.distribution-mode`: hash); it is run a second time without that.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pyarrow.parquet as pq
from pyiceberg.transforms import HourTransform

from benchmarks import outputs, plain_spark
from benchmarks.appending import Appending, appending
from benchmarks.bench import Bench
from benchmarks.checkpointed import iceberg, run_in
from benchmarks.pairs import Ran, interleave
from benchmarks.results import Result, result_of

_MODE = {"mode": "OverwritePartitions"}


def measure(bench: Bench) -> Iterator[Result]:
    with appending(bench) as job:
        expected, rows = outputs.of_files(job.source.files), job.source.rows
        sides = {
            "plain": lambda: _by_spark(job),
            "splits": lambda: _by_us(job),
            "plain without a shuffle": lambda: _by_spark(job, "'write.distribution-mode'='none'"),
        }
        times = interleave(sides, expected, bench.rounds, bench.warm_ups, bench.say)
    about = f"overwrite the partitions of {rows:,} rows x 6 columns in Iceberg, no step: splits / Spark + Iceberg runtime"
    yield result_of("overwrite-partitions", about, times, "splits", "plain", target=0.7)
    about = "the same / Spark + Iceberg runtime with write.distribution-mode: none, so that it does not shuffle"
    yield result_of("overwrite-partitions-none", about, times, "splits", "plain without a shuffle", target=0.7)


def _by_us(job: Appending) -> Ran:
    table = job.lake.make_table(job.source.schema)
    with table.update_spec() as update:
        update.add_field("at", HourTransform(), "at_hour")
    table.append(pq.read_table(job.source.files[0]))
    manifest = job.lake.manifest(job.source, {**iceberg(table), **_MODE})
    seconds = run_in(job.spark, manifest, job.lake.settings, job.cores)
    content = outputs.of_iceberg(table)
    shutil.rmtree(table.location().removeprefix("file://"))
    return Ran(seconds, content)


def _by_spark(job: Appending, *properties: str) -> Ran:
    with plain_spark.table_for(job.spark, job.warehouse, job.source, "PARTITIONED BY (hours(at))", *properties) as (
        table,
        folder,
    ):
        plain_spark.append(job.spark.read.parquet(str(job.source.files[0])), table)
        seconds = plain_spark.overwrite_partitions(job.spark.read.parquet(str(job.source.folder)), table)
        return Ran(seconds, outputs.of_iceberg_folder(folder))
