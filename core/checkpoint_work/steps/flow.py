"""What the steps make of the batches of a task, in order: batch by batch, or ahead of time where steps wait for something.

Steps that wait are kept at work: while the first group of rows waits for its slowest call, up to sixteen times as many rows as
they do at once are begun behind it, and more while rows wait for their next try (a service says how long: Retry-After) and few
others are left. What is given is whole groups, in the order of the source, so that a segment may end after
any of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Protocol

import pyarrow as pa

from checkpoint_formats.rows.batch_sizing import MOST_ROWS, BatchSizing
from checkpoint_work.process.reporting import CallCounts
from checkpoint_work.steps.batches import Batch, BatchT, Failed, Group, each_alone, of_at_least, of_exactly
from checkpoint_work.steps.calling.ahead import Ahead, CallerThread
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.failing.row_errors import END_TASK, OnRowError
from checkpoint_work.steps.failing.row_isolation import RowIsolation
from checkpoint_work.steps.quarantine import SOURCE

#: So many times the rows that are done at once are begun: one slow call in ten leaves a third of the speed of a mere window.
_LOOK_AHEAD: Final = 16
#: So many times that while rows wait for their next try and hardly any others are left: else the service would be left idle.
_FURTHER: Final = 4
#: Beside so many batches as a batch step does at once.
_SPARE_GROUPS: Final = 2
_MOST_BYTES_HELD: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Finished(Generic[BatchT]):
    """A group all of whose rows the steps have taken, or take while their results are asked for.

    `following`: the batch behind, None after the last one. `following_rows`: of how many source rows the group behind is, as
    far as that is known. `results` gives what the steps make, and tells each row that fails to what it is given. May be called
    once.
    """

    batches: tuple[BatchT, ...]
    following: BatchT | None
    following_rows: int
    results: Callable[[Callable[[Failed[BatchT]], None]], Iterator[pa.RecordBatch]]


class Steps(Protocol):
    """The steps of one task, as the task sees them: in its own process (`Flow`), or in another one (`StepsInProcess`)."""

    @property
    def least_rows(self) -> int:
        """The fewest rows that should be read at a time."""

    @property
    def waits(self) -> bool:
        """Whether several batches are at work at once, so that they are finished in bursts."""

    @property
    def is_uncertain(self) -> bool:
        """Whether a row was set apart that may be in order: what was done may not be sealed yet."""

    def count_calls(self) -> CallCounts:
        """Return what the steps that wait have done and do. For any thread."""

    def finished(self, batches: Iterator[BatchT]) -> Generator[Finished[BatchT], None, None]:
        """Give what is finished, in order. Each batch is read when its group, or one before it, is asked for.

        Raises what the steps and the reading raise.
        """

    def sealed(self) -> None:
        """Say that all that was given is sealed, and more rows come. Retryable where calls hang for good."""

    def end(self) -> None:
        """Say that no more rows come. Retryable(ServiceUnavailable) where a service has answered no call of the task."""


@dataclass(frozen=True, slots=True)
class _Made(Generic[BatchT]):
    """A group after the last step."""

    results: tuple[pa.RecordBatch, ...]
    failed: tuple[Failed[BatchT], ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """Takes batches through steps, in this process. `sets_apart`: rows that fail are told, and do not end the task.

    `schema`: what is given has it; None: that of what the steps make. `most_rows`: batches are not joined to groups of more
    source rows.
    """

    pipeline: Pipeline
    schema: pa.Schema | None
    sets_apart: bool
    most_rows: int = MOST_ROWS

    @property
    def least_rows(self) -> int:
        return self.pipeline.least_rows

    @property
    def waits(self) -> bool:
        return self.pipeline.waits

    @property
    def is_uncertain(self) -> bool:
        return self.pipeline.is_uncertain

    def count_calls(self) -> CallCounts:
        return self.pipeline.count_calls()

    def sealed(self) -> None:
        self.pipeline.sealed()

    def end(self) -> None:
        self.pipeline.end()

    def finished(self, batches: Iterator[BatchT]) -> Generator[Finished[BatchT], None, None]:
        alone = each_alone(batches)
        if not self.pipeline.waits and self.pipeline.sizes.exact_rows is None:
            for group in alone:
                yield Finished(group.batches, group.following, _rows_of(group.following), _OneByOne(self, group).results)
            return
        for group, made, behind in self._ahead(alone):
            following_rows = behind.source_rows if behind is not None else _rows_of(group.following)
            yield Finished(group.batches, group.following, following_rows, _Replayed(made).results)

    def _ahead(self, alone: Iterator[Group[BatchT]]) -> Iterator[tuple[Group[BatchT], _Made[BatchT], Group[BatchT] | None]]:
        pipeline, caller = self.pipeline, CallerThread()
        pipeline.start(caller.tell)
        exact_rows = pipeline.sizes.exact_rows
        groups = of_at_least(alone, pipeline.sizes.rows_at_once, self.most_rows)
        if exact_rows is None:
            yield from self._at_work(self._whole, groups, caller)
            return
        if pipeline.leads:
            led = self._at_work(self._led, groups, caller)
            groups = of_exactly((group for _, group, _ in led), exact_rows)
        else:
            groups = of_exactly(alone, exact_rows)
        yield from self._at_work(self._rest, groups, caller)

    def _at_work(
        self, work: Callable[[Group[BatchT], CallerThread], Any], groups: Iterator[Group[BatchT]], caller: CallerThread
    ) -> Iterator[Any]:
        in_turn = not self.pipeline.waits
        ahead: Ahead[Group[BatchT], Any] = Ahead(
            lambda group: work(group, caller), self._has_room, caller, self.pipeline.stop, in_turn
        )
        return ahead.results(groups)

    def _has_room(self, held: deque[tuple[Group[BatchT], Future[Any]]]) -> bool:
        groups = [group for group, _ in held]
        size_bytes = sum(group.source_bytes for group in groups)
        if len(groups) > 1 and size_bytes > _MOST_BYTES_HELD:
            return False
        if self._is_near(groups, 1):
            return True
        if not self.pipeline.has_few or not self._is_near(groups, _FURTHER):
            return False
        return size_bytes + _bytes_made([future for _, future in held]) <= _MOST_BYTES_HELD

    def _is_near(self, groups: list[Group[BatchT]], times: int) -> bool:
        rows, sizes = sum(group.source_rows for group in groups), self.pipeline.sizes
        return rows < times * sizes.rows_at_once * _LOOK_AHEAD or len(groups) < times * (sizes.batches_at_once + _SPARE_GROUPS)

    def _whole(self, group: Group[BatchT], caller: CallerThread) -> _Made[BatchT]:
        return self._rest(self._led(group, caller), caller)

    def _led(self, group: Group[BatchT], caller: CallerThread) -> Group[BatchT]:
        """Take a group through the row steps at the beginning."""
        failed = list(self._unreadable(group))
        if not group.source_rows:
            return replace(group, rows=[] if self.pipeline.leads else group.rows, failed=(*group.failed, *failed))
        isolation = self._isolation(group, failed)
        rows = self.pipeline.lead(group.rows, group.place, self.schema, isolation, caller.do)
        return replace(group, rows=rows, failed=(*group.failed, *failed))

    def _rest(self, group: Group[BatchT], caller: CallerThread) -> _Made[BatchT]:
        """Take a group through the steps that are left."""
        failed = [] if self.pipeline.leads or self.pipeline.sizes.exact_rows is None else list(self._unreadable(group))
        made: tuple[pa.RecordBatch, ...] = ()
        if len(group.rows):
            isolation = self._isolation(group, failed)
            made = tuple(self.pipeline.follow(group.rows, group.source_rows, group.place, self.schema, isolation, caller.do))
        return _Made(made, (*group.failed, *failed))

    def _unreadable(self, group: Group[BatchT]) -> Iterator[Failed[BatchT]]:
        return unreadable(group.batches, self.sets_apart)

    def _isolation(self, group: Group[BatchT], failed: list[Failed[BatchT]]) -> OnRowError:
        if not self.sets_apart:
            return END_TASK
        return RowIsolation(lambda number, step, error: failed.append(group.row_failed(number, step, error)))


def unreadable(batches: Iterable[BatchT], sets_apart: bool) -> Iterator[Failed[BatchT]]:
    """Give the rows that cannot be read. Raises why the first one cannot, where such rows are not set apart."""
    for batch in batches:
        if batch.unreadable is not None:
            if not sets_apart:
                raise batch.unreadable
            yield Failed(batch, 0, SOURCE, batch.unreadable)


def _bytes_made(groups: list[Future[Any]]) -> float:
    """Return the size of what groups become, if all do as those that are done. Python rows are not counted."""
    results = [one.result() for one in groups if one.done() and not one.cancelled() and one.exception() is None]
    sizes = [sum(batch.nbytes for batch in made.results) for made in results if isinstance(made, _Made)]
    return len(groups) * sum(sizes) / len(sizes) if sizes else 0.0


def _rows_of(batch: Batch | None) -> int:
    return batch.source_rows if batch is not None else 0


@dataclass(frozen=True, slots=True)
class _OneByOne(Generic[BatchT]):
    """The results of one batch, made while they are asked for."""

    flow: Flow
    group: Group[BatchT]

    def results(self, tell: Callable[[Failed[BatchT]], None]) -> Iterator[pa.RecordBatch]:
        (batch,), flow = self.group.batches, self.flow
        for failed in flow._unreadable(self.group):
            tell(failed)
        isolation: OnRowError = END_TASK
        if flow.sets_apart:
            isolation = RowIsolation(lambda number, step, error: tell(Failed(batch, number, step, error)))
        return flow.pipeline.apply(batch.rows, batch.place, flow.schema, isolation)


@dataclass(frozen=True, slots=True)
class _Replayed(Generic[BatchT]):
    """Results that were made before they are asked for."""

    made: _Made[BatchT]

    def results(self, tell: Callable[[Failed[BatchT]], None]) -> Iterator[pa.RecordBatch]:
        for failed in self.made.failed:
            tell(failed)
        return iter(self.made.results)


@dataclass(slots=True)
class Speed:
    """Tells the sizing how long groups take, where several are at work at once: they are finished in bursts."""

    sizing: BatchSizing
    is_in_bursts: bool
    _groups: int = 0
    _rows: int = 0
    _seconds: float = 0.0

    def took(self, seconds: float, rows: int) -> None:
        if not self.is_in_bursts:
            self.sizing.took(seconds, rows)
            return
        self._groups, self._rows, self._seconds = self._groups + 1, self._rows + rows, self._seconds + seconds
        if self._seconds >= 1.0 or self._groups >= _LOOK_AHEAD:
            self.sizing.took(self._seconds / self._groups, self._rows // self._groups)
            self._groups, self._rows, self._seconds = 0, 0, 0.0
