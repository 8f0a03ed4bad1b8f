"""The other side: Spark with Iceberg's own runtime, as one would use it without checkpoints."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.checkpointed import CODEC
from benchmarks.inputs import Input
from benchmarks.paces import CODE
from checkpoint_spark.driver.spark_runner import fast_start
from devtools.spark_iceberg import iceberg_spark_runtime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_SET = ", ".join(f"'{key}'='{value}'" for key, value in CODEC.items())
PROPERTIES = f"TBLPROPERTIES ({_SET})"


def conf_of(warehouse: Path, memory: str = "4g") -> dict[str, str]:
    """Return Spark's settings: those that both ways need, and a catalog named `plain`; the fast start that our drivers have."""
    conf = {
        "spark.jars": str(iceberg_spark_runtime()),
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalog.plain": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.plain.type": "hadoop",
        "spark.sql.catalog.plain.warehouse": str(warehouse),
    }
    return fast_start(conf, os.environ)


@contextmanager
def session(warehouse: Path, cores: int, memory: str = "4g", more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Start Spark in this process, with the paced step on its tasks' import path, and stop it. `more` are settings besides."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(CODE), *filter(None, [os.environ.get("PYTHONPATH")])])
    sys.path.insert(0, str(CODE))
    builder = SparkSession.builder.master(f"local[{cores}]")
    for name, value in (conf_of(warehouse, memory) | dict(more or {})).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def one_task_a_file(spark: SparkSession, source: Input) -> None:
    """Let Spark share out the files evenly. By default it packs them into so few tasks that a core is idle at the end."""
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(max(file.stat().st_size for file in source.files)))
    spark.conf.set("spark.sql.files.openCostInBytes", "0")


def as_by_default(spark: SparkSession) -> None:
    """Undo one_task_a_file."""
    spark.conf.unset("spark.sql.files.maxPartitionBytes")
    spark.conf.unset("spark.sql.files.openCostInBytes")


@contextmanager
def table_for(
    spark: SparkSession, warehouse: Path, source: Input, partitioned: str = "", *properties: str
) -> Iterator[tuple[str, Path]]:
    """Make an empty Iceberg table for the input; give its name and folder, and drop it at the end.

    `partitioned` is a clause of SQL, `properties` are properties of the table besides.
    """
    name = f"b.t{uuid.uuid4().hex[:12]}"
    columns = ", ".join(f"{column} {kind}" for column, kind in spark.read.parquet(str(source.folder)).dtypes)
    said = f"TBLPROPERTIES ({', '.join((_SET, *properties))})"
    spark.sql(f"CREATE TABLE plain.{name} ({columns}) USING iceberg {partitioned} {said}")
    try:
        yield f"plain.{name}", warehouse / name.replace(".", "/")
    finally:
        spark.sql(f"DROP TABLE plain.{name} PURGE")


def append(frame: DataFrame, table: str) -> float:
    """Append and return the seconds."""
    started = time.perf_counter()
    frame.writeTo(table).append()
    return time.perf_counter() - started


def overwrite_partitions(frame: DataFrame, table: str) -> float:
    """Replace what is in the partitions of the rows, and return the seconds."""
    started = time.perf_counter()
    frame.writeTo(table).overwritePartitions()
    return time.perf_counter() - started
