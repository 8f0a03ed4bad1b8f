"""A step of one millisecond a row, checkpointed, against the same step in Spark without checkpoints (mapInArrow).

Both in one Spark, in tasks of like size, so that neither waits for a last task alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Final

from benchmarks import outputs, paces, plain_spark
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, iceberg, run_in
from benchmarks.pairs import Ran, interleave
from benchmarks.results import Result, result_of

_ROW_US: Final = 1000
_INTERVAL: Final = "5s"


def measure(bench: Bench) -> Iterator[Result]:
    source = bench.input(40_000, small_rows=1_600)
    lake = Lake(bench.folder / "ours")
    warehouse = bench.folder / "plain"
    with plain_spark.session(warehouse, bench.cores) as spark:
        from paced import Paced  # on the import path since Spark was started

        plain_spark.one_task_a_file(spark, source)
        checkpoint = {"interval": _INTERVAL, "minimumBytes": "1"}

        def checkpointed() -> Ran:
            table = lake.make_table(source.schema)
            manifest = lake.manifest(source, iceberg(table), checkpoint, steps=[paces.step(_ROW_US)])
            ran = Ran(run_in(spark, manifest, lake.settings, bench.cores), outputs.of_iceberg(table))
            shutil.rmtree(table.location().removeprefix("file://"))
            return ran

        def plain() -> Ran:
            with plain_spark.table_for(spark, warehouse, source) as (table, folder):
                frame = spark.read.parquet(str(source.folder))
                seconds = plain_spark.append(frame.mapInArrow(Paced(_ROW_US).each, frame.schema), table)
                return Ran(seconds, outputs.of_iceberg_folder(folder))

        expected = outputs.of_files(source.files)
        times = interleave({"plain": plain, "checkpointed": checkpointed}, expected, bench.rounds, bench.warm_ups, bench.say)
    about = (
        f"a step of 1 ms a row, {source.rows:,} rows: sealed every {_INTERVAL} and appended to Iceberg "
        "/ the same step in Spark's mapInArrow, appended by Iceberg's runtime"
    )
    yield result_of("slow-step", about, times, "checkpointed", "plain", target=1.02)
