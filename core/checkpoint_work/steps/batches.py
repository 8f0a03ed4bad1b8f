"""Rows of a source on their way through the steps: batches, groups of them, and how many a step wants at a time."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from typing import Final, Generic, Protocol, TypeVar

import pyarrow as pa

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.steps import MOST_ROWS_OF_A_BATCH, Step
from checkpoint_protocol.records import RowKey, RowPosition
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.row_steps import Row

_Self = TypeVar("_Self", bound="Batch")
BatchT = TypeVar("BatchT", bound="Batch")

#: While rows are waited for of which steps make a batch, no more source rows are held than these, or than 16 such batches.
_MOST_HELD: Final = 65_536
#: Nor are they joined to more than this: a batch of images may not fit in memory as one of numbers does.
MOST_BYTES_JOINED: Final = 256 << 20


class Batch(Protocol):
    """Some rows, which the steps get together."""

    @property
    def rows(self) -> pa.RecordBatch: ...

    @property
    def place(self) -> Place:
        """Where the rows lie, for messages."""

    @property
    def unreadable(self) -> CheckpointError | None:
        """Why the batch's one row cannot be read; there are no rows then. None: all were read."""

    @property
    def source_rows(self) -> int:
        """How many rows of the source these are."""

    @property
    def positions(self) -> int:
        """How much of the source that is, in the unit in which progress is told."""

    @property
    def may_begin_segment(self) -> bool:
        """Whether the segment of the batch before may end there."""

    def identity_of(self, number: int) -> RowPosition | RowKey:
        """Return by what a row of the batch, counted from 0, is known in the records."""

    def slice(self: _Self, start: int, end: int) -> _Self:
        """Return the rows from one to before another, with what lies up to the first of the next part."""


@dataclass(frozen=True, slots=True)
class Failed(Generic[BatchT]):
    """A row that failed: its number in its batch, the label of the step, and what that raised."""

    batch: BatchT
    number: int
    step: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class GroupPlace(Place):
    """Where the rows of several batches lie."""

    places: tuple[Place, ...] = field(kw_only=True)
    offsets: tuple[int, ...] = field(kw_only=True)

    def identity_of(self, row: int) -> tuple[str | int, ...]:
        number = max(0, bisect_right(self.offsets, row) - 1)
        return self.places[number].identity_of(row - self.offsets[number])

    def of_row(self, row: int) -> str:
        number = max(0, bisect_right(self.offsets, row) - 1)
        return self.places[number].of_row(row - self.offsets[number])

    def of_rows(self, count: int) -> str:
        return f"{count} rows from {self.of_row(0)} on"


@dataclass(frozen=True, slots=True)
class Group(Generic[BatchT]):
    """Neighbouring batches that go through steps together, and what the steps before have made of their rows.

    `rows`: with the numbers of the source rows, counted through all batches. `failed` are those that have failed already.
    `following`: the batch behind, None after the last one of the task.
    """

    batches: tuple[BatchT, ...]
    rows: pa.RecordBatch | list[Row]
    failed: tuple[Failed[BatchT], ...]
    following: BatchT | None

    @property
    def offsets(self) -> tuple[int, ...]:
        """The number of the first row of each batch."""
        return tuple(accumulate((batch.rows.num_rows for batch in self.batches), initial=0))[:-1]

    @property
    def source_rows(self) -> int:
        return sum(batch.rows.num_rows for batch in self.batches)

    @property
    def source_bytes(self) -> int:
        return sum(batch.rows.nbytes for batch in self.batches)

    @property
    def place(self) -> Place:
        if len(self.batches) == 1:
            return self.batches[0].place
        filled = [batch for batch in self.batches if batch.rows.num_rows] or list(self.batches[:1])
        offsets = accumulate((batch.rows.num_rows for batch in filled), initial=0)
        places = tuple(batch.place for batch in filled)
        return GroupPlace(places[0].file, places[0].unit, places[0].start, places=places, offsets=tuple(offsets)[:-1])

    def row_failed(self, number: int, step: str, error: BaseException) -> Failed[BatchT]:
        """Return the failure of a row by its number in the group."""
        # The last of those that begin there: the others have no rows.
        index = bisect_right(self.offsets, number) - 1
        return Failed(self.batches[index], number - self.offsets[index], step, error)

    def split(self, number: int) -> tuple[Group[BatchT], Group[BatchT]]:
        """Divide before a source row, which is not the first one."""
        index = bisect_right(self.offsets, number) - 1
        batch, within = self.batches[index], number - self.offsets[index]
        left, right = list(self.batches[:index]), list(self.batches[index:])
        moved: dict[int, tuple[BatchT, int]] = {}
        if within:
            halves = (batch.slice(0, within), batch.slice(within, batch.rows.num_rows))
            left.append(halves[0])
            right[0] = halves[1]
            moved = {id(batch): (batch, within)}
        failed: tuple[list[Failed[BatchT]], list[Failed[BatchT]]] = ([], [])
        of_left = {id(one) for one in left}
        for one in self.failed:
            if id(one.batch) in moved:
                is_right = one.number >= within
                half = right[0] if is_right else left[-1]
                failed[is_right].append(Failed(half, one.number - within * is_right, one.step, one.error))
            else:
                failed[id(one.batch) not in of_left].append(one)
        if isinstance(self.rows, list):
            cut = bisect_left(self.rows, number, key=itemgetter(1))
            rest: list[Row] = [(row, of - number) for row, of in self.rows[cut:] if of is not None]
            rows: tuple[pa.RecordBatch | list[Row], pa.RecordBatch | list[Row]] = (self.rows[:cut], rest)
        else:
            rows = (self.rows.slice(0, number), self.rows.slice(number))
        return (
            Group(tuple(left), rows[0], tuple(failed[0]), right[0]),
            Group(tuple(right), rows[1], tuple(failed[1]), self.following),
        )


