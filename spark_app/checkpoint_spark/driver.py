"""The driver of one attempt: fix the input, plan, ship the tasks, end. It stages and seals; it never commits.

    python -m checkpoint_spark.driver --uri URI --uid UID --epoch N --attempt N --master MASTER --parallelism N

Ends with 0 when every task has its last seal, 1 when the attempt failed (why is in its failure record and on stderr), 3 when
another driver of the same attempt was first. Nobody needs the exit code: outcomes are read from the store.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable, Superseded
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.positions import merge
from checkpoint_protocol.records import FailureRecord, InputRecord, LaunchRecord, OutputRecord, PlanRecord, Target
from checkpoint_protocol.store import open_store
from checkpoint_spark import failures
from checkpoint_spark.arrow_schema import decode_schema, encode_schema
from checkpoint_spark.executor import TaskOrder, execute, storage_settings
from checkpoint_spark.input import fix_input
from checkpoint_spark.pace import Pace
from checkpoint_spark.planning import plan_tasks, whole
from checkpoint_spark.sources.chunks import Reader
from checkpoint_spark.sources.reader import reader_for
from checkpoint_spark.steps import Pipeline, Place

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_SUPERSEDED: Final = 3
_TARGET_POLL_S: Final = 0.2
_TARGET_PATIENCE_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Orders:
    """The command line."""

    uri: str
    key: EpochKey
    attempt: int
    master: str
    parallelism: int
    spark_conf: dict[str, str]
    ends_with_parent: bool


def main() -> int:
    orders = _parse(sys.argv[1:])
    if orders.ends_with_parent:
        threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    ledger = Ledger(open_store(orders.uri, storage_settings()), orders.key)
    try:
        run_attempt(orders, ledger)
    except Superseded as superseded:
        _say(superseded.message)
        return EXIT_SUPERSEDED
    except CheckpointError as error:
        _say(f"{error.reason}: {error.message}")
        _leave_failure(ledger, orders.attempt, error)
        return EXIT_FAILED
    return EXIT_DONE


def run_attempt(orders: Orders, ledger: Ledger) -> None:
    """Do one attempt to its end. Raises Superseded before any task if another driver of the attempt has planned."""
    launch = ledger.read_launch(orders.attempt)
    if launch is None:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri} has no launch record of attempt {orders.attempt}")
    reader = reader_for(launch.source, storage_settings())
    input_record = fix_input(ledger, launch, reader)
    plan = _plan(orders, ledger, launch, input_record, reader)
    if not plan.tasks:
        ledger.put_plan(plan)
        return
    _refuse_changed_files(plan, input_record, reader)
    target = launch.target or _await_target(ledger, launch, input_record, reader)
    # Nothing is decided before this put: a second driver of the attempt ends here, before any task.
    ledger.put_plan(plan)
    _run_tasks(orders, plan, target)


def _plan(orders: Orders, ledger: Ledger, launch: LaunchRecord, input_record: InputRecord, reader: Reader) -> PlanRecord:
    seals = list(ledger.counted_seals(launch.counted))
    covered = merge(piece for seal in seals for piece in seal.covered.ranges)
    tasks = plan_tasks(input_record.files, covered, reader.align, orders.parallelism, launch.source.split_size)
    touched = {piece.file for task in tasks for piece in task}
    return PlanRecord(
        token=new_token(),
        attempt=orders.attempt,
        tasks=tasks,
        done_files=len({piece.file for piece in whole(input_record.files)} - touched),
        done_rows=sum(seal.rows_read for seal in seals),
    )


def _refuse_changed_files(plan: PlanRecord, input_record: InputRecord, reader: Reader) -> None:
    """A file that was replaced or vanished stops the write, unless all its rows are sealed: then the plan has none of it."""
    for index in sorted({piece.file for task in plan.tasks for piece in task}):
        reader.check_unchanged(input_record.files[index])


def _await_target(ledger: Ledger, launch: LaunchRecord, input_record: InputRecord, reader: Reader) -> Target:
    """Propose the schema of the steps' output and wait for the table that the operator makes of it."""
    ledger.put_output(launch.attempt, OutputRecord(token=new_token(), arrow_schema=_output_schema(launch, input_record, reader)))
    waited_until = time.monotonic() + _TARGET_PATIENCE_S
    while time.monotonic() < waited_until:
        if (record := ledger.read_target(launch.attempt)) is not None:
            return record.target
        time.sleep(_TARGET_POLL_S)
    raise Retryable(
        reasons.TABLE_MISSING, f"nobody made the table for attempt {launch.attempt} within {_TARGET_PATIENCE_S:.0f} s"
    )


