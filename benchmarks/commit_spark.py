"""Spark's own Iceberg as a rival of the commit: its Java library appends the same files, in a Spark that runs already.

What it is given are the files as objects, with their statistics, as an executor's commit messages would bring them. Only its
`commit` is timed: that each object is handed over from here, through a socket, is no affair of its own.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.table import StaticTable, Table

from benchmarks import plain_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkCommits:
    """Appends the files of a pyiceberg table to fresh tables of a Hadoop catalog on disk."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._java: Any = spark._jvm.org.apache.iceberg
        spark.sql("CREATE NAMESPACE IF NOT EXISTS plain.b")

    def append(self, source: Table) -> tuple[float, StaticTable]:
        """Append all files of the source's snapshot; return the seconds, and the table that was made."""
        files = self._files_of(source.metadata_location)
        name = f"plain.b.t{uuid.uuid4().hex[:12]}"
        columns = ", ".join(f"{field.name} {_SPARK_TYPES[str(field.field_type)]}" for field in source.schema().fields)
        self._spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg")
        table = self._java.spark.Spark3Util.loadIcebergTable(self._spark._jsparkSession, name)
        append = table.newFastAppend()
        for file in files:
            append.appendFile(file)
        started = time.perf_counter()
        append.commit()
        seconds = time.perf_counter() - started
        location = table.operations().current().metadataFileLocation()
        return seconds, StaticTable.from_metadata(location if "://" in location else f"file://{Path(location)}")

    def _files_of(self, metadata_location: str) -> list[Any]:
        io = self._java.hadoop.HadoopFileIO(self._spark.sparkContext._jsc.hadoopConfiguration())
        operations = self._java.StaticTableOperations(metadata_location, io)
        scan = self._java.BaseTable(operations, "source").newScan().includeColumnStats()
        tasks = scan.planFiles().iterator()
        files = []
        while tasks.hasNext():
            files.append(tasks.next().file())
        return files


_SPARK_TYPES = {
    "long": "BIGINT",
    "string": "STRING",
    "double": "DOUBLE",
    "timestamptz": "TIMESTAMP",
}


@contextmanager
def spark_commits(folder: Path, cores: int) -> Iterator[SparkCommits]:
    with plain_spark.session(folder, cores) as spark:
        yield SparkCommits(spark)
