"""What one Spark task runs. Gets plain JSON, never objects; reaches the store with the settings that its process has."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Final

from checkpoint_formats.readers import reader_for
from checkpoint_formats.stagers import stager_for
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import ManifestInvalid, validate_model
from checkpoint_protocol.parts import Input
from checkpoint_protocol.positions import Range
from checkpoint_protocol.quarantine import describe_limit, most_rows
from checkpoint_protocol.records import LaunchRecord, Part, Target
from checkpoint_protocol.settings_place import STORAGE_SECRET
from checkpoint_protocol.storage import StorageSettings
from checkpoint_protocol.store import open_store
from checkpoint_spark.advising import InHand, telling_of_task
from checkpoint_spark.begun import open_note
from checkpoint_spark.code import use_code
from checkpoint_spark.failures import wrap
from checkpoint_spark.quarantine import Allowance
from checkpoint_spark.reading import schema_to_read
from checkpoint_spark.staging import Task, run_task
from checkpoint_spark.steps import Pipeline

#: Path of the file with the storage settings: a private file on one machine, or one that a pod template mounts. It comes first.
STORAGE_FILE_VARIABLE: Final = "CHECKPOINTED_WRITE_STORAGE_FILE"
#: The storage settings themselves, as JSON: in a pod, a key of a Secret.
STORAGE_VARIABLE: Final = "CHECKPOINTED_WRITE_STORAGE"


class TaskOrder(Part):
    """What the driver ships to a task. `later`: columns that the table got after the write began."""

    uri: str
    uid: str
    epoch: int
    attempt: int
    task: int
    pieces: tuple[Range, ...]
    target: Target
    later: tuple[str, ...] = ()


def storage_settings() -> StorageSettings:
    """Return the storage settings of this process; none are needed for folders.

    A local run hands them over as a file that it makes of its settings file; pods have them in a variable, from a Secret.
    NeedsChange says what is wrong with them, and quotes none of their values: they are secrets.
    """
    path, text = os.environ.get(STORAGE_FILE_VARIABLE), os.environ.get(STORAGE_VARIABLE)
    if path:
        try:
            return _read_storage(Path(path).read_text(encoding="utf-8"), f"the file {path} (${STORAGE_FILE_VARIABLE})")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            message = f"the storage settings in {path} (${STORAGE_FILE_VARIABLE}) cannot be read: {why}"
            raise NeedsChange(reasons.MANIFEST_INVALID, message) from None
    if text is not None:
        place = f"${STORAGE_VARIABLE} (in a pod, the key storage.json of its Secret)"
        return _read_storage(text, place).standing_in(STORAGE_SECRET)
    return StorageSettings().standing_in(STORAGE_SECRET)


def _read_storage(text: str, place: str) -> StorageSettings:
    try:
        document = json.loads(text)
    except ValueError as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        like = '{"storage": [{"prefix": "s3://bucket/", "credentials": "ambient"}]}'
        message = f"the storage settings in {place} are not JSON{where}; they look like {like}"
        raise NeedsChange(reasons.MANIFEST_INVALID, message) from None
    try:
        return validate_model(StorageSettings, document)
    except ManifestInvalid as error:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"the storage settings in {place} are wrong: {error.message}") from None


_records: dict[tuple[str, str, int, int], tuple[LaunchRecord, Input]] = {}


def _records_of(ledger: Ledger, order: TaskOrder) -> tuple[LaunchRecord, Input]:
    """Read what all tasks of an attempt share, once per process. Neither record ever changes.

    Of an input in parts a task reads those that have its files, which are neighbours.
    """
    where = (order.uri, order.uid, order.epoch, order.attempt)
    if where not in _records:
        launch = ledger.read_launch(order.attempt)
        files = ledger.read_input(launch.input_since) if launch is not None else None
        if launch is None or files is None:
            raise Corrupt(
                reasons.RECORD_UNREADABLE,
                f"{ledger.store.uri}: records of attempt {order.attempt} of {ledger.key} are gone; was the write deleted?",
            )
        _records.clear()
        _records[where] = (launch, files)
    return _records[where]


def execute(order_json: str) -> None:
    """Run one task to its `last` seal. Raises TaskFailed, whose text the driver can read back."""
    try:
        execute_order(order_json, storage_settings())
    except CheckpointError as error:
        raise wrap(error) from error


def execute_order(order_json: str, storage: StorageSettings) -> None:
    """Run one task with these storage settings. Raises CheckpointError."""
    order = TaskOrder.model_validate_json(order_json)
    key = EpochKey(order.uid, order.epoch)
    store, in_hand = open_store(order.uri, storage), InHand()
    ledger = Ledger(store, key)
    launch, input_record = _records_of(ledger, order)
    use_code(ledger.store, order.uid, launch.code)
    label = f"{order.attempt}-{order.task}"
    with telling_of_task(store.overwrite, store.delete, ledger.at.work(order.attempt, order.task), order.task, in_hand):
        run_task(
            task=Task(
                attempt=order.attempt,
                number=order.task,
                pieces=order.pieces,
                code_digest=launch.code_digest,
                interval_s=launch.interval_s,
                minimum_bytes=launch.minimum_bytes,
                allowance=_allowance(launch, input_record),
                read_digest=launch.source.read_digest,
            ),
            files=input_record.files,
            source_schema=schema_to_read(launch.source, input_record),
            reader=reader_for(launch.source, storage, input_record.table, sets_apart=launch.on_row_error == "Quarantine"),
            pipeline=Pipeline(launch.steps, order.later, open_note(os.environ)),
            stager=stager_for(order.target, key, label, launch.target_file_size_bytes, storage),
            ledger=ledger,
            clock=time.monotonic,
            in_hand=in_hand,
        )


def _allowance(launch: LaunchRecord, input_record: Input) -> Allowance | None:
    if launch.on_row_error != "Quarantine":
        return None
    return Allowance(most_rows(launch.quarantine, input_record), describe_limit(launch.quarantine, input_record))