def _output_schema(launch: LaunchRecord, input_record: InputRecord, reader: Reader) -> str:
    """Run the steps on the first rows of the input, to see what columns they give."""
    source_schema = decode_schema(input_record.arrow_schema)
    pipeline = Pipeline(launch.steps)
    sample = source_schema.empty_table().to_batches() or [source_schema.empty_table().combine_chunks()]
    place = Place("(no rows)", "rows", 0)
    for piece in whole(input_record.files):
        file = input_record.files[piece.file]
        chunk = next(iter(reader.read(file, piece, source_schema, Pace(launch.interval_s))), None)
        if chunk is not None and chunk.batch.num_rows:
            sample, place = [chunk.batch], Place(file.path, file.unit, chunk.start)
            break
    schema = pipeline.schema_of(sample[0], place)
    for field in schema:
        if str(field.type) == "null":
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"the type of the column {field.name!r} is unknown: it is NULL in all of the first rows; "
                "give it a type in the step, or create the table yourself",
            )
    return encode_schema(schema)


def _run_tasks(orders: Orders, plan: PlanRecord, target: Target) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    shipped = [
        TaskOrder(
            uri=orders.uri,
            uid=orders.key.uid,
            epoch=orders.key.epoch,
            attempt=plan.attempt,
            task=number,
            pieces=pieces,
            target=target,
        ).model_dump_json()
        for number, pieces in enumerate(plan.tasks)
    ]
    builder = SparkSession.builder.master(orders.master).appName(f"checkpointed-write {orders.key}")
    for name, value in orders.spark_conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        # One partition a task, in the plan's order. A task that fails is tried again by Spark; its seals stand.
        session.sparkContext.parallelize(shipped, len(shipped)).foreach(execute)
    except Exception as error:
        if isinstance(error, PySparkException) or type(error).__module__.startswith("py4j"):
            raise failures.of_spark(error) from error
        raise
    finally:
        session.stop()


def _leave_failure(ledger: Ledger, attempt: int, error: CheckpointError) -> None:
    try:
        ledger.put_failure(
            FailureRecord(
                token=new_token(), attempt=attempt, family=error.family, reason=error.reason, message=error.message[:30_000]
            )
        )
    except CheckpointError as second:
        _say(f"the failure could not be recorded: {second.message}")


def _end_with_parent() -> None:
    """End this process when the one that started it is gone: its end of our standard input closes, even on kill -9."""
    try:
        while os.read(0, 1024):
            pass
    except OSError:
        pass
    os._exit(EXIT_FAILED)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _parse(arguments: list[str]) -> Orders:
    parser = argparse.ArgumentParser(prog="checkpoint_spark.driver")
    parser.add_argument("--uri", required=True)
    parser.add_argument("--uid", required=True)
    parser.add_argument("--epoch", required=True, type=int)
    parser.add_argument("--attempt", required=True, type=int)
    parser.add_argument("--master", required=True)
    parser.add_argument("--parallelism", required=True, type=int)
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--end-with-parent", action="store_true")
    parsed = parser.parse_args(arguments)
    return Orders(
        uri=parsed.uri,
        key=EpochKey(parsed.uid, parsed.epoch),
        attempt=parsed.attempt,
        master=parsed.master,
        parallelism=parsed.parallelism,
        spark_conf=dict(item.split("=", 1) for item in parsed.conf),
        ends_with_parent=parsed.end_with_parent,
    )


if __name__ == "__main__":
    sys.exit(main())
