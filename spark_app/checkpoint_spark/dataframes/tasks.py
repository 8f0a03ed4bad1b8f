"""A task whose rows are identified by key: one partition of Spark's plan becomes staged files, keys objects and seals."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa

from checkpoint_formats.port import Stager
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import LaunchRecord
from checkpoint_spark.dataframes.rows_by_key import RowsByKey
from checkpoint_spark.process.gpus import use_assigned_gpus
from checkpoint_work.process.reporting import InHand
from checkpoint_work.process.settings import record_keys
from checkpoint_work.steps.flow import Steps
from checkpoint_work.steps.quarantine import Allowance
from checkpoint_work.tasks.ending import Ending
from checkpoint_work.tasks.executor import storage_settings
from checkpoint_work.tasks.failures import end_task
from checkpoint_work.tasks.segments import Task, run_task
from checkpoint_work.tasks.task_process import Order, run_in_process

_NONE: Final = Ending()


class PartitionOrder(Order):
    """What the driver sends to all tasks of an attempt.

    `cuts`: a segment may end before the task does. `expands`: several rows in a row may have one key, because something between
    source and steps makes them of one row of the source; without it such rows are duplicates.
    """

    key_names: tuple[str, ...]
    cuts: bool
    expands: bool


def run_partition(order_json: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run one task to its `last` seal. Gives no rows. Raises TaskFailed, whose text the driver can read back."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    try:
        use_assigned_gpus(context.resources(), os.environ)
        order = PartitionOrder.model_validate_json(order_json)
        _execute(order, context.partitionId(), context.attemptNumber(), batches)
    except CheckpointError as error:
        end_task(error)
    return iter(())


def _execute(order: PartitionOrder, number: int, tries_before: int, batches: Iterator[pa.RecordBatch]) -> None:
    def run(launch: LaunchRecord, steps: Steps, stager: Stager, ledger: Ledger, in_hand: InHand, ending: Ending) -> None:
        run_keyed_task(order, number, batches, launch, steps, stager, ledger, time.monotonic, in_hand, ending)

    order = order.model_copy(update={"memos": tuple(of for of in order.memos if of[1] == number)})
    run_in_process(order, number, tries_before, storage_settings(), record_keys(), order.launch, run)


def run_keyed_task(
    order: PartitionOrder,
    number: int,
    batches: Iterator[pa.RecordBatch],
    launch: LaunchRecord,
    steps: Steps,
    stager: Stager,
    ledger: Ledger,
    clock: Callable[[], float],
    in_hand: InHand | None = None,
    ending: Ending = _NONE,
) -> None:
    """Run one task of the plan to its `last` seal, as `run_task` does."""
    plan = ledger.plans.read_plan(order.attempt)
    if plan is None or number >= plan.task_count:
        raise Corrupt(
            reasons.RECORD_UNREADABLE, f"Spark runs task {number}, which the plan of attempt {order.attempt} does not have"
        )

    def put(data: bytes) -> str:
        path = ledger.at.keys_object(order.attempt, number, new_token())
        ledger.seals.put_keys(path, data)
        return path

    record = ledger.inputs.read_input(launch.input_since) if launch.on_row_error == "Quarantine" else None
    task = Task.of(launch, number, Allowance.of(launch, record))
    title = f"partition {number} of the source"
    source = RowsByKey(batches, order.key_names, title, order.cuts, order.expands, put)
    run_task(task, source, steps, stager, ledger, clock, in_hand, ending)


def task_function(order: PartitionOrder) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what Spark runs on each partition: importable, with plain JSON for its data."""
    return partial(run_partition, order.model_dump_json())
