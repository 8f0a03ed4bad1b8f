"""What is done about rows on which a step raises: by default it ends the task. Setting rows apart is in row_isolation.py."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Final, Protocol

import pyarrow as pa

from checkpoint_work.steps.failing.failures import StepFailed
from checkpoint_work.steps.row_steps import Row


@dataclass(frozen=True)
class Part:
    """Some source rows of a batch, in order: their rows, or what row steps have made of them.

    `first` is the number of the first one in the batch, where they are as they came.
    """

    rows: pa.RecordBatch | list[Row]
    first: int = 0

    @cached_property
    def numbers(self) -> Sequence[int]:
        """The numbers of the source rows in the batch. A row step may have made nothing of one: it is none of the part's."""
        if isinstance(self.rows, list):
            return list(dict.fromkeys(number for _, number in self.rows if number is not None))
        return range(self.first, self.first + self.rows.num_rows)

    def halves(self) -> tuple[Part, Part]:
        """Divide between source rows, of which there are at least two."""
        middle = len(self.numbers) // 2
        if isinstance(self.rows, list):
            cut = bisect_left(self.rows, self.numbers[middle], key=itemgetter(1))
            return Part(self.rows[:cut]), Part(self.rows[cut:])
        return Part(self.rows.slice(0, middle), self.first), Part(self.rows.slice(middle), self.first + middle)


#: Takes a part through the steps that are left, up to what is written of it. Raises StepFailed, and CheckpointError.
Finish = Callable[[Part], pa.RecordBatch | None]


class OnRowError(Protocol):
    """How rows that fail are treated."""

    @property
    def names_rows(self) -> bool:
        """Whether errors say which rows they are about. Where one row is looked for among many, that would be in vain."""

    def row_failed(self, number: int, failure: StepFailed) -> None:
        """Take a source row on which a row step raised. Return: the steps go on without it. Raise: that ends the task."""

    def finish(self, whole: Part, finish: Finish) -> Iterator[pa.RecordBatch]:
        """Give what is made of all that is left of a batch, at once or in parts that follow one another."""


class EndTask:
    """The first row that fails ends the task."""

    names_rows: Final = True

    def row_failed(self, _number: int, failure: StepFailed) -> None:
        failure.end_task()

    def finish(self, whole: Part, finish: Finish) -> Iterator[pa.RecordBatch]:
        try:
            made = finish(whole)
        except StepFailed as failure:
            failure.end_task()
        if made is not None:
            yield made


END_TASK: Final = EndTask()
