"""Append the same files to a Lance dataset: splits against the library itself, and against Spark's cheapest sink, Parquet files.

`lance.write_dataset` runs in this process with as many threads as Spark has cores, and reads with pyarrow, as splits do.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator

from benchmarks import outputs, plain_spark
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, run_in
from benchmarks.pairs import Ran, interleave
from benchmarks.results import Result, result_of


def measure(bench: Bench) -> Iterator[Result]:
    # Read by Lance when its threads begin, so before the first import.
    os.environ["LANCE_CPU_THREADS"] = str(bench.cores)
    import lance
    import pyarrow as pa
    import pyarrow.dataset as ds

    pa.set_cpu_count(bench.cores)
    source = bench.input(8_000_000, small_rows=40_000)
    lake = Lake(bench.folder / "ours")
    made = bench.folder / "made"
    with plain_spark.session(bench.folder / "plain", bench.cores) as spark:

        def empty_dataset() -> str:
            uri = str(made / uuid.uuid4().hex)
            lance.write_dataset(source.schema.empty_table(), uri, schema=source.schema)
            return uri

        def splits() -> Ran:
            uri = empty_dataset()
            seconds = run_in(spark, lake.manifest(source, {"lance": {"uri": uri}}), lake.settings, bench.cores)
            ran = Ran(seconds, outputs.of_lance(uri))
            shutil.rmtree(uri)
            return ran

        def library() -> Ran:
            uri = empty_dataset()
            started = time.perf_counter()
            scanner = ds.dataset(source.folder, format="parquet").scanner()
            lance.write_dataset(scanner.to_reader(), uri, mode="append")
            ran = Ran(time.perf_counter() - started, outputs.of_lance(uri))
            shutil.rmtree(uri)
            return ran

        def parquet() -> Ran:
            folder = made / uuid.uuid4().hex
            started = time.perf_counter()
            spark.read.parquet(str(source.folder)).write.option("compression", "zstd").parquet(str(folder))
            ran = Ran(time.perf_counter() - started, outputs.of_files(folder.glob("*.parquet")))
            shutil.rmtree(folder)
            return ran

        sides = {"library": library, "splits": splits, "parquet": parquet}
        times = interleave(sides, outputs.of_files(source.files), bench.rounds, bench.warm_ups, bench.say)
    what = f"append {source.rows:,} rows x 6 columns to Lance, no step: splits"
    yield result_of(
        "append-lance", f"{what} / lance.write_dataset, {bench.cores} threads", times, "splits", "library", target=1.1
    )
    yield result_of(
        "append-lance-parquet", f"{what} / Spark's write.parquet of the same rows", times, "splits", "parquet", target=0.8
    )
