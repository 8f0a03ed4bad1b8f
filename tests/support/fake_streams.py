"""Drivers of streams without Spark: what Spark does with its checkpoint is done here, and all else by the production code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from checkpoint_formats.port import Stager
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_operator.pods.driver_pod import CHECKPOINT_MOUNT
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sources.stream_source import ProgramStream
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import FailureRecord, InputRecord, LaunchRecord, PlanRecord
from checkpoint_protocol.store.macs import WriteKeys
from checkpoint_spark.driver.main import parse
from checkpoint_spark.streams.batch import RowsOfBatch
from checkpoint_spark.streams.checkpoint import Checkpoint
from checkpoint_spark.streams.query import _Query
from checkpoint_work.driver.attempt import run_attempt
from checkpoint_work.process.reporting import AtWork, InHand
from checkpoint_work.steps.flow import Steps
from checkpoint_work.tasks.ending import Ending
from checkpoint_work.tasks.executor import execute_order
from checkpoint_work.tasks.segments import Task, run_task
from checkpoint_work.tasks.task_process import Order, run_in_process
from tests.support import driver_threads
from tests.support.driver_threads import Killed
from tests.support.waiting import wait
from tests.support.writes import SCHEMA, rows_of


@dataclass
class FakeStream:
    """A source whose micro-batch takes what is offered when it begins. `volume`: what the claim is bound to.

    Called with a driver's pod and the number of a micro-batch, `before_offsets`, `before_tasks`, `after_tasks` and
    `before_merge` may raise Killed. A driver ends where nothing is offered, unless the stream `lasts`; then `is_gone` ends it,
    which gets its pod.
    """

    settings: Settings
    volume: Path
    offered: int = 0
    lasts: bool = False
    before_offsets: Callable[[dict[str, Any], int], object] = lambda pod, number: None
    before_tasks: Callable[[dict[str, Any], int], object] = lambda pod, number: None
    after_tasks: Callable[[dict[str, Any], int], object] = lambda pod, number: None
    before_merge: Callable[[dict[str, Any], int], object] = lambda pod, number: None
    is_gone: Callable[[dict[str, Any]], object] = lambda pod: None
    more: threading.Event = field(default_factory=threading.Event)

    def offer(self, rows: int) -> None:
        self.offered += rows
        self.more.set()

    def drive(self, pod: dict[str, Any], at_work: AtWork, keys: WriteKeys | None) -> None:
        """Do what a driver does, to its end."""
        mount = parse(pod["spec"]["containers"][0]["args"][1:], master="fake").checkpoint_volume
        assert mount == Path(CHECKPOINT_MOUNT)
        session: Any = None

        def run_tasks(orders: Sequence[str]) -> None:
            for order in orders:
                execute_order(order, self.settings.for_drivers(), keys)

        def run_stage(ledger: Ledger) -> None:
            self.before_merge(pod, ledger.key.epoch - 1)
            run_attempt(ledger, 1, self.settings.for_drivers(), 1, run_tasks)

        query = _Query(session, ProgramStream(), 1, lambda phase: None, at_work, run_stage, self.volume)
        query._checkpoint = query._open_checkpoint()
        for number in self._numbers(pod, query._checkpoint):
            ledger, attempt = at_work.now
            if number + 1 < ledger.key.epoch:
                query._checkpoint.compare(number, (query._committed_offsets(number + 1),))
            else:
                self._stage(pod, query._checkpoint, ledger, attempt, number, keys)
                query._await_commit(ledger, attempt)
                query._go_on(ledger)
            _put(query._checkpoint, "commits", number, "")
        ledger, attempt = at_work.now
        message = "the query has ended: what was there is committed"
        ledger.attempts.put_failure(
            FailureRecord(token=new_token(), attempt=attempt, family="Retryable", reason=reasons.STREAM_ENDED, message=message)
        )

    def _numbers(self, pod: dict[str, Any], checkpoint: Checkpoint) -> Iterator[int]:
        """Log what each micro-batch reads, and give its number; that which is not noted as done comes again as it was."""
        logged, done = checkpoint._numbers("offsets"), checkpoint._numbers("commits")
        number = max(done, default=-1) + 1
        if number in logged:
            yield number
            number += 1
        while True:
            start = _end_of(checkpoint, number - 1)
            while self.lasts and self.offered <= start:
                driver_threads.end_with_the_test()
                self.is_gone(pod)
                self.more.wait(0.01)
            if (end := self.offered) <= start:
                return
            self.before_offsets(pod, number)
            _put(checkpoint, "offsets", number, f"{start} {end}")
            yield number
            number += 1

    def _stage(
        self,
        pod: dict[str, Any],
        checkpoint: Checkpoint,
        ledger: Ledger,
        attempt: int,
        number: int,
        keys: WriteKeys | None,
    ) -> None:
        launch = ledger.attempts.read_launch(attempt)
        assert launch is not None
        assert launch.target is not None
        record = InputRecord(token=new_token(), files=(), arrow_schema=encode_schema(SCHEMA), batch=number)
        ledger.inputs.put_input(record, launch.input_since)
        start, end = _end_of(checkpoint, number - 1), _end_of(checkpoint, number)
        key = ledger.key
        order = Order(uri=ledger.store.uri, uid=key.uid, epoch=key.epoch, attempt=attempt, target=launch.target)
        digest = checkpoint.digest_of(number)
        plan = PlanRecord(token=new_token(), attempt=attempt, tasks=(), done_files=0, done_rows=0, partitions=1, offsets=digest)
        ledger.plans.put_plan(plan)
        self.before_tasks(pod, number)
        run_in_process(
            order, 0, 0, self.settings.for_drivers(), keys, order.launch, _running(rows_of(range(start, end)).to_batches())
        )
        self.after_tasks(pod, number)


def _running(batches: Sequence[pa.RecordBatch]) -> Callable[..., None]:
    def run(launch: LaunchRecord, steps: Steps, stager: Stager, ledger: Ledger, in_hand: InHand, ending: Ending) -> None:
        source = RowsOfBatch(iter(batches), "the partition")
        run_task(Task.of(launch, 0, None), source, steps, stager, ledger, lambda: 0.0, in_hand, ending)

    return run


def _put(checkpoint: Checkpoint, name: str, number: int, text: str) -> None:
    """Put a file as Spark does: whole, under another name, and then under its own.

    Where the folder is gone, as the next driver has committed, the query ends with an error.
    """
    folder = checkpoint.folder / name
    try:
        folder.mkdir(exist_ok=True)
        made = folder / f".{number}.{new_token()}"
        made.write_text(text)
        made.rename(folder / str(number))
    except FileNotFoundError:
        raise Killed from None


def _end_of(checkpoint: Checkpoint, number: int) -> int:
    if number < 0:
        return 0
    try:
        return int((checkpoint.folder / "offsets" / str(number)).read_text().split()[1])
    except FileNotFoundError:
        raise Killed from None


def hold(reached: threading.Event, released: threading.Event) -> None:
    """Stop a driver here until it is released."""
    reached.set()
    wait(released, "the driver is released")
