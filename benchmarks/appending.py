"""Two ways to append the same files to Iceberg tables with one Spark that is running: ours, and Spark's with the runtime."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import outputs, plain_spark
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, iceberg, run_in
from benchmarks.inputs import Input
from benchmarks.pairs import Ran

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Appending:
    """The sides. Each makes a table of its own, and leaves none."""

    spark: SparkSession
    source: Input
    lake: Lake
    warehouse: Path
    cores: int

    def ours(self, keys: str = "") -> Ran:
        """In splits, or by the key column that is named."""
        table = self.lake.make_table(self.source.schema)
        seconds = run_in(self.spark, self.lake.manifest(self.source, iceberg(table), keys=keys), self.lake.settings, self.cores)
        content = outputs.of_iceberg(table)
        shutil.rmtree(table.location().removeprefix("file://"))
        return Ran(seconds, content)

    def plain(self) -> Ran:
        with plain_spark.table_for(self.spark, self.warehouse, self.source) as (table, folder):
            seconds = plain_spark.append(self.spark.read.parquet(str(self.source.folder)), table)
            return Ran(seconds, outputs.of_iceberg_folder(folder))

    def plain_evenly(self) -> Ran:
        """With one task a file, which takes settings that few people know."""
        plain_spark.one_task_a_file(self.spark, self.source)
        try:
            return self.plain()
        finally:
            plain_spark.as_by_default(self.spark)


@contextmanager
def appending(bench: Bench) -> Iterator[Appending]:
    source = bench.input(8_000_000, small_rows=40_000)
    warehouse = bench.folder / "plain"
    with plain_spark.session(warehouse, bench.cores) as spark:
        yield Appending(spark, source, Lake(bench.folder / "ours"), warehouse, bench.cores)
