"""Rows that fail are found alone, and set apart from those that work.

A row step tells by itself on which row it raised. A batch step is called again on the halves of its batch, and so on, until what
it raises on is a single source row; the rows that work keep their order. So a batch step may be called several times on one row:
what it does outside of the table happens at least once, as after a crash.

What is not the fault of a row ends the task as ever: columns that the table does not have, in all of several rows; what is
no batch; no memory; a missing module. A batch that fails as a whole while both of its halves work has no row that failed.

Called by staging.py, with onRowError: Quarantine only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Final, TypeVar

import pyarrow as pa

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.manifest import Step
from checkpoint_spark.new_table_types import TypesByName
from checkpoint_spark.schema_cast import ValueMisfit, fit
from checkpoint_spark.steps import (
    Pipeline,
    Place,
    Row,
    WrongResult,
    as_declared,
    call_on_batch,
    call_on_row,
    code_failed,
    declared_output,
    rows_as_python,
    to_arrow,
)

#: The label of what is no step: making the steps' results fit the table.
OUTPUT: Final = "(output)"

#: Takes the number of a source row within its batch, the label of the step, and what it raised. May raise: too many have failed.
SetApart = Callable[[int, str, BaseException], None]

_Step = tuple[Step, Callable[..., Any]]
_Made = TypeVar("_Made")


class _RowsFailed(Exception):
    """A step raised on the rows that it was given, and one of them may be at fault."""

    def __init__(self, step: str, error: BaseException) -> None:
        super().__init__(step)
        self.step = step
        self.error = error


def apply_apart(
    pipeline: Pipeline,
    batch: pa.RecordBatch,
    place: Place,
    schema: pa.Schema | None,
    set_apart: SetApart,
    types: TypesByName | None = None,
) -> Iterator[pa.RecordBatch]:
    """Give what the steps make of a batch, fitted to the table, without the rows that fail: these are told to `set_apart`.

    Each row is either in what is given or set apart, with all that was made of it; where nothing fails each step is called once.
    `types` takes down the types that a new table is to have for what is given.
    Raises NeedsChange as Pipeline.apply and fit do for what is not the fault of a row.
    """
    if batch.num_rows == 0:
        return
    leading = list(takewhile(lambda made: made[0].input == "row", pipeline.steps))
    rest = pipeline.steps[len(leading) :]
    before = leading[-1][0] if leading else None
    if leading:
        pipeline.begin(leading[0][0], place, batch.num_rows)
    given = _row_by_row(leading, batch, place, set_apart) if leading else _Given(range(batch.num_rows), batch)
    parts = [(0, len(given.numbers))] if given.numbers else []
    while parts:
        start, stop = parts.pop()
        if types is not None:
            types.begin()
            for leader, _ in leading:
                if (declared := declared_output([leader])) is not None:
                    types.declare(declared)
        try:
            if rest:
                pipeline.begin(rest[0][0], place, batch.num_rows)
            made = _finish(rest, given.part(start, stop), place, schema, before, pipeline.optional, types)
        except _RowsFailed as failed:
            step, error = failed.step, failed.error
        except NeedsChange as incompatibility:
            affects_all_rows = 1 < stop - start == len(given.numbers) and not isinstance(incompatibility, ValueMisfit)
            if incompatibility.reason != reasons.OUTPUT_SCHEMA_WRONG or affects_all_rows:
                raise
            step, error = OUTPUT, incompatibility
        else:
            if made is not None:
                yield made
            continue
        if stop - start == 1:
            set_apart(given.numbers[start], step, error)
        else:
            middle = (start + stop) // 2
            parts += [(middle, stop), (start, middle)]


def schema_without_failures(pipeline: Pipeline, batch: pa.RecordBatch, place: Place) -> pa.Schema:
    """Return the schema of what the steps make of a batch, as `Pipeline.schema_of` does, passing over rows that fail."""
    types = TypesByName(batch.schema)
    for made in apply_apart(pipeline, batch, place, None, lambda _number, _step, _error: None, types):
        return types.of(made)
    return pipeline.schema_of(batch.slice(0, 0), place)


@dataclass(frozen=True, slots=True)
class _Given:
    """What the steps are given, by source row: it is divided between these and nowhere else. `numbers` are theirs."""

    numbers: Sequence[int]
    rows: pa.RecordBatch | list[list[dict[str, Any]]]

    def part(self, start: int, stop: int) -> pa.RecordBatch | list[Row]:
        if isinstance(self.rows, pa.RecordBatch):
            return self.rows.slice(start, stop - start)
        return [(row, None) for made in self.rows[start:stop] for row in made]


def _row_by_row(steps: Sequence[_Step], batch: pa.RecordBatch, place: Place, set_apart: SetApart) -> _Given:
    """Take each source row through the row steps before any batch step. Of one that raises half way nothing is kept."""
    numbers, results = [], []
    for number, row in enumerate(rows_as_python(batch)):
        if isinstance(row, Exception):
            set_apart(number, steps[0][0].label, row)
            continue
        made = [row]
        try:
            for position, (step, function) in enumerate(steps):
                given = _declared_of(steps[position - 1][0], made) if position else made
                made = [one for row in given for one in _on_row(step, function, row, partial(place.of_row, number))]
        except _RowsFailed as failed:
            set_apart(number, failed.step, failed.error)
            continue
        if made:
            numbers.append(number)
            results.append(made)
    return _Given(numbers, results)


def _finish(
    steps: Sequence[_Step],
    pending: pa.RecordBatch | list[Row],
    place: Place,
    schema: pa.Schema | None,
    before: Step | None,
    optional: frozenset[str],
    types: TypesByName | None = None,
) -> pa.RecordBatch | None:
    """Do the rest of the steps, after `before`, and fit the result to the table; None where no rows are left."""
    for step, function in steps:
        if step.input == "row":
            rows = as_declared(pending, before, types=types) if isinstance(pending, list) else None
            given = [row for row, _ in rows] if rows is not None else _rows_of(step, pending)
            pending = [(one, None) for row in given for one in _on_row(step, function, row, partial(_made_of, place))]
        else:
            pending = _on_batch(step, function, to_arrow(pending, None, before, types=types), place, types)
        if len(pending) == 0:
            return None
        before = step
    result = to_arrow(pending, schema, before, optional=optional, types=types, is_last=True)
    if result.num_rows == 0:
        return None
    return result if schema is None else fit(result, schema)


def _rows_of(step: Step, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for row in rows_as_python(batch):
        if isinstance(row, Exception):
            raise _RowsFailed(step.label, row)
        rows.append(row)
    return rows


def _declared_of(step: Step, made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a row step gives the next one; a column that it does not declare is the fault of the row."""
    try:
        return [row for row, _ in as_declared([(row, None) for row in made], step)]
    except NeedsChange as incompatibility:
        raise _RowsFailed(step.label, incompatibility) from None


