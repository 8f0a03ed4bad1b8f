"""The query of a stream: its micro-batches one after another, each an epoch, and the merges that a commit needs.

Micro-batch n is epoch n + 1. Spark calls with a micro-batch after it has logged what that reads, and notes that it is done after
the call has returned; so the call returns when the epoch is committed, and at no other time. Whatever dies in between, Spark
replays the one micro-batch that it has not noted, and the records say what is to be done with it:

    committed          nothing is staged; it is computed once more, as the state of aggregates may not be stored yet
    not committed      a new attempt stages it as a whole; what an attempt before has staged of it is not taken over

An epoch is one behind the other, as each is recorded after the commit of the one before: one is not committed, at the most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange, Superseded
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sources.stream_source import ProgramStream
from checkpoint_protocol.progress_reports import DriverPhase
from checkpoint_protocol.records import DrivenBy, FailureRecord, LaunchRecord, Upsert
from checkpoint_protocol.store.object_store import local_path
from checkpoint_protocol.writes import list_stages
from checkpoint_spark.dataframes.programs import errors_of_spark, run_program
from checkpoint_spark.dataframes.reading import Secrets
from checkpoint_spark.driver.task_orders import run_tasks_in
from checkpoint_spark.streams.batch import refuse_options, refuse_query, stage_batch
from checkpoint_spark.streams.checkpoint import Checkpoint, Known
from checkpoint_spark.streams.volume import StreamVolume
from checkpoint_work.driver.attempt import run_attempt
from checkpoint_work.process.reporting import AtWork
from checkpoint_work.tasks.executor import storage_settings

# Stages that the commit of a micro-batch needs, such as the merge of an upsert: the driver does them while it waits for it.
#
# It does those whose launch record names it (`driven_by`), and only their first attempt. If one fails, the driver ends, and the
# next attempt has a driver of its own: the micro-batch is sealed by then, and is not staged again.


@dataclass(slots=True)
class StagesOfCommit:
    """Those of one epoch. `life`: the attempt that this driver was started for; `run`: does the first attempt of a stage."""

    at_work: AtWork
    life: DrivenBy
    run: Callable[[Ledger], None]
    #: Those whose launch record was read: it never changes.
    _seen: set[EpochKey] = field(default_factory=set)

    def do_recorded(self) -> None:
        """Do those that are recorded for this driver by now. Where one fails, it stays what the driver is at work on."""
        epoch = self.at_work.now
        for key in list_stages(epoch[0].store, epoch[0].key):
            stage = Ledger(epoch[0].store, key)
            if key in self._seen or (launch := stage.attempts.read_launch(1)) is None:
                continue
            self._seen.add(key)
            if launch.driven_by == self.life:
                self.at_work.now = (stage, 1)
                self.run(stage)
                self.at_work.now = epoch


#: Whoever commits is asked so often. On a disk a request is a system call or two; of an object store it is paid for.
_LOCAL_POLL_S: Final = 0.05
_REMOTE_POLL_S: Final = 0.5


def run_stream(
    session: SparkSession,
    launch: LaunchRecord,
    parallelism: int,
    enter: Callable[[DriverPhase], None],
    at_work: AtWork,
    mount: Path | None = None,
) -> None:
    """Run the program, whose query stages and seals epochs, from the one of this attempt on. Returns when the query has ended.

    `mount`: of the volume for Spark's own checkpoint; None: that is below the checkpoint URI.
    """
    program = launch.source.program
    assert program is not None
    assert program.stream is not None

    def run_tasks(orders: Sequence[str]) -> None:
        enter("RunningTasks")
        run_tasks_in(session.sparkContext, orders)

    def run_stage(ledger: Ledger) -> None:
        enter("Planning")
        run_attempt(ledger, 1, storage_settings(), parallelism, run_tasks)

    query = _Query(session, program.stream, parallelism, enter, at_work, run_stage, mount)
    with errors_of_spark(Secrets()):
        try:
            run_program(program.call, StreamJob(query))
        finally:
            # As it was, and also where the program has caught it.
            if query.problem is not None:
                raise query.problem
    if not query.is_started:
        raise NeedsChange(reasons.CODE_FAILED, f"the program {program.call} returned without having called job.stream(dataframe)")
    ledger, attempt = at_work.now
    ledger.attempts.put_failure(
        FailureRecord(
            token=new_token(),
            attempt=attempt,
            family="Retryable",
            reason=reasons.STREAM_ENDED,
            message="the query has ended: what was there is committed",
        )
    )


@dataclass(frozen=True, slots=True)
class StreamJob:
    """All that a program with a stream has to know of checkpointing."""

    _query: _Query

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self._query.session

    def read(self, _dataframe: DataFrame, keys: object = None) -> DataFrame:
        raise self._of_rows_by_key("read")

    def write(self, _dataframe: DataFrame) -> None:
        raise self._of_rows_by_key("write")

    def stream(
        self,
        dataframe: DataFrame,
        outputMode: str | None = None,  # noqa: N803 Spark's name
        *,
        availableNow: bool = False,  # noqa: N803
        processingTime: str | None = None,  # noqa: N803
        **options: object,
    ) -> None:
        """Run the query to its end. To be called once."""
        refuse_options(options)
        if availableNow and processingTime is not None:
            raise NeedsChange(reasons.STREAM_REFUSED, "job.stream takes availableNow or processingTime, not both")
        refuse_query(dataframe, self._query.stream, outputMode)
        self._query.run(dataframe, available_now=availableNow, processing_time=processingTime)

    def _of_rows_by_key(self, name: str) -> NeedsChange:
        return NeedsChange(
            reasons.STREAM_REFUSED,
            f"job.{name} was called, and the source is a stream, whose rows have no keys: call job.stream, or say keyColumns in "
            "the place of source.program.stream",
        )


@dataclass(slots=True)
class _Query:
    """One life of the query, by one driver. `at_work` has the epoch that is open: the one of the next micro-batch.

    `run_stage`: does the first attempt of a stage that a commit needs.
    """

    session: SparkSession
    stream: ProgramStream
    parallelism: int
    enter: Callable[[DriverPhase], None]
    at_work: AtWork
    run_stage: Callable[[Ledger], None]
    mount: Path | None = None
    is_started: bool = False
    problem: BaseException | None = None
    _life: DrivenBy = field(init=False)
    _volume: StreamVolume | None = None
    _checkpoint: Checkpoint = field(init=False)

    def __post_init__(self) -> None:
        ledger, attempt = self.at_work.now
        self._life = DrivenBy(epoch=ledger.key.epoch, attempt=attempt)
        if self.mount is not None:
            self._volume = StreamVolume(self.mount, ledger.key.uid, self._life)

    def run(self, frame: DataFrame, *, available_now: bool, processing_time: str | None) -> None:
        """Run the query to its end. What ended it is raised, and kept for who must know."""
        if self.is_started:
            raise NeedsChange(reasons.CODE_FAILED, "job.stream was called a second time: a write has one query; use union")
        self.is_started = True
        try:
            self._checkpoint = self._open_checkpoint()
            writer = frame.writeStream.outputMode(self.stream.output_mode.lower()).foreachBatch(self._take)
            if available_now:
                writer = writer.trigger(availableNow=True)
            elif processing_time is not None:
                writer = writer.trigger(processingTime=processing_time)
            self.enter("AwaitingRows")
            writer.start(checkpointLocation=str(self._checkpoint.folder.absolute())).awaitTermination()
        except BaseException as error:
            self.problem = self.problem or error
            raise self.problem from None

    def _open_checkpoint(self) -> Checkpoint:
        known = self._known()
        if self._volume is not None:
            return self._volume.begin(known)
        ledger, _ = self.at_work.now
        found = Checkpoint.below(ledger.store.uri, ledger.key.uid)
        found.prepare(known)
        return found

    def _known(self) -> Known:
        ledger, attempt = self.at_work.now
        committed = ledger.key.epoch - 1
        offsets = self._committed_offsets(committed) if committed else None
        return Known(committed, offsets, self._planned(ledger, attempt))

    def _committed_offsets(self, epoch: int) -> str:
        """Return the digest of the offsets that an epoch was committed with."""
        ledger, _ = self.at_work.now
        commit = Ledger(ledger.store, EpochKey(ledger.key.uid, epoch)).commits.read_commit()
        if commit is None or commit.offsets is None:
            raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: epoch {epoch} has no commit record of a micro-batch")
        return commit.offsets

    def _planned(self, ledger: Ledger, attempt: int) -> tuple[str, ...]:
        """Return with which offsets attempts of the epoch had planned when they were closed.

        A driver that goes on may plan after that, and nobody counts what it stages.
        """
        found: dict[str, None] = {}
        for number in range(1, attempt):
            closed, plan = ledger.attempts.read_closed(number), ledger.plans.read_plan(number)
            is_closed_with_it = closed is not None and plan is not None and closed.plan_token == plan.token
            if is_closed_with_it and plan is not None and plan.offsets is not None:
                found[plan.offsets] = None
        return tuple(found)

    def _take(self, frame: DataFrame, number: int) -> None:
        """Spark's function for each micro-batch. What it raises ends the query."""
        try:
            self._do(frame, number)
        except BaseException as error:
            self.problem = error
            # Java is given an answer for an Exception only, and would wait for one for ever.
            raise RuntimeError(f"the micro-batch was not done: {type(error).__name__}") from None

    def _do(self, frame: DataFrame, number: int) -> None:
        ledger, attempt = self.at_work.now
        epoch = number + 1
        if epoch > ledger.key.epoch:
            raise self._checkpoint.lost(f"is at micro-batch {number}, and {ledger.key.epoch - 1} is the next one")
        if epoch < ledger.key.epoch:
            self._checkpoint.compare(number, (self._committed_offsets(epoch),))
            frame.write.format("noop").mode("overwrite").save()
            return
        self._checkpoint.compare(number, self._planned(ledger, attempt))
        stage_batch(frame, number, self._checkpoint.digest_of(number), ledger, attempt, self.parallelism, self.enter)
        self._await_commit(ledger, attempt)
        self._go_on(ledger)

    def _await_commit(self, ledger: Ledger, attempt: int) -> None:
        """Wait until the epoch is committed: before, Spark must not note that its micro-batch is done.

        Does the merges that an upsert needs meanwhile.
        """
        launch = ledger.attempts.read_launch(attempt)
        has_stages = launch is not None and isinstance(launch.operation, Upsert)
        stages = StagesOfCommit(self.at_work, self._life, self.run_stage)
        while ledger.commits.read_commit() is None:
            closed = ledger.attempts.read_closed(attempt)
            if closed is not None and not closed.complete:
                raise Superseded("AttemptClosed", f"attempt {attempt} of {ledger.key} was closed: another one does it anew")
            if closed is not None and has_stages:
                stages.do_recorded()
            time.sleep(_poll_s(ledger))

    def _go_on(self, ledger: Ledger) -> None:
        """Take the next epoch up, as soon as it is recorded: what becomes of this driver from here on is said there."""
        self.enter("AwaitingRows")
        following = Ledger(ledger.store, EpochKey(ledger.key.uid, ledger.key.epoch + 1))
        while (launch := following.attempts.read_launch(1)) is None:
            time.sleep(_poll_s(ledger))
        if launch.driven_by != self._life:
            raise Superseded("SecondDriver", f"{following.key} has another driver; this one ends")
        if self._volume is not None and ledger.key.epoch == self._life.epoch:
            self._volume.remove_older(self._checkpoint)
        self.at_work.now = (following, 1)


def _poll_s(ledger: Ledger) -> float:
    return _LOCAL_POLL_S if local_path(ledger.store.uri) is not None else _REMOTE_POLL_S
