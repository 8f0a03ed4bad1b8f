"""Rows that fail are found alone, and set apart from those that work.

A row step tells by itself on which row it raised. A batch step is called again on the halves of its batch, and so on, until what
it raises on is a single source row; the rows that work keep their order. So a batch step may be called several times on one row:
what it does outside of the table happens at least once, as after a crash.

What is not the fault of a row ends the task as ever: columns that the table does not have, in all of several rows; what is
no batch; no memory; a missing module. A batch that fails as a whole while both of its halves work has no row that failed.

Handed to the engine with onRowError: Quarantine only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_work.steps.failing.failures import StepFailed, WrongResult
from checkpoint_work.steps.failing.row_errors import Finish, Part
from checkpoint_work.steps.values.schema_cast import ValueMismatch

#: The label of what is no step: making the steps' results fit the table.
OUTPUT: Final = "(output)"

#: Takes the number of a source row within its batch, the label of the step, and what it raised. May raise: too many have failed.
SetApart = Callable[[int, str, BaseException], None]


@dataclass(frozen=True, slots=True)
class RowIsolation:
    """Each source row is either in what is given or told to `set_apart`, with all that was made of it.

    Where nothing fails each step is called once.
    """

    set_apart: SetApart

    @property
    def names_rows(self) -> bool:
        return False

    def row_failed(self, number: int, failure: StepFailed) -> None:
        if not _may_be_of_a_row(failure.error):
            failure.end_task()
        self.set_apart(number, failure.step.label, failure.error)

    def finish(self, whole: Part, finish: Finish) -> Iterator[pa.RecordBatch]:
        parts = [whole]
        while parts:
            part = parts.pop()
            try:
                made = finish(part)
            except StepFailed as failure:
                if not _may_be_of_a_row(failure.error):
                    failure.end_task()
                step, error = failure.step.label, failure.error
            except NeedsChange as incompatibility:
                affects_all_rows = part is whole and len(part.numbers) > 1 and not isinstance(incompatibility, ValueMismatch)
                if incompatibility.reason != reasons.OUTPUT_SCHEMA_WRONG or affects_all_rows:
                    raise
                step, error = OUTPUT, incompatibility
            else:
                if made is not None:
                    yield made
                continue
            if len(part.numbers) == 1:
                self.set_apart(part.numbers[0], step, error)
            else:
                parts += reversed(part.halves())


def _may_be_of_a_row(error: BaseException) -> bool:
    """Whether a row may be at fault. So it is for sys.exit, and for a panic; an interrupt may come from outside."""
    # torch has an OutOfMemoryError of its own, which is a RuntimeError.
    return (
        not isinstance(error, MemoryError | ImportError | WrongResult | KeyboardInterrupt)
        and type(error).__name__ != "OutOfMemoryError"
    )
