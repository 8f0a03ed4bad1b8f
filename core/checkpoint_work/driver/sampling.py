"""Which columns a new table gets, where the steps do not declare them: the driver takes some rows through the steps."""

from __future__ import annotations

import pyarrow as pa

from checkpoint_protocol.records import LaunchRecord
from checkpoint_work.step_process.process import Opening
from checkpoint_work.steps.calling.calls import Surroundings
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.loading import closing_steps
from checkpoint_work.steps.places import Place
from checkpoint_work.tasks.steps_in_process import StepsInProcess


def schema_of_sample(launch: LaunchRecord, in_step_process: bool, rows: pa.RecordBatch, place: Place) -> pa.Schema:
    """Return the columns that the steps make of some rows, or of none. `in_step_process`: see `StepsInProcess`."""
    sets_apart = launch.on_row_error == "Quarantine"
    if in_step_process:
        return StepsInProcess(Opening(launch.steps, None, sets_apart, write=launch.row_keys)).schema_of(rows, place)
    with closing_steps():
        pipeline = Pipeline(launch.steps, around=Surroundings(write=launch.row_keys))
        return pipeline.schema_of(rows, place, sets_apart=sets_apart)
