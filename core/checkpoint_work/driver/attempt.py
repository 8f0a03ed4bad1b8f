"""One attempt, as its driver does it: fix the input, plan, get to know the table, run the tasks.

How tasks are run is the caller's: Spark in production.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

import pyarrow as pa

from checkpoint_formats.planning import plan_tasks
from checkpoint_formats.port import Reader
from checkpoint_formats.rows.batch_sizing import MOST_ROWS, BatchSizing
from checkpoint_formats.rows.nested import no_rows
from checkpoint_formats.rows.selecting import SelectingReader
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import LancePackTarget, LaunchRecord, Merge, PlanRecord
from checkpoint_protocol.records.formats.operations import AddColumns
from checkpoint_protocol.rows.positions import Pieces, Range
from checkpoint_protocol.store.parts import Input
from checkpoint_work.audits.audit import OpenFrames, run_audit
from checkpoint_work.driver.bundling import bundling
from checkpoint_work.driver.output import await_target, later_columns, schema_of_sample
from checkpoint_work.inputs.epoch_input import ListSource, fix_input, list_source
from checkpoint_work.inputs.pack_input import list_fragments_to_pack
from checkpoint_work.inputs.reading import refuse_moved_rows, schema_of_input
from checkpoint_work.inputs.stage_input import fix_stage_input, open_reader
from checkpoint_work.process.code import use_code
from checkpoint_work.process.reporting import Activity
from checkpoint_work.steps.columns import declared_output
from checkpoint_work.steps.places import Place
from checkpoint_work.tasks.executor import TaskOrder
from checkpoint_work.tasks.memos import earlier_memos
from checkpoint_work.tasks.merge import fix_merge_input, matching
from checkpoint_work.tasks.rows_by_position import PlacedChunk, ranges_of
from checkpoint_work.tasks.steps_in_process import needs_step_process


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep Python from looking for objects that only hold each other. All others are freed as ever.

    It goes through all objects each time they have become a quarter more: while a million files are listed and planned that is
    a third of the time, and nothing is found. For whoever is alone in a process with what it makes; not for the operator.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


#: Of each file, so many chunks are searched for a first row that `where` takes.
_SAMPLE_CHUNKS: Final = 16
#: So many rows tell the columns of a new table.
_SAMPLE_ROWS: Final = 16

#: So many of the files that are to be read are compared with the store before the tasks start.
_MOST_LOOKED_AT: Final = 1_000

#: Runs `executor.execute` on each of the orders, in any order and place, and returns when all have ended.
RunTasks = Callable[[Sequence[str]], None]
#: Does an attempt on a source by key, or the epochs of a stream, to its end.
RunDataFrames = Callable[[Ledger, LaunchRecord, int], None]


@dataclass(frozen=True, slots=True)
class SmallInput:
    """How to run the tasks of input that is not worth the start of executors: less than so many bytes.

    Not after the first attempt: the one before may have died because the driver alone was too small for it.
    """

    run_tasks: RunTasks
    most_bytes: int


def run_attempt(
    ledger: Ledger,
    attempt: int,
    storage: StorageSettings,
    parallelism: int,
    run_tasks: RunTasks,
    run_dataframes: RunDataFrames | None = None,
    small: SmallInput | None = None,
    activity: Activity | None = None,
    open_frames: OpenFrames | None = None,
) -> None:
    """Do one attempt to its end. Raises Superseded before any task if another driver of the attempt has planned.

    `small`: if given, how the tasks of a small input are run, where it is one. `open_frames`: for the table of an audit, if its
    function asks for Spark.
    """
    launch = ledger.attempts.read_launch(attempt)
    if launch is None:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri} has no launch record of attempt {attempt}")
    use_code(ledger.store, ledger.key.uid, launch.code)
    if launch.audit is not None:
        run_audit(ledger, launch, launch.audit, storage, parallelism, open_frames, activity)
        return
    if launch.reads_by_key or launch.source.stream is not None:
        assert run_dataframes is not None
        run_dataframes(ledger, launch, parallelism)
        return
    operation = launch.operation
    with without_collector():
        if isinstance(operation, Merge):
            input_record = fix_merge_input(ledger, launch, operation, storage)
        elif launch.reads_stage:
            input_record = fix_stage_input(ledger, launch)
        else:
            input_record = fix_input(ledger, launch, _listing(ledger, launch, storage))
    if activity is not None:
        activity.know(input_record.files)
    reader = open_reader(ledger, launch, storage, input_record)
    refuse_moved_rows(ledger, launch, input_record)
    with without_collector():
        planned: Reader = reader
        if isinstance(operation, Merge):
            planned = matching(ledger, operation, schema_of_input(launch, input_record), reader)
        plan = _plan(ledger, launch, input_record, planned, parallelism)
    if small is not None and attempt == 1 and _is_small(plan, input_record, small.most_bytes):
        plan, run_tasks = plan.model_copy(update={"in_driver": True}), small.run_tasks
    in_step_process = needs_step_process(ledger, launch)
    if not plan.tasks:
        if launch.target is None and _tells_columns_without_rows(launch, input_record):
            await_target(ledger, attempt, _output_schema(launch, input_record, reader, in_step_process))
        ledger.plans.put_plan(plan)
        return
    _refuse_changed_files(plan, input_record, reader)
    target = launch.target or await_target(ledger, launch.attempt, _output_schema(launch, input_record, reader, in_step_process))
    later = later_columns(ledger, launch, target)
    # Nothing is decided before this put: a second driver of the attempt ends here, before any task.
    ledger.plans.put_plan(plan)
    memos = earlier_memos(ledger, launch, plan.tasks)
    with bundling(ledger, attempt, plan.token):
        run_tasks(
            [
                TaskOrder(
                    uri=ledger.store.uri,
                    uid=ledger.key.uid,
                    epoch=ledger.key.epoch,
                    stage=ledger.key.stage,
                    attempt=attempt,
                    task=number,
                    pieces=pieces,
                    target=target,
                    later=later,
                    at_once=min(parallelism, len(plan.tasks)),
                    in_step_process=in_step_process,
                    memos=memos[number],
                ).model_dump_json()
                for number, pieces in enumerate(plan.tasks)
            ]
        )


def _listing(ledger: Ledger, launch: LaunchRecord, storage: StorageSettings) -> ListSource:
    """Return what finds the input: the source, or for a stage what its epoch has staged."""
    target = launch.target
    if isinstance(target, LancePackTarget):
        return lambda _earlier: list_fragments_to_pack(ledger, target, storage)
    return partial(list_source, launch, storage, ledger.store.uri)


def _plan(ledger: Ledger, launch: LaunchRecord, input_record: Input, reader: Reader, parallelism: int) -> PlanRecord:
    covered, done_rows = Pieces(), 0
    for seal in ledger.chains.counted_seals(launch.counted):
        covered.add(ranges_of(seal))
        done_rows += seal.rows_read
    # In memory: planning goes through them several times, and the parts of a large input are read once.
    files = tuple(input_record.files)
    tasks = plan_tasks(files, covered.merged(), reader.align, parallelism, launch.source.split_size)
    filled = sum(1 for file in files if file.has_positions)
    return PlanRecord(
        token=new_token(),
        attempt=launch.attempt,
        tasks=tasks,
        done_files=filled - len(_touched(tasks)),
        done_rows=done_rows,
    )


def _touched(tasks: Iterable[Sequence[Range]]) -> set[int]:
    return {piece.file for task in tasks for piece in task}


def _refuse_changed_files(plan: PlanRecord, input_record: Input, reader: Reader) -> None:
    """A file that was replaced or vanished stops the write, unless all its rows are sealed: then the plan has none of it.

    Of many files only the first are checked here, before any work: each costs a request. Every task checks its own when it
    opens them, and again before it seals them.
    """
    for index in sorted(_touched(plan.tasks))[:_MOST_LOOKED_AT]:
        reader.check_unchanged(input_record.files[index])


def _is_small(plan: PlanRecord, input_record: Input, most_bytes: int) -> bool:
    """Whether the files that the plan reads have fewer bytes together. Of an old Lance dataset they may not be known."""
    files = [input_record.files[index] for index in _touched(plan.tasks)]
    if any(file.fragment is not None and file.size_bytes == 0 for file in files):
        return False
    return sum(file.size_bytes for file in files) < most_bytes


def _tells_columns_without_rows(launch: LaunchRecord, input_record: Input) -> bool:
    """Whether the columns of a new table are known though there is nothing to read: declared, or those of the source.

    Else the first epoch with rows makes the table: an input without rows is no reason to run steps, or to stop the write.
    """
    if declared_output(launch.steps) is not None:
        return True
    kafka = launch.source.kafka
    is_told_by_values = kafka is not None and kafka.format != "raw"
    has_types = all(not pa.types.is_null(kind) for kind in schema_of_input(launch, input_record).types)
    return not launch.steps and not is_told_by_values and has_types


def _output_schema(launch: LaunchRecord, input_record: Input, reader: SelectingReader, in_step_process: bool) -> pa.Schema:
    """Return the columns that the steps declare, or run them on the first rows of the input to see which they give."""
    if (declared := declared_output(launch.steps)) is not None:
        return _asked_for(launch, declared)
    source_schema = schema_of_input(launch, input_record)
    sample = no_rows(reader.given_schema(source_schema))
    place = Place("(no rows)", "rows", 0)
    # Rows that `where` takes may be few: they are looked for in large steps, and the steps get a few of them.
    takes_all = launch.source.where is None or bool(launch.reads_stage)
    sizing = BatchSizing(launch.interval_s, scale=_SAMPLE_ROWS / MOST_ROWS if takes_all else 1.0)
    pieces = ((file, piece) for index, file in enumerate(input_record.files) for piece in file.ranges(index))
    for file, piece in pieces:
        if piece.start == piece.end:
            continue
        chunks = islice(reader.read(file, piece, source_schema, sizing), _SAMPLE_CHUNKS)
        chunk = next((chunk for chunk in chunks if chunk.batch.num_rows), None)
        if chunk is not None:
            # Of a group the steps get all rows, or it would be another one.
            placed = PlacedChunk(piece.file, file, chunk)
            rows = chunk.batch.num_rows if launch.keeps_groups else _SAMPLE_ROWS
            first = next(placed.parts(rows))
            sample, place = first.rows, first.place
            break
    return _asked_for(launch, schema_of_sample(launch, in_step_process, sample, place))


def _asked_for(launch: LaunchRecord, given: pa.Schema) -> pa.Schema:
    """Return the columns that a table is to have of those that the steps give: where rows get some, these and no others."""
    if not isinstance(launch.operation, AddColumns):
        return given
    for name in launch.operation.columns:
        if name not in given.names:
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"the steps do not give the column {name!r} of sink.columns (they give {', '.join(given.names)}); correct the "
                "steps, or sink.columns",
            )
    return pa.schema([given.field(name) for name in launch.operation.columns])
