"""RunTasks task orders with Spark: one partition a task, tried again by Spark where one fails."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from checkpoint_protocol.advice import DriverPhase
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import LaunchRecord
from checkpoint_spark import class_data, python_workers
from checkpoint_spark.attempt import RunDataFrames, RunTasks
from checkpoint_spark.batches import Batch
from checkpoint_spark.executor import execute
from checkpoint_spark.failures import of_spark

#: Is told which phase the driver enters.
Enter = Callable[[DriverPhase], None]


def _stay(_: DriverPhase) -> None:
    """Tell nobody."""


def fast_start(conf: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's properties with what makes Java and Python start fast, where it is there and the user says nothing else."""
    return class_data.driver_conf(python_workers.conf(conf), class_data.home_of_spark(environment))


def run_tasks_with_spark(application: str, master: str, conf: Mapping[str, str], enter: Enter = _stay) -> RunTasks:
    """Return what runs tasks, which starts Spark when it is called, and not before: a plan without tasks needs none."""

    def run_tasks(orders: Sequence[str]) -> None:
        from py4j.protocol import Py4JError
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException

        enter("StartingSpark")
        _import_while_java_starts()
        # No SparkSession: splits need no SQL, and a plain context starts faster.
        settings = SparkConf().setAppName(application).setMaster(master).setAll(list(conf.items()))
        try:
            context = SparkContext(conf=settings)
        except (Py4JError, PySparkException) as error:
            raise of_spark(error, conf) from error
        context.setLogLevel("ERROR")
        enter("RunningTasks")
        try:
            # The orders keep their place: partition n is task n of the plan. The seals of a try that fails stand.
            context.parallelize(orders, len(orders)).foreach(_execute)
        except (Py4JError, PySparkException) as error:
            raise of_spark(error) from error
        finally:
            context.stop()

    return run_tasks


def _execute(order: str) -> None:
    """Run one task, in a worker of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    execute(order, context.attemptNumber() if context is not None else 0)


def dataframes_by_spark(application: str, master: str, conf: Mapping[str, str], enter: Enter = _stay) -> RunDataFrames:
    """Return what runs an attempt on a source by key; Spark's SQL is loaded when it is called, and not before."""

    def run(ledger: Ledger, launch: LaunchRecord, parallelism: int) -> None:
        from checkpoint_spark.dataframes.attempt import run_dataframe_attempt
        from checkpoint_spark.dataframes.session import open_session

        enter("StartingSpark")
        _import_while_java_starts()
        with open_session(application, master, conf, parallelism) as session:
            enter("Planning")
            run_dataframe_attempt(session, ledger, launch, parallelism, enter)

    return run


def first_rows_by_spark(
    application: str, master: str, conf: Mapping[str, str], launch: LaunchRecord, rows: int
) -> Iterator[Batch]:
    """Give the first rows of a source by key, with the steps yet to come. Spark has ended when they are given."""
    from checkpoint_spark.dataframes.first_rows import read_first_rows
    from checkpoint_spark.dataframes.session import open_session

    with open_session(application, master, conf, 1) as session:
        found = read_first_rows(session, launch, rows)
    yield from found


def _import_while_java_starts() -> None:
    """Import pandas beside the seconds that this process waits for Java: the first list that is handed to Java asks for it.

    (pyspark.sql.types.NumpyScalarConverter imports pyspark.testing.utils to see if there is a numpy.)
    """
    threading.Thread(target=_import_pandas, name="import-pandas").start()


def _import_pandas() -> None:
    with contextlib.suppress(ImportError):
        importlib.import_module("pandas")
