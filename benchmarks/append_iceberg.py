"""Append the same files to an Iceberg table with a step that does nothing: splits against Spark with Iceberg's runtime.

Both in one Spark of one process. What is timed: from "the files are there" to "the snapshot is in the table". Spark is run twice:
as it is by default, and with its tasks shared out evenly, which takes settings that few people know.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from benchmarks import outputs, plain_spark
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, iceberg, run_in
from benchmarks.pairs import Ran, interleave
from benchmarks.results import Result, result_of


def measure(bench: Bench) -> Iterator[Result]:
    source = bench.input(8_000_000, small_rows=40_000)
    lake = Lake(bench.folder / "ours")
    warehouse = bench.folder / "plain"
    with plain_spark.session(warehouse, bench.cores) as spark:

        def splits() -> Ran:
            table = lake.make_table(source.schema)
            seconds = run_in(spark, lake.manifest(source, iceberg(table)), lake.settings, bench.cores)
            content = outputs.of_iceberg(table)
            shutil.rmtree(table.location().removeprefix("file://"))
            return Ran(seconds, content)

        def plain() -> Ran:
            with plain_spark.table_for(spark, warehouse, source) as (table, folder):
                seconds = plain_spark.append(spark.read.parquet(str(source.folder)), table)
                return Ran(seconds, outputs.of_iceberg_folder(folder))

        def evenly() -> Ran:
            plain_spark.one_task_a_file(spark, source)
            try:
                return plain()
            finally:
                plain_spark.as_by_default(spark)

        expected = outputs.of_files(source.files)
        sides = {"plain": plain, "splits": splits, "plain evenly": evenly}
        times = interleave(sides, expected, bench.rounds, bench.warm_ups, bench.say)
    about = f"append {source.rows:,} rows x 6 columns to Iceberg, no step: splits / Spark + Iceberg runtime, same codec"
    yield result_of("append-iceberg", about, times, "splits", "plain", target=0.6)
    about = "the same / Spark + Iceberg runtime with one task a file, so that no core is idle"
    yield result_of("append-iceberg-even", about, times, "splits", "plain evenly", target=0.6)
