"""Ship task orders with Spark: one partition a task, tried again by Spark where one fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import LaunchRecord
from checkpoint_spark.attempt import RunDataFrames, Ship
from checkpoint_spark.executor import execute
from checkpoint_spark.failures import of_spark


def ship_by_spark(application: str, master: str, conf: Mapping[str, str]) -> Ship:
    """Return a Ship that starts Spark when it is called, and not before: a plan without tasks needs none."""

    def ship(orders: Sequence[str]) -> None:
        from py4j.protocol import Py4JError
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException

        # No SparkSession: splits need no SQL, and a plain context starts faster.
        settings = SparkConf().setAppName(application).setMaster(master).setAll(list(conf.items()))
        context = SparkContext(conf=settings)
        context.setLogLevel("ERROR")
        try:
            # The orders keep their place: partition n is task n of the plan. The seals of a try that fails stand.
            context.parallelize(orders, len(orders)).foreach(execute)
        except (Py4JError, PySparkException) as error:
            raise of_spark(error) from error
        finally:
            context.stop()

    return ship


def dataframes_by_spark(application: str, master: str, conf: Mapping[str, str]) -> RunDataFrames:
    """Return what runs an attempt of the DataFrame way; Spark's SQL is loaded when it is called, and not before."""

    def run(ledger: Ledger, launch: LaunchRecord, parallelism: int) -> None:
        from checkpoint_spark.dataframes.attempt import run_dataframe_attempt
        from checkpoint_spark.dataframes.session import open_session

        with open_session(application, master, conf, parallelism) as session:
            run_dataframe_attempt(session, ledger, launch, parallelism)

    return run