def _made_of(place: Place) -> str:
    return f"what the steps before made of a batch that begins at {place.of_row(0)}"


def _on_row(step: Step, function: Callable[..., Any], row: dict[str, Any], where: Callable[[], str]) -> list[dict[str, Any]]:
    return _guarded(step, where, lambda: call_on_row(function, row))


def _on_batch(
    step: Step, function: Callable[..., Any], batch: pa.RecordBatch, place: Place, types: TypesByName | None
) -> pa.RecordBatch:
    return _guarded(step, partial(place.of_rows, batch.num_rows), lambda: call_on_batch(step, function, batch, types))


def _guarded(step: Step, where: Callable[[], str], call: Callable[[], _Made]) -> _Made:
    try:
        return call()
    except ValueMisfit as incompatibility:
        raise _RowsFailed(step.label, incompatibility) from None
    except CheckpointError:
        raise
    except BaseException as error:
        if _may_be_of_a_row(error):
            raise _RowsFailed(step.label, error) from None
        raise code_failed(step, where(), error) from error


def _may_be_of_a_row(error: BaseException) -> bool:
    """Whether a row may be at fault. So it is for sys.exit, and for a panic; an interrupt may come from outside."""
    # torch has an OutOfMemoryError of its own, which is a RuntimeError.
    return (
        not isinstance(error, MemoryError | ImportError | WrongResult | KeyboardInterrupt)
        and type(error).__name__ != "OutOfMemoryError"
    )
