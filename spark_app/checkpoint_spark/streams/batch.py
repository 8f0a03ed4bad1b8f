"""Which queries are taken, and one micro-batch: its plan, its tasks, its seals.

A task is one partition of the micro-batch, and seals it once, at its end: Spark numbers partitions anew when it replays, so
that nothing of a part that is sealed could be found again. A task that Spark tries again finds its seal, or does all again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from checkpoint_formats.port import Stager
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable, Superseded
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sources.stream_source import ProgramStream
from checkpoint_protocol.progress_reports import DriverPhase
from checkpoint_protocol.records import InputRecord, LaunchRecord, PlanRecord, PositionsCovered, RowKey, RowPosition, Seal
from checkpoint_spark.dataframes.attempt import refuse_too_many
from checkpoint_spark.dataframes.reading import map_in_arrow, refuse_repeated
from checkpoint_spark.process.gpus import use_assigned_gpus
from checkpoint_work.driver.bundling import bundling
from checkpoint_work.driver.output import await_target, later_columns, schema_of_sample
from checkpoint_work.process.reporting import InHand
from checkpoint_work.process.settings import record_keys
from checkpoint_work.steps.columns import declared_output
from checkpoint_work.steps.flow import Steps
from checkpoint_work.steps.places import Place
from checkpoint_work.tasks.ending import Ending
from checkpoint_work.tasks.executor import storage_settings
from checkpoint_work.tasks.failures import end_task
from checkpoint_work.tasks.segments import Task, run_task
from checkpoint_work.tasks.steps_in_process import needs_step_process
from checkpoint_work.tasks.task_process import Order, run_in_process

_SAMPLE_ROWS = 64


def stage_batch(
    frame: DataFrame,
    number: int,
    offsets: str,
    ledger: Ledger,
    attempt: int,
    parallelism: int,
    enter: Callable[[DriverPhase], None],
) -> None:
    """Stage and seal a whole micro-batch. Raises Superseded before any task if another driver of the attempt has planned."""
    launch = ledger.attempts.read_launch(attempt)
    if launch is None:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri} has no launch record of attempt {attempt}")
    enter("Planning")
    refuse_repeated(frame.columns)
    schema = to_arrow_schema(frame.schema)
    record = InputRecord(token=new_token(), files=(), arrow_schema=encode_schema(schema), batch=number)
    ledger.inputs.put_input(record, launch.input_since)
    in_step_process = needs_step_process(ledger, launch)
    target = launch.target or await_target(ledger, attempt, _output_schema(frame, launch, number, in_step_process))
    order = Order(
        uri=ledger.store.uri,
        uid=ledger.key.uid,
        epoch=ledger.key.epoch,
        attempt=attempt,
        target=target,
        later=later_columns(ledger, launch, target),
        at_once=parallelism,
        in_step_process=in_step_process,
    )
    # One plan, asked for its partitions and then run: Spark makes no other of it in between.
    planned = map_in_arrow(frame, partial(_run_partition, order.model_dump_json()), "nothing int")._jdf.queryExecution().toRdd()
    partitions = planned.getNumPartitions()
    refuse_too_many(partitions)
    plan = PlanRecord(
        token=new_token(), attempt=attempt, tasks=(), done_files=0, done_rows=0, partitions=partitions, offsets=offsets
    )
    # Nothing is staged before this put: a second driver of the attempt ends here.
    ledger.plans.put_plan(plan)
    enter("RunningTasks")
    with bundling(ledger, attempt, plan.token):
        planned.count()


def _output_schema(frame: DataFrame, launch: LaunchRecord, number: int, in_step_process: bool) -> pa.Schema:
    """Return the columns that the steps declare, or run them on some rows of the micro-batch to see which they give."""
    if (declared := declared_output(launch.steps)) is not None:
        return declared
    table = frame.limit(_SAMPLE_ROWS).toArrow()
    batches = table.combine_chunks().to_batches()
    rows = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
    return schema_of_sample(launch, in_step_process, rows, _PlaceInBatch(f"micro-batch {number}", "rows", 0))


def _run_partition(order_json: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run one task to its seal. Gives no rows. Raises TaskFailed, whose text the driver can read back."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    number = context.partitionId()
    try:
        use_assigned_gpus(context.resources(), os.environ)
        order = Order.model_validate_json(order_json)

        def run(launch: LaunchRecord, steps: Steps, stager: Stager, ledger: Ledger, in_hand: InHand, ending: Ending) -> None:
            source = RowsOfBatch(batches, f"partition {number} of micro-batch {order.epoch - 1}")
            run_task(Task.of(launch, number, None), source, steps, stager, ledger, time.monotonic, in_hand, ending)

        run_in_process(order, number, context.attemptNumber(), storage_settings(), record_keys(), order.launch, run)
    except CheckpointError as error:
        end_task(error)
    return iter(())


@dataclass(frozen=True, slots=True)
class RowsOfBatch:
    """A RowSource: the rows of one partition, which are sealed together."""

    batches: Iterator[pa.RecordBatch]
    title: str

    def rest(self, chain: tuple[Seal, ...], sizing: BatchSizing, lost: Superseded | None) -> Iterator[Piece]:
        if chain or lost is not None:
            raise Retryable(reasons.ORDER_CHANGED, f"{self.title} is sealed in part, which it never is")
        start = 0
        for batch in self.batches:
            at = 0
            while at < batch.num_rows:
                size = min(sizing.rows, batch.num_rows - at)
                yield Piece(batch.slice(at, size), self.title, start)
                at, start = at + size, start + size

    def begin_segment(self) -> _Whole:
        return _Whole()


@dataclass(slots=True)
class _Whole:
    """What a seal covers: no positions, as the partition is sealed as a whole."""

    rows: int = 0

    def add(self, piece: Piece, _failed: Sequence[int]) -> None:
        self.rows += piece.source_rows

    def finish(self) -> tuple[PositionsCovered, int]:
        return PositionsCovered(ranges=()), self.rows


@dataclass(frozen=True, slots=True)
class _PlaceInBatch(Place):
    """Where rows of a micro-batch come from, for messages: no name by which one is known again."""

    def identity_of(self, row: int) -> tuple[str | int, ...]:
        raise RuntimeError("rows of a stream have no key: row_key() is for sources whose rows are known by position or by key")


@dataclass(frozen=True, slots=True)
class Piece:
    """A Batch: some rows of the partition."""

    rows: pa.RecordBatch
    title: str
    start: int

    def slice(self, start: int, end: int) -> Piece:
        return Piece(self.rows.slice(start, end - start), self.title, self.start + start)

    @property
    def place(self) -> Place:
        return _PlaceInBatch(self.title, "rows", self.start)

    @property
    def unreadable(self) -> CheckpointError | None:
        return None  # what Spark cannot read it raises itself

    @property
    def source_rows(self) -> int:
        return int(self.rows.num_rows)

    @property
    def positions(self) -> int:
        return self.source_rows

    @property
    def may_begin_segment(self) -> bool:
        return False

    def identity_of(self, number: int) -> RowPosition | RowKey:
        raise AssertionError("rows of a stream are not quarantined")


_OURS: Final = "leave it out: the query has the identity of the write, and its place is below checkpoint.uri"
#: What a DataStreamWriter can be told, and job.stream cannot.
_REFUSED_OPTIONS: Final[Mapping[str, str]] = {
    "queryName": _OURS,
    "checkpointLocation": _OURS,
    "path": _OURS,
    "format": "rows go to the sink of the manifest; leave it out",
    "partitionBy": "say sink.partitionBy in the manifest",
    "once": "say availableNow=True",
    "continuous": "continuous processing has no micro-batches; say processingTime, or nothing",
    "realTime": "real-time mode shows rows before their micro-batch has ended, so that none could be committed as a whole; "
    "say processingTime, or nothing",
}
#: Sources that give other rows when a micro-batch is replayed, by the beginning of the name that Spark's plan has for them.
_REFUSED_SOURCES: Final[Mapping[str, str]] = {
    "FileSource": "of a file that is gone it gives no rows, and no error, when a micro-batch is replayed; name the files in "
    "source.files, with trigger",
    "socket": "what came by a socket cannot be read again; put a queue between (source.kafka)",
}


def refuse_options(options: Mapping[str, object]) -> None:
    """Refuse arguments of job.stream that it does not have."""
    for name in options:
        why = _REFUSED_OPTIONS.get(name, "it has dataframe, outputMode, availableNow and processingTime")
        raise NeedsChange(reasons.STREAM_REFUSED, f"job.stream does not take {name}: {why}")


def refuse_query(frame: object, stream: ProgramStream, output_mode: str | None) -> None:
    """Refuse what is no stream, has another output mode than the manifest says, or reads what cannot be replayed."""
    if not isinstance(frame, DataFrame) or not frame.isStreaming:
        raise NeedsChange(
            reasons.STREAM_REFUSED,
            f"job.stream is given a {type(frame).__name__} that is no stream; give it a DataFrame of spark.readStream (and no "
            "writer), or say keyColumns in the place of source.program.stream and call job.write",
        )
    if output_mode is not None and output_mode.lower() != stream.output_mode.lower():
        raise NeedsChange(
            reasons.STREAM_REFUSED,
            f"job.stream is told outputMode={output_mode!r}, and source.program.stream.outputMode is {stream.output_mode}; "
            "correct one of them",
        )
    for name in _sources(frame._jdf.queryExecution().analyzed()):
        for beginning, why in _REFUSED_SOURCES.items():
            if name.startswith(beginning):
                raise NeedsChange(reasons.STREAM_REFUSED, f"the stream reads Spark's source {name}: {why}")


def _sources(node: Any) -> Iterator[str]:
    """Give the names of the sources of a plan."""
    if node.getClass().getSimpleName() in ("StreamingRelation", "StreamingRelationV2"):
        yield node.sourceName()
    children = node.children()
    for number in range(children.size()):
        yield from _sources(children.apply(number))