def join(groups: Sequence[Group[BatchT]]) -> Group[BatchT]:
    """Return one group of several that follow one another."""
    if len(groups) == 1:
        return groups[0]
    batches = tuple(batch for group in groups for batch in group.batches)
    failed = tuple(one for group in groups for one in group.failed)
    return Group(batches, _joined_rows(groups), failed, groups[-1].following)


def _joined_rows(groups: Sequence[Group[BatchT]]) -> pa.RecordBatch | list[Row]:
    joined: list[Row] = []
    arrow: list[pa.RecordBatch] = []
    offset = 0
    for group in groups:
        if isinstance(group.rows, list):
            joined += [(row, of + offset) for row, of in group.rows if of is not None]
        elif group.rows.num_rows or not arrow:
            arrow.append(group.rows)
        offset += group.source_rows
    if not arrow:
        return joined
    return arrow[0] if len(arrow) == 1 else pa.concat_batches(arrow)


def each_alone(batches: Iterable[BatchT]) -> Iterator[Group[BatchT]]:
    """Give each batch as a group, when the one behind it is known."""
    before: BatchT | None = None
    for batch in batches:
        if before is not None:
            yield Group((before,), before.rows, (), batch)
        before = batch
    if before is not None:
        yield Group((before,), before.rows, (), None)


def of_at_least(groups: Iterable[Group[BatchT]], rows: int, most_rows: int) -> Iterator[Group[BatchT]]:
    """Join small groups to such of so many source rows, but never to one of more than `most_rows` or MOST_BYTES_JOINED."""
    held: list[Group[BatchT]] = []
    count, size_bytes = 0, 0
    for group in groups:
        if held and (count + group.source_rows > most_rows or size_bytes + group.source_bytes > MOST_BYTES_JOINED):
            yield join(held)
            held, count, size_bytes = [], 0, 0
        held.append(group)
        count += group.source_rows
        size_bytes += group.source_bytes
        if count >= rows:
            yield join(held)
            held, count, size_bytes = [], 0, 0
    if held:
        yield join(held)


def of_exactly(groups: Iterable[Group[BatchT]], rows: int) -> Iterator[Group[BatchT]]:
    """Give groups of so many rows as steps have made of them; the last has fewer.

    Fewer also has one where the rows that were made of one source row would be divided, where of very many source rows very
    few are left, or where so many source rows would be more than MOST_BYTES_JOINED.
    """
    held: list[Group[BatchT]] = []
    count, source_rows, size_bytes = 0, 0, 0
    for group in groups:
        if held and size_bytes + group.source_bytes > MOST_BYTES_JOINED:
            yield join(held)
            held, count, source_rows, size_bytes = [], 0, 0, 0
        held.append(group)
        size_bytes += group.source_bytes
        count += len(group.rows)
        source_rows += group.source_rows
        if count < rows and source_rows < max(_MOST_HELD, 16 * rows):
            continue
        whole = join(held)
        while (number := _cut(whole, rows)) is not None:
            part, whole = whole.split(number)
            yield part
        if len(whole.rows) >= rows or source_rows >= max(_MOST_HELD, 16 * rows):
            yield whole
            held, count, source_rows, size_bytes = [], 0, 0, 0
        else:
            held, count, source_rows, size_bytes = [whole], len(whole.rows), whole.source_rows, whole.source_bytes
    if held:
        yield join(held)


def _cut(group: Group[BatchT], rows: int) -> int | None:
    """Return before which source row a group is to be divided, so that no more rows lie before it; None: not at all."""
    if len(group.rows) <= rows:
        return None
    if not isinstance(group.rows, list):
        return rows
    number = group.rows[rows][1]
    assert number is not None
    if number != group.rows[0][1]:
        return number
    # All these rows are of the first source row.
    return next((of for _, of in group.rows if of != number), None)


#: Batches of sizes that have no smaller multiple in common are not exact.
_MOST_EXACT_ROWS: Final = MOST_ROWS_OF_A_BATCH


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of some steps, which take batches one after another."""

    steps: Sequence[Step]

    @property
    def rows_at_once(self) -> int:
        """How many rows the row steps do at once."""
        return max((step.concurrency or 1 for step in self.steps if step.input == "row"), default=1)

    @property
    def batches_at_once(self) -> int:
        """How many batches the batch steps do at once."""
        return max((step.concurrency or 1 for step in self.steps if step.input != "row"), default=1)

    @property
    def exact_rows(self) -> int | None:
        """Of how many rows the batches of the first batch step are to be; None where no step says so."""
        sizes = [step.batch_size for step in self.steps if step.batch_size is not None]
        if not sizes:
            return None
        common = math.lcm(*sizes)
        return common if common <= _MOST_EXACT_ROWS else max(sizes)

    @property
    def least_rows(self) -> int:
        """The fewest rows that should be read at a time."""
        return max(self.rows_at_once, self.exact_rows or 1)
