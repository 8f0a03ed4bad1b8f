"""The table of a write that has none yet: a driver proposes the columns of the steps' output, the operator makes it."""

from __future__ import annotations

import time
from itertools import count
from typing import Final

import pyarrow as pa

from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_formats.stagers import columns_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import LaunchRecord, OutputRecord, Target
from checkpoint_work.step_process.process import Opening
from checkpoint_work.steps.calling.calls import Surroundings
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.loading import closing_steps
from checkpoint_work.steps.places import Place
from checkpoint_work.tasks.steps_in_process import StepsInProcess

_TARGET_POLL_S: Final = 0.2
_TARGET_PATIENCE_S: Final = 600.0


def await_target(ledger: Ledger, attempt: int, schema: pa.Schema) -> Target:
    """Propose the schema of the steps' output and wait for the table that the operator makes of it."""
    for field in schema:
        if str(field.type) == "null":
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"the type of the column {field.name!r} is unknown: it is NULL in all of the first rows; "
                "give it a type in the step, or create the table yourself",
            )
    ledger.attempts.put_output(attempt, OutputRecord(token=new_token(), arrow_schema=encode_schema(schema)))
    waited_until = time.monotonic() + _TARGET_PATIENCE_S
    while time.monotonic() < waited_until:
        if (record := ledger.attempts.read_target(attempt)) is not None:
            return record.target
        time.sleep(_TARGET_POLL_S)
    raise Retryable(
        reasons.TABLE_MISSING, f"the controller did not create the table for attempt {attempt} within {_TARGET_PATIENCE_S:.0f} s"
    )


def later_columns(ledger: Ledger, launch: LaunchRecord, target: Target) -> tuple[str, ...]:
    """Return the columns that the table got after the write began: others may add some, so that rows may leave them out."""
    is_first = ledger.key.epoch == 1 and launch.attempt == 1
    if ledger.key.stage or is_first or not launch.steps or launch.steps[-1].input != "row":
        return ()
    first = _first_target(Ledger(ledger.store, EpochKey(ledger.key.uid, 1)))
    known = columns_of(first) if first is not None else columns_of(target)
    return tuple(name for name in columns_of(target) if name not in known)


def _first_target(ledger: Ledger) -> Target | None:
    """Return the table as the first attempt that had one saw it, or had it made."""
    for attempt in count(1):
        launch = ledger.attempts.read_launch(attempt)
        if launch is None:
            return None
        made = ledger.attempts.read_target(attempt) if launch.target is None else None
        target = launch.target if made is None else made.target
        if target is not None:
            return target
    raise AssertionError("attempts end")


def schema_of_sample(launch: LaunchRecord, in_step_process: bool, rows: pa.RecordBatch, place: Place) -> pa.Schema:
    """Return the columns that the steps make of some rows, or of none. `in_step_process`: see `StepsInProcess`."""
    sets_apart = launch.on_row_error == "Quarantine"
    if in_step_process:
        return StepsInProcess(Opening(launch.steps, None, sets_apart, write=launch.row_keys)).schema_of(rows, place)
    with closing_steps():
        pipeline = Pipeline(launch.steps, around=Surroundings(write=launch.row_keys))
        return pipeline.schema_of(rows, place, sets_apart=sets_apart)
