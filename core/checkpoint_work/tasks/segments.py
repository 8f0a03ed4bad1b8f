"""The task: turn batches of rows into staged files and seals, a segment at a time.

The path of a row: source -> steps -> fit to the table -> stager (a file that no reader of the table sees) -> seal (from here on
it counts). Whatever dies before the seal leaves files that nobody names; whatever dies after it has lost nothing.

How rows are known is the source's: by position (`rows_by_position.py`), or by key (`dataframes/rows_by_key.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from checkpoint_formats.port import Stager
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.selecting import ROW_ADDRESS
from checkpoint_protocol.deadlines import is_due
from checkpoint_protocol.errors import Superseded
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import KeysCovered, LaunchRecord, PositionsCovered, Seal
from checkpoint_work.process.reporting import InHand
from checkpoint_work.steps.batches import Batch, Failed
from checkpoint_work.steps.flow import Finished, Speed, Steps
from checkpoint_work.steps.quarantine import Allowance, QuarantineOfSegment
from checkpoint_work.tasks.ending import Ending, Left
from checkpoint_work.tasks.row_lineage import LineageOfSegment
from checkpoint_work.tasks.rows_by_position import PlacedChunk


@dataclass(frozen=True, slots=True)
class Task:
    """What one Spark task has to keep to. `allowance`: how many rows may fail and be quarantined; None: the first one ends it."""

    attempt: int
    number: int
    code_digest: str
    interval_s: float
    minimum_bytes: int
    allowance: Allowance | None = None
    read_digest: str | None = None
    maximum_rows: int | None = None

    @classmethod
    def of(cls, launch: LaunchRecord, number: int, allowance: Allowance | None, read_digest: str | None = None) -> Task:
        """Return a task of an attempt. `read_digest`: how its rows are read, where that may change from attempt to attempt."""
        code, interval_s, minimum_bytes = launch.code_digest, launch.interval_s, launch.minimum_bytes
        return cls(launch.attempt, number, code, interval_s, minimum_bytes, allowance, read_digest, launch.maximum_rows)


_NONE: Final = Ending()
_Batch = TypeVar("_Batch", bound=Batch)
_Taken = TypeVar("_Taken", bound=Batch, contravariant=True)


class Identities(Protocol[_Taken]):
    """What tells the source rows of one segment apart, gathered until its seal names them."""

    def add(self, batch: _Taken, failed: Sequence[int]) -> None:
        """Take a batch of which everything that the steps made was taken. `failed`: the numbers of its quarantined rows."""

    def finish(self) -> tuple[PositionsCovered | KeysCovered, int]:
        """Return what the seal says of all that was taken, and how many rows it is. What the seal only names is stored then.

        Raises NeedsChange where it may not be sealed: the source has changed, or rows cannot be told apart.
        """


class RowSource(Protocol[_Batch]):
    """Where the rows of a task come from, and how they are known."""

    def rest(self, chain: tuple[Seal, ...], sizing: BatchSizing, lost: Superseded | None) -> Iterator[_Batch]:
        """Give the rows that the seals of the chain do not cover, in order, in batches about as large as the sizing asks for.

        `lost`: this try has taken rows before, and another one has sealed a link of its chain; Retryable where it cannot go back.
        """

    def begin_segment(self) -> Identities[_Batch]: ...


def run_task(
    task: Task,
    source: RowSource[_Batch],
    steps: Steps,
    stager: Stager,
    ledger: Ledger,
    clock: Callable[[], float],
    in_hand: InHand | None = None,
    ending: Ending = _NONE,
) -> None:
    """Do what the seals of this task do not cover yet, sealing as it goes.

    Safe to run any number of times, also at once: tries of one task contend for each link of its seal chain, the loser of a
    link throws its segment away and goes on after what the winner sealed, if its source can; else it raises Retryable, unless the
    winner has sealed all. Returns when the chain ends in a `last` seal. Raises Left when it has sealed before its executor ends.
    """
    _Work(task, source, steps, stager, ledger, clock, in_hand or InHand(), ending, clock()).run()


@dataclass(frozen=True, slots=True)
class _Work(Generic[_Batch]):
    """One try of a task."""

    task: Task
    source: RowSource[_Batch]
    steps: Steps
    stager: Stager
    ledger: Ledger
    clock: Callable[[], float]
    in_hand: InHand
    ending: Ending
    begun: float

    def run(self) -> None:
        lost: Superseded | None = None
        while True:
            chain = self.ledger.chains.read_chain(self.task.attempt, self.task.number)
            if chain and chain[-1].last:
                return
            most_rows = self.task.maximum_rows
            sizing = BatchSizing(self.task.interval_s, least_rows=self.steps.least_rows, most_rows=most_rows)
            batches = self.source.rest(chain, sizing, lost)
            finished = self.steps.finished(batches)
            try:
                with closing(finished):
                    self._seal_rest(chain, finished, Speed(sizing, self.steps.waits))
            except Superseded as error:
                lost = error
                continue
            return

    def _seal_rest(self, chain: tuple[Seal, ...], finished: Iterator[Finished[_Batch]], speed: Speed) -> None:
        link, failed, last = len(chain), sum(seal.rows_quarantined for seal in chain), False
        while not last:
            self.in_hand.begin(link)
            segment = _Segment(self, finished, speed, self.source.begin_segment(), self._quarantine_of(failed))
            staged = self.stager.stage(segment.batches())
            # What the seal names is in the store before the seal: who reads the seal finds it.
            covered, rows_read = segment.identities.finish()
            quarantined = segment.quarantine.finish() if segment.quarantine is not None else None
            last = segment.is_last
            leaves = not last and segment.failure is None and self.ending.is_announced()
            seal = Seal(
                token=new_token(),
                attempt=self.task.attempt,
                task=self.task.number,
                link=link,
                covered=covered,
                rows_read=rows_read,
                rows_written=segment.rows_written,
                code_digest=self.task.code_digest,
                files=staged,
                last=last,
                quarantined=quarantined,
                read_digest=self.task.read_digest,
                left_by_try=self.ending.try_number if leaves else None,
                lineage=segment.lineage.runs,
            )
            self.ledger.seals.put_seal(seal)
            link += 1
            failed += seal.rows_quarantined
            if segment.failure is not None:
                raise segment.failure
            if leaves:
                raise Left
            if not last:
                self.steps.sealed()

    def _quarantine_of(self, rows_before: int) -> QuarantineOfSegment | None:
        if self.task.allowance is None:
            return None
        return QuarantineOfSegment(self.ledger, self.task.attempt, self.task.allowance, rows_before)


def _addressed(made: pa.RecordBatch, batches: Sequence[Batch]) -> pa.RecordBatch:
    """Return results for rows of a dataset with the addresses of these, in the place of their numbers among the batches."""
    number = made.schema.get_field_index(ROW_ADDRESS)
    if number < 0:
        return made
    addresses = np.concatenate([batch.addresses() for batch in batches if isinstance(batch, PlacedChunk)])
    return made.set_column(number, made.schema.field(number), pa.array(addresses[made.column(number).to_numpy()]))


@dataclass(slots=True)
class _Segment(Generic[_Batch]):
    """The part of a task's work that is sealed together: it ends after a group, when it is old, or old and large, enough.

    It also ends before a group that fails, so that what was done before is not done again. `failure`: the error of that group, to
    be raised when the segment is sealed.
    """

    work: _Work[_Batch]
    given: Iterator[Finished[_Batch]]
    speed: Speed
    identities: Identities[_Batch]
    quarantine: QuarantineOfSegment | None
    lineage: LineageOfSegment = field(default_factory=LineageOfSegment)
    rows_written: int = 0
    is_last: bool = False
    failure: Exception | None = None
    _size_bytes: int = 0
    _rows: int = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Give what the steps make of the batches, and note what tells their rows apart, up to where the segment ends."""
        started = now = self.work.clock()
        following: _Batch | None = None
        while True:
            quarantine = self.quarantine.copy() if self.quarantine is not None else None
            try:
                finished = next(self.given, None)
                if finished is None:
                    break
                failed: dict[int, list[int]] = {id(batch): [] for batch in finished.batches}
                # The error may come among them, so none is given before all are there. Most groups have one.
                results = list(finished.results(partial(self._set_apart, failed)))
            except Exception as error:
                if not self._may_end_before(following):
                    raise
                self.failure, self.quarantine = error, quarantine
                return
            lineage = self.lineage.begin(finished.batches)
            for numbered in results:
                made = _addressed(lineage.taken(numbered), finished.batches)
                self.rows_written += made.num_rows
                self._size_bytes += made.nbytes
                yield made
            lineage.end()
            # Only after all that the group gave was taken: a segment never ends inside a row's yield.
            rows = 0
            for batch in finished.batches:
                self.identities.add(batch, failed[id(batch)])
                self.work.in_hand.add(batch.source_rows, batch.positions)
                rows += batch.source_rows
            before, now = now, self.work.clock()
            took_s = now - before
            self.speed.took(took_s, rows)
            self._rows += rows
            following = finished.following
            if self._may_end_before(following) and self._is_due(now, started, took_s, finished.following_rows):
                return
        self.work.steps.end()
        self.is_last = True

    def _set_apart(self, failed: dict[int, list[int]], one: Failed[_Batch]) -> None:
        assert self.quarantine is not None
        failed[id(one.batch)].append(one.number)
        self.quarantine.add(one.batch.identity_of(one.number), one.batch.place.of_row(one.number), one.step, one.error)

    def _may_end_before(self, following: _Batch | None) -> bool:
        return following is not None and following.may_begin_segment and not self.work.steps.is_uncertain

    def _is_due(self, now: float, started: float, following_s: float, following_rows: int) -> bool:
        task, rows = self.work.task, self._rows + following_rows
        if self.work.ending.is_announced():
            return True
        return is_due(
            now - started,
            now - self.work.begun,
            self._size_bytes,
            task.interval_s,
            task.minimum_bytes,
            rows,
            task.maximum_rows,
            following_s,
        )
