"""Spark's own Iceberg as a rival of the commit: its Java library appends the same files, in a Spark that runs already.

What it is given are the files as objects, with their statistics, as an executor's commit messages would bring them. Only its
`commit` is timed: that each object is handed over from here, through a socket, is no affair of its own.

On disk its tables are those of a Hadoop catalog. On the S3 server it has a catalog in a SQLite file, as ours and pyiceberg's
have, and Iceberg's own S3 client, whose requests wait as theirs do.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.table import StaticTable, Table

from benchmarks import plain_spark
from benchmarks.commit_scene import Rig
from checkpoint_protocol.places.storage import StorageSettings, iceberg_options
from devtools.spark_iceberg import s3_and_sqlite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_S3_IO = "org.apache.iceberg.aws.s3.S3FileIO"


class SparkCommits:
    """Appends the files of a pyiceberg table to fresh tables of Spark's own catalog of a rig."""

    def __init__(self, spark: SparkSession, rig: Rig) -> None:
        self._spark, self._rig = spark, rig
        self._java: Any = spark._jvm.org.apache.iceberg
        self._catalog = _catalog_of(rig)
        for name, value in _conf_of(rig).items():
            spark.conf.set(name, value)
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self._catalog}.b")

    def append(self, source: Table) -> tuple[float, StaticTable]:
        """Append all files of the source's snapshot; return the seconds, and the table that was made."""
        files = self._files_of(source.metadata_location)
        name = f"{self._catalog}.b.t{uuid.uuid4().hex[:12]}"
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
        location = location if "://" in location else f"file://{Path(location)}"
        return seconds, StaticTable.from_metadata(location, iceberg_options(self._rig.base, self._rig.fast))

    def _files_of(self, metadata_location: str) -> list[Any]:
        if _is_on_s3(self._rig):
            io = self._java.aws.s3.S3FileIO()
            io.initialize(_s3_options(self._rig, self._rig.fast))
        else:
            io = self._java.hadoop.HadoopFileIO(self._spark.sparkContext._jsc.hadoopConfiguration())
        operations = self._java.StaticTableOperations(metadata_location, io)
        scan = self._java.BaseTable(operations, "source").newScan().includeColumnStats()
        tasks = scan.planFiles().iterator()
        files = []
        while tasks.hasNext():
            files.append(tasks.next().file())
        return files


def _is_on_s3(rig: Rig) -> bool:
    return rig.base.startswith("s3://")


def _catalog_of(rig: Rig) -> str:
    return "slow" if _is_on_s3(rig) else "plain"


def _s3_options(rig: Rig, storage: StorageSettings) -> dict[str, str]:
    options = iceberg_options(rig.base, storage)
    options.pop("s3.connect-timeout")
    region = options.pop("s3.region")
    return options | {"s3.path-style-access": "true", "client.region": region}


def _conf_of(rig: Rig) -> dict[str, str]:
    """Return the settings of the catalog for a rig on the S3 server; for disk plain_spark has them."""
    if not _is_on_s3(rig):
        return {}
    options = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{rig.folder}-spark.db",
        "jdbc.schema-version": "V1",
        "clients": "1",
        "warehouse": f"{rig.base}/w/spark",
        "io-impl": _S3_IO,
        **_s3_options(rig, rig.settings),
    }
    prefix = f"spark.sql.catalog.{_catalog_of(rig)}"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {f"{prefix}.{name}": value for name, value in options.items()}


@contextmanager
def spark_for_commits(folder: Path, cores: int) -> Iterator[SparkSession]:
    """Start a Spark that reaches the tables of every rig, and stop it."""
    classes = {"spark.driver.extraClassPath": os.pathsep.join(map(str, s3_and_sqlite()))}
    with plain_spark.session(folder, cores, more=classes) as spark:
        yield spark


_SPARK_TYPES = {
    "long": "BIGINT",
    "string": "STRING",
    "double": "DOUBLE",
    "timestamptz": "TIMESTAMP",
}
