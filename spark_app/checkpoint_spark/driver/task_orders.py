"""Task orders in a Spark that is there. Spark's SQL is not imported for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from checkpoint_protocol.errors import CheckpointError
from checkpoint_spark.process.gpus import use_assigned_gpus
from checkpoint_work.tasks.executor import execute
from checkpoint_work.tasks.failures import end_task, of_spark

if TYPE_CHECKING:
    from pyspark import SparkContext


def run_tasks_in(context: SparkContext, orders: Sequence[str]) -> None:
    """Run tasks in a Spark that is there."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        # The orders keep their place: partition n is task n of the plan. The seals of a try that fails stand.
        context.parallelize(orders, len(orders)).foreach(_execute)
    except (Py4JError, PySparkException) as error:
        raise of_spark(error) from error


def _execute(order: str) -> None:
    """Run one task, in a worker of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        execute(order)
        return
    try:
        use_assigned_gpus(context.resources(), os.environ)
    except CheckpointError as error:
        end_task(error)
    execute(order, context.attemptNumber())
