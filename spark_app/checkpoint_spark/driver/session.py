"""Spark's SQL session of one driver, with the properties that rows known by keys rest on; and a table that is audited, in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from checkpoint_protocol.errors import CheckpointError
from checkpoint_work.audits.staged_table import Piece, read_piece
from checkpoint_work.process.settings import storage_settings
from checkpoint_work.tasks.failures import end_task, of_spark

_TASKS_PER_CORE: Final = 3


def properties(conf: Mapping[str, str], parallelism: int) -> dict[str, str]:
    """Return the properties: ours where the user says nothing, the user's, and ours that nobody may change."""
    tasks = str(parallelism * _TASKS_PER_CORE)
    return {
        # One answer everywhere, and in every attempt: else a timestamp of text would depend on the machine that reads it.
        "spark.sql.session.timeZone": "UTC",
        # What takes time is the steps and not the reading: some tasks for each core, however few bytes there are.
        "spark.sql.files.minPartitionNum": tasks,
        "spark.sql.shuffle.partitions": tasks,
        **conf,
        # It would merge or drop tasks of a plan that is fixed before any task runs.
        "spark.sql.adaptive.enabled": "false",
    }


@contextmanager
def open_session(application: str, master: str, conf: Mapping[str, str], parallelism: int) -> Iterator[SparkSession]:
    """Start Spark, and stop it at the end."""
    builder = SparkSession.builder.appName(application).master(master)
    for name, value in properties(conf, parallelism).items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        raise of_spark(error, conf) from error
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def frame_of(session: SparkSession, pieces: Sequence[Piece], schema: pa.Schema) -> DataFrame:
    """Return the rows of the pieces, under the names and types that Spark has for this schema."""
    of_spark = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    as_arrow = to_arrow_schema(of_spark)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = storage_settings()
        try:
            for batch in batches:
                for row in batch.to_pylist():
                    for found in read_piece((row["source"], row["record"]), storage):
                        yield from pa.Table.from_batches([found]).cast(as_arrow).to_batches()
        except CheckpointError as error:
            end_task(error)

    rows = session.sparkContext.parallelize(list(pieces), max(1, len(pieces)))
    return session.createDataFrame(rows, "source string, record string").mapInArrow(read, of_spark)
