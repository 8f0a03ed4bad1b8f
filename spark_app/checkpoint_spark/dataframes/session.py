"""Spark's SQL session of one driver, with the properties that rows known by keys rest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from checkpoint_work.tasks.failures import of_spark

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
