"""What one Spark task runs. Gets plain JSON, never objects; reaches the store with the settings that its process has."""

from __future__ import annotations

import time
from contextlib import ExitStack

from checkpoint_formats.port import Reader, Stager
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import LaunchRecord, Merge
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.macs import WriteKeys
from checkpoint_protocol.store.parts import Input
from checkpoint_work.inputs.reading import schema_of_input
from checkpoint_work.inputs.stage_input import open_reader
from checkpoint_work.process.reporting import InHand
from checkpoint_work.process.settings import STORAGE_FILE_VARIABLE as STORAGE_FILE_VARIABLE
from checkpoint_work.process.settings import STORAGE_VARIABLE as STORAGE_VARIABLE
from checkpoint_work.process.settings import record_keys
from checkpoint_work.process.settings import storage_settings as storage_settings
from checkpoint_work.steps.flow import Steps
from checkpoint_work.steps.quarantine import Allowance
from checkpoint_work.tasks.ending import Ending
from checkpoint_work.tasks.failures import end_task
from checkpoint_work.tasks.merge import begin_staging, matching
from checkpoint_work.tasks.rows_by_position import RowsByPosition
from checkpoint_work.tasks.segments import Task, run_task
from checkpoint_work.tasks.task_process import Order, run_in_process


class TaskOrder(Order):
    """What the driver sends to a task: also its number and what it reads."""

    task: int
    pieces: tuple[Range, ...]


_records: dict[tuple[str, EpochKey, int], tuple[LaunchRecord, Input]] = {}


def _records_of(ledger: Ledger, order: TaskOrder) -> tuple[LaunchRecord, Input]:
    """Read what all tasks of an attempt share, once per process. Neither record ever changes.

    Of an input in parts a task reads those that have its files, which are neighbours.
    """
    where = (order.uri, order.key, order.attempt)
    if where not in _records:
        launch = ledger.attempts.read_launch(order.attempt)
        files = ledger.inputs.read_input(launch.input_since) if launch is not None else None
        if launch is None or files is None:
            raise Corrupt(
                reasons.RECORD_UNREADABLE,
                f"{ledger.store.uri}: records of attempt {order.attempt} of {ledger.key} are gone; was the write deleted?",
            )
        _records.clear()
        _records[where] = (launch, files)
    return _records[where]


def execute(order_json: str, tries_before: int = 0) -> None:
    """Run one task to its `last` seal. Raises TaskFailed, whose text the driver can read back."""
    try:
        execute_order(order_json, storage_settings(), record_keys(), tries_before)
    except CheckpointError as error:
        end_task(error)


def execute_order(order_json: str, storage: StorageSettings, keys: WriteKeys | None = None, tries_before: int = 0) -> None:
    """Run one task with these storage settings and record keys; `tries_before`: see `run_in_process`. Raises CheckpointError."""
    order = TaskOrder.model_validate_json(order_json)

    def launch_of(ledger: Ledger) -> LaunchRecord:
        return _records_of(ledger, order)[0]

    def run(launch: LaunchRecord, steps: Steps, stager: Stager, ledger: Ledger, in_hand: InHand, ending: Ending) -> None:
        _, input_record = _records_of(ledger, order)
        schema = schema_of_input(launch, input_record)
        reader: Reader = open_reader(ledger, launch, storage, input_record)
        with ExitStack() as resources:
            if isinstance(launch.operation, Merge):
                matched = matching(ledger, launch.operation, schema, reader, resources)
                reader = begin_staging(matched, stager, input_record, order.pieces, launch.operation, order.target, storage)
            source = RowsByPosition(order.pieces, input_record.files, schema, reader, launch.keeps_groups)
            read_digest = None if launch.reads_stage else launch.source.read_digest
            task = Task.of(launch, order.task, Allowance.of(launch, input_record), read_digest)
            run_task(task, source, steps, stager, ledger, time.monotonic, in_hand, ending)

    run_in_process(order, order.task, tries_before, storage, keys, launch_of, run)
