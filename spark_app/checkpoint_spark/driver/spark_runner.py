"""Runs task orders with Spark: one partition for each task, tried again by Spark where one fails."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.progress_reports import DriverPhase
from checkpoint_protocol.records import LaunchRecord
from checkpoint_spark.driver.task_orders import run_tasks_in
from checkpoint_spark.process import class_data, python_workers
from checkpoint_work.audits.audit import OpenFrames
from checkpoint_work.audits.staged_table import MakeFrame
from checkpoint_work.driver.attempt import RunDataFrames, RunTasks
from checkpoint_work.process.reporting import AtWork
from checkpoint_work.steps.batches import Batch
from checkpoint_work.tasks.failures import of_spark

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Is told which phase the driver enters.
Enter = Callable[[DriverPhase], None]


def _stay(_: DriverPhase) -> None:
    """Tell nobody."""


def fast_start(conf: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's properties with what makes Java and Python start fast, where it is there and the user says nothing else."""
    return class_data.driver_conf(python_workers.conf(conf), class_data.home_of_spark(environment))


@dataclass(slots=True)
class KeptSpark:
    """The Spark of one driver. `is_kept`: it stays between attempts, with its executors, until another master is asked for."""

    conf: Mapping[str, str]
    is_kept: bool = False
    _context: SparkContext | None = None
    _master: str = ""

    @contextlib.contextmanager
    def opened(self, application: str, master: str) -> Iterator[SparkContext]:
        """Give a context, and stop it at the end unless it is kept; at an error in any case."""
        if self._context is None or self._master != master:
            self.stop()
            self._context, self._master = self._start(application, master), master
        try:
            yield self._context
        except BaseException:
            self.stop()
            raise
        if not self.is_kept:
            self.stop()

    def stop(self) -> None:
        if self._context is not None:
            context, self._context = self._context, None
            context.stop()

    def _start(self, application: str, master: str) -> SparkContext:
        from py4j.protocol import Py4JError
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException

        _import_while_java_starts()
        # No SparkSession: splits need no SQL, and a plain context starts faster.
        settings = SparkConf().setAppName(application).setMaster(master).setAll(list(self.conf.items()))
        try:
            context = SparkContext(conf=settings)
        except (Py4JError, PySparkException) as error:
            raise of_spark(error, self.conf) from error
        context.setLogLevel("ERROR")
        return context


def run_tasks_with_spark(application: str, master: str, spark: KeptSpark, enter: Enter = _stay) -> RunTasks:
    """Return what runs tasks, which starts Spark when it is called, and not before: a plan without tasks needs none."""

    def run_tasks(orders: Sequence[str]) -> None:
        enter("StartingSpark")
        with spark.opened(application, master) as context:
            enter("RunningTasks")
            run_tasks_in(context, orders)

    return run_tasks


def dataframes_by_spark(
    application: str,
    master: str,
    spark: KeptSpark,
    enter: Enter = _stay,
    at_work: AtWork | None = None,
    checkpoint_volume: Path | None = None,
) -> RunDataFrames:
    """Return what runs an attempt on a source that Spark reads; Spark's SQL is loaded when it is called, and not before.

    `at_work`: is told which attempt is at hand, where a stream goes on from epoch to epoch. `checkpoint_volume`: where Spark
    keeps its checkpoint of a stream, if not below the checkpoint URI.
    """

    def run(ledger: Ledger, launch: LaunchRecord, parallelism: int) -> None:
        from checkpoint_spark.dataframes.attempt import run_dataframe_attempt
        from checkpoint_spark.driver.session import open_session

        enter("StartingSpark")
        _import_while_java_starts()
        spark.stop()  # A session would have the properties of the context that is there, and end it.
        with open_session(application, master, spark.conf, parallelism) as session:
            enter("Planning")
            if launch.source.stream is None:
                run_dataframe_attempt(session, ledger, launch, parallelism, enter)
            else:
                from checkpoint_spark.streams.query import run_stream

                run_stream(session, launch, parallelism, enter, at_work or AtWork((ledger, launch.attempt)), checkpoint_volume)

    return run


def frames_by_spark(application: str, master: str, spark: KeptSpark) -> OpenFrames:
    """Return what starts Spark for DataFrames of a table that is audited, and stops it."""

    @contextlib.contextmanager
    def open_frames(parallelism: int) -> Iterator[MakeFrame]:
        from checkpoint_spark.driver.session import frame_of, open_session

        _import_while_java_starts()
        spark.stop()
        with open_session(application, master, spark.conf, parallelism) as session:
            yield lambda pieces, schema: frame_of(session, pieces, schema)

    return open_frames


def first_rows_by_spark(
    application: str, master: str, conf: Mapping[str, str], launch: LaunchRecord, rows: int
) -> Iterator[Batch]:
    """Give the first rows of a source by key, with the steps yet to come. Spark has ended when they are given."""
    from checkpoint_spark.dataframes.first_rows import read_first_rows
    from checkpoint_spark.driver.session import open_session

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
