"""Append the same files to an Iceberg table by keys, with a step that does nothing: DataFrames against Spark with the runtime.

As `append-iceberg`, and apart from it: there Python's workers would wait so long between two turns that Spark ends them, and each
turn would pay for their imports.
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

        def frames(keys: str) -> Ran:
            table = lake.make_table(source.schema)
            seconds = run_in(spark, lake.manifest(source, iceberg(table), keys=keys), lake.settings, bench.cores)
            content = outputs.of_iceberg(table)
            shutil.rmtree(table.location().removeprefix("file://"))
            return Ran(seconds, content)

        def plain() -> Ran:
            with plain_spark.table_for(spark, warehouse, source) as (table, folder):
                seconds = plain_spark.append(spark.read.parquet(str(source.folder)), table)
                return Ran(seconds, outputs.of_iceberg_folder(folder))

        expected = outputs.of_files(source.files)
        sides = {"plain": plain, "int64": lambda: frames("id"), "text": lambda: frames("key")}
        times = interleave(sides, expected, bench.rounds, bench.warm_ups, bench.say)
    for name, key in (("int64", "an int64"), ("text", "16 characters")):
        about = f"append {source.rows:,} rows x 6 columns to Iceberg, no step: DataFrame way, key {key} / Spark + Iceberg runtime"
        yield result_of(f"append-frames-{name}", about, times, name, "plain", target=1.35)
