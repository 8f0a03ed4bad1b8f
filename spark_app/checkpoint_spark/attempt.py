"""One attempt, as its driver does it: fix the input, plan, get to know the table, ship the tasks.

How tasks are shipped is the caller's: Spark in production.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final

import pyarrow as pa

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.positions import merge
from checkpoint_protocol.records import InputRecord, LaunchRecord, PlanRecord
from checkpoint_protocol.storage import StorageSettings
from checkpoint_spark.advising import Activity
from checkpoint_spark.arrow_schema import decode_schema
from checkpoint_spark.bundling import bundling
from checkpoint_spark.code import use_code
from checkpoint_spark.dividing import schema_without_failures
from checkpoint_spark.executor import TaskOrder
from checkpoint_spark.input import fix_input, look_at_source
from checkpoint_spark.output import await_target
from checkpoint_spark.pace import Pace
from checkpoint_spark.planning import plan_tasks, whole
from checkpoint_spark.sources.chunks import Reader
from checkpoint_spark.sources.reader import reader_for
from checkpoint_spark.sources.selecting import SelectingReader
from checkpoint_spark.staging import ranges_of
from checkpoint_spark.steps import Pipeline, Place

#: Of each file, so many chunks are looked at for a first row that `where` takes.
_SAMPLE_CHUNKS: Final = 16

#: Runs `executor.execute` on each of the orders, in any order and place, and returns when all have ended.
Ship = Callable[[Sequence[str]], None]
#: Does an attempt of the DataFrame way to its end.
RunDataFrames = Callable[[Ledger, LaunchRecord, int], None]


def run_attempt(
    ledger: Ledger,
    attempt: int,
    storage: StorageSettings,
    parallelism: int,
    ship: Ship,
    run_dataframes: RunDataFrames | None = None,
    activity: Activity | None = None,
) -> None:
    """Do one attempt to its end. Raises Superseded before any task if another driver of the attempt has planned."""
    launch = ledger.read_launch(attempt)
    if launch is None:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri} has no launch record of attempt {attempt}")
    use_code(ledger.store, ledger.key.uid, launch.code)
    if launch.source.is_dataframe:
        assert run_dataframes is not None
        run_dataframes(ledger, launch, parallelism)
        return
    input_record = fix_input(ledger, launch, partial(look_at_source, launch, storage))
    if activity is not None:
        activity.know(input_record.files)
    reader = reader_for(launch.source, storage, input_record.table)
    plan = _plan(ledger, launch, input_record, reader, parallelism)
    if not plan.tasks:
        ledger.put_plan(plan)
        return
    _refuse_changed_files(plan, input_record, reader)
    target = launch.target or await_target(ledger, launch.attempt, _output_schema(launch, input_record, reader))
    # Nothing is decided before this put: a second driver of the attempt ends here, before any task.
    ledger.put_plan(plan)
    with bundling(ledger, attempt, plan.token):
        ship(
            [
                TaskOrder(
                    uri=ledger.store.uri,
                    uid=ledger.key.uid,
                    epoch=ledger.key.epoch,
                    attempt=attempt,
                    task=number,
                    pieces=pieces,
                    target=target,
                ).model_dump_json()
                for number, pieces in enumerate(plan.tasks)
            ]
        )


def _plan(ledger: Ledger, launch: LaunchRecord, input_record: InputRecord, reader: Reader, parallelism: int) -> PlanRecord:
    seals = list(ledger.counted_seals(launch.counted))
    covered = merge(piece for seal in seals for piece in ranges_of(seal))
    tasks = plan_tasks(input_record.files, covered, reader.align, parallelism, launch.source.split_size)
    touched = {piece.file for task in tasks for piece in task}
    return PlanRecord(
        token=new_token(),
        attempt=launch.attempt,
        tasks=tasks,
        done_files=len({piece.file for piece in whole(input_record.files)} - touched),
        done_rows=sum(seal.rows_read for seal in seals),
    )


def _refuse_changed_files(plan: PlanRecord, input_record: InputRecord, reader: Reader) -> None:
    """A file that was replaced or vanished stops the write, unless all its rows are sealed: then the plan has none of it."""
    for index in sorted({piece.file for task in plan.tasks for piece in task}):
        reader.check_unchanged(input_record.files[index])


def _output_schema(launch: LaunchRecord, input_record: InputRecord, reader: SelectingReader) -> pa.Schema:
    """Run the steps on the first rows of the input, to see what columns they give."""
    source_schema = decode_schema(input_record.arrow_schema)
    pipeline = Pipeline(launch.steps)
    sample = pa.RecordBatch.from_pylist([], schema=reader.given_schema(source_schema))
    place = Place("(no rows)", "rows", 0)
    # Rows that `where` takes may be few: they are looked for in large steps, and the steps get a few of them.
    pace = Pace(launch.interval_s) if launch.source.where is None else Pace(launch.interval_s, scale=1.0)
    for piece in whole(input_record.files):
        file = input_record.files[piece.file]
        chunks = islice(reader.read(file, piece, source_schema, pace), _SAMPLE_CHUNKS)
        chunk = next((chunk for chunk in chunks if chunk.batch.num_rows), None)
        if chunk is not None:
            sample = chunk.batch.slice(0, Pace(launch.interval_s).rows)
            place = Place(file.path, file.unit, chunk.start, chunk.kept)
            break
    if launch.on_row_error == "Quarantine":
        return schema_without_failures(pipeline, sample, place)
    return pipeline.schema_of(sample, place)
