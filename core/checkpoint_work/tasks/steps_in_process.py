"""Rows that end their process are found: a process of its own has the steps, and gets fewer and fewer rows, until one is alone.

A fault of native code, os._exit and the kernel, where memory is short, leave no exception and take all that the process had in
hand. So after such an end the next try of the task runs its steps in such a process. A batch that ends the step process is
divided, and a new process takes the parts one after another; a row that does so twice when it is alone has failed, as one has
on which a step raises.

The rest of the task runs in that way, too: where one such row is, there are often more. It costs a copy of the rows, and in
steps that wait the look-ahead from batch to batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_formats.rows.selecting import ROW_ADDRESS
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import LaunchRecord
from checkpoint_work.process.reporting import CallCounts
from checkpoint_work.step_process.process import Opening, Reply, StepProcess, StepProcessEnded
from checkpoint_work.steps.batches import BatchT, Failed, Sizes, each_alone
from checkpoint_work.steps.failing.failures import ToldError
from checkpoint_work.steps.flow import Finished, unreadable
from checkpoint_work.steps.places import Place, part_of
from checkpoint_work.steps.row_numbers import ROW_NUMBER

#: A batch that ends the process is divided into so many parts: less is done again than by halves, and fewer processes are begun.
_PARTS: Final = 16
#: A row that is alone ends the process so often before it has failed: the first time may be chance.
_MOST_ENDS: Final = 2
#: How attempts end whose processes do not say why.
_SILENT_ENDS: Final = (reasons.DRIVER_FAILED, reasons.DRIVER_OUT_OF_MEMORY, reasons.NO_PROGRESS)
#: Beside the rows that are done at once, so that their slowest calls are waited for less often.
_ROUNDS: Final = 4

_Answer = TypeVar("_Answer")


class Process(Protocol):
    """A step process: see `StepProcess`."""

    @property
    def is_uncertain(self) -> bool: ...

    @property
    def calls(self) -> tuple[int, int, int]: ...

    @property
    def calls_left_running(self) -> int: ...

    def open(self) -> None: ...

    def apply(self, rows: pa.RecordBatch, place: Place) -> Reply: ...

    def sample(self, rows: pa.RecordBatch, place: Place) -> pa.Schema: ...

    def end(self) -> None: ...

    def close(self) -> None: ...


def needs_step_process(ledger: Ledger, launch: LaunchRecord) -> bool:
    """Return whether the attempt before this one has sealed nothing, and its processes have ended, or hung, and nobody knows why.

    Bounds effort only: no result rests on it. Never of groups: their rows are not tried one by one.
    """
    before = launch.attempt - 1
    if not before or launch.keeps_groups:
        return False
    closed, failure = ledger.attempts.read_closed(before), ledger.attempts.read_failure(before)
    if closed is None or any(closed.chain_lengths):
        return False
    said = closed.given_up or failure
    return said is None or said.reason in _SILENT_ENDS


@dataclass(slots=True)
class StepsInProcess:
    """Implements Steps, in a step process: see above."""

    opening: Opening
    start: Callable[[Opening], Process] = StepProcess
    _process: Process | None = field(init=False, default=None)
    _calls_before: CallCounts = field(init=False, default_factory=CallCounts)

    @property
    def least_rows(self) -> int:
        sizes = Sizes(self.opening.steps)
        return max(sizes.least_rows, sizes.rows_at_once * _ROUNDS if sizes.rows_at_once > 1 else 1)

    @property
    def waits(self) -> bool:
        """Batches are done one after another."""
        return False

    @property
    def is_uncertain(self) -> bool:
        return self._process is not None and self._process.is_uncertain

    def count_calls(self) -> CallCounts:
        ended, in_flight, again = self._process.calls if self._process is not None else (0, 0, 0)
        before = self._calls_before
        return CallCounts(before.ended + ended, in_flight, before.tries_again + again)

    def end(self) -> None:
        """Nothing is to be done: `finished` has said that no more rows come."""

    def sealed(self) -> None:
        """Nothing is to be done: a process whose calls hang does not get as far as to a seal."""

    def close(self) -> None:
        """End the step process, if there is one. The next rows get a new one."""
        if self._process is not None:
            before, (ended, _, again) = self._calls_before, self._process.calls
            self._calls_before = CallCounts(before.ended + ended, 0, before.tries_again + again)
            self._process.close()
            self._process = None

    def finished(self, batches: Iterator[BatchT]) -> Generator[Finished[BatchT], None, None]:
        """Give each batch, with what the steps make of it when that is asked for."""
        try:
            for group in each_alone(batches):
                (batch,), behind = group.batches, group.following
                rows = behind.source_rows if behind is not None else 0
                yield Finished(group.batches, behind, rows, _Results(self, batch).results)
            self._say_end()
        finally:
            self.close()

    def _say_end(self) -> None:
        try:
            if self._process is not None:
                self._process.end()
        except StepProcessEnded as ended:
            message = f"the process of the steps ended after the last row: {ended.how.message}"
            raise Retryable(reasons.DRIVER_FAILED, message) from None

    def schema_of(self, rows: pa.RecordBatch, place: Place) -> pa.Schema:
        """Return the schema of a new table, as `Pipeline.schema_of` does: for the first part of the rows that can be done."""

        def sample(process: Process, part: pa.RecordBatch, where: Place) -> pa.Schema:
            return process.sample(part, where)

        try:
            for _, schema in self._by_parts(rows, place, sample, lambda number, ended: self._refuse(place, number, ended)):
                return schema
            return self._by_process(sample, rows.slice(0, 0), place)
        finally:
            self.close()

    def through(self, batch: BatchT, tell: Callable[[Failed[BatchT]], None]) -> Iterator[pa.RecordBatch]:
        """Give what the steps make of a batch that has rows, in order, and tell which of its rows fail."""

        def fail(number: int, ended: StepProcessEnded) -> None:
            self._refuse(batch.place, number, ended)
            tell(Failed(batch, number, ended.step or "", ToldError(ended.how)))

        def apply(process: Process, part: pa.RecordBatch, where: Place) -> Reply:
            return process.apply(part, where)

        for first, reply in self._by_parts(batch.rows, batch.place, apply, fail):
            for row in reply.failed:
                tell(Failed(batch, first + row.number, row.step, ToldError(row.error)))
            yield from (_counted_from(made, first) for made in reply.made)

    def _by_parts(
        self,
        rows: pa.RecordBatch,
        place: Place,
        ask: Callable[[Process, pa.RecordBatch, Place], _Answer],
        fail: Callable[[int, StepProcessEnded], None],
    ) -> Iterator[tuple[int, _Answer]]:
        """Give the number of the first row of each part, and its answer. A row that ends the process is told to `fail`."""
        parts = [(0, rows.num_rows, 0)]
        while parts:
            first, end, ends = parts.pop()
            try:
                answer = self._by_process(ask, rows.slice(first, end - first), part_of(place, first))
            except StepProcessEnded as ended:
                if end - first > 1:
                    parts += reversed(_divided(first, end))
                elif ends + 1 < _MOST_ENDS:
                    parts.append((first, end, ends + 1))
                else:
                    fail(first, ended)
                continue
            yield first, answer

    def _refuse(self, place: Place, number: int, ended: StepProcessEnded) -> None:
        """Raise what a row means that ends the process. Returns where it is set apart."""
        where = place.of_row(number)
        if ended.step is None:
            message = f"the process of the steps ended outside of a step, with {where}: {ended.how.message}"
            raise Retryable(reasons.DRIVER_FAILED, message)
        if not self.opening.sets_apart:
            raise NeedsChange(
                reasons.CODE_FAILED,
                f"step {ended.step!r} ends its process on {where}, each time that it is given this row alone: "
                f"{ended.how.message}; correct the code, or set onRowError: Quarantine to go on without such rows",
            )

    def _by_process(
        self, ask: Callable[[Process, pa.RecordBatch, Place], _Answer], rows: pa.RecordBatch, place: Place
    ) -> _Answer:
        if self._process is None:
            self._process = self._opened()
        try:
            answer = ask(self._process, rows, place)
        except StepProcessEnded:
            self.close()
            raise
        # Nobody can end a thread. What waits for evidence that a service answers is not known to another process.
        if self._process.calls_left_running and not self._process.is_uncertain:
            self.close()
        return answer

    def _opened(self) -> Process:
        process = self.start(self.opening)
        try:
            process.open()
        except CheckpointError:
            process.close()
            raise
        except StepProcessEnded as ended:
            process.close()
            where = f"step {ended.step!r}" if ended.step is not None else "the steps"
            message = f"{where} ended the process while it was imported and made, before it had rows: {ended.how.message}"
            raise Retryable(reasons.DRIVER_FAILED, message) from None
        return process


@dataclass(frozen=True, slots=True)
class _Results(Generic[BatchT]):
    """The results of one batch, made while they are asked for."""

    steps: StepsInProcess
    batch: BatchT

    def results(self, tell: Callable[[Failed[BatchT]], None]) -> Iterator[pa.RecordBatch]:
        for failed in unreadable((self.batch,), self.steps.opening.sets_apart):
            tell(failed)
        if self.batch.rows.num_rows:
            yield from self.steps.through(self.batch, tell)


def _counted_from(made: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Return results whose rows have the numbers of source rows, if they have them, with the numbers of the whole batch."""
    for name in (ROW_ADDRESS, ROW_NUMBER):
        column = made.schema.get_field_index(name)
        if column >= 0 and first:
            made = made.set_column(column, made.schema.field(column), pc.add(made.column(column), pa.scalar(first, pa.uint64())))
    return made


def _divided(first: int, end: int) -> list[tuple[int, int, int]]:
    size = -(-(end - first) // _PARTS)
    return [(start, min(start + size, end), 0) for start in range(first, end, size)]
