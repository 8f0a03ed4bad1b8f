"""Row steps: a row goes in as a dict, and none, one or many come out."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any, cast

import pyarrow as pa

from checkpoint_spark.steps.calls import Calls
from checkpoint_spark.steps.failures import Raised
from checkpoint_spark.steps.places import Place
from checkpoint_spark.steps.row_keys import NamedRow
from checkpoint_spark.steps.waiting import refuse_unawaited

#: A row, and the number of the source row that it was made of; None after a batch step, which does not tell.
Row = tuple[dict[str, Any], int | None]


def call_on_rows(
    calls: Calls, rows: Iterable[tuple[dict[str, Any] | Raised, int | None]], failed: Container[int | None], place: Place
) -> Iterator[tuple[list[dict[str, Any]] | Raised, int | None]]:
    """Give what a row step makes of each row, or what it raised on it, in the order of the rows, each with its source row.

    One row at a time, when it is asked for, and rows of source rows that are among `failed` by then are passed over. A step that
    waits is called on all of them together.
    """
    if calls.waits:
        given = list(_named(calls, rows, place))
        called = [(row, named) for row, named in given if not isinstance(row, Raised)]
        made = iter(calls.together([row for row, _ in called], rows_of_result, [named for _, named in called]))
        yield from ((row if isinstance(row, Raised) else next(made), named.number) for row, named in given)
        return
    for row, named in _named(calls, rows, place):
        if named.number not in failed:
            yield row if isinstance(row, Raised) else calls.directly(row, rows_of_result, named), named.number


def _named(
    calls: Calls, rows: Iterable[tuple[dict[str, Any] | Raised, int | None]], place: Place
) -> Iterator[tuple[dict[str, Any] | Raised, NamedRow]]:
    before, ordinal = None, 0
    for row, number in rows:
        ordinal = ordinal + 1 if number == before else 0
        before = number
        yield row, NamedRow(calls.around.write, calls.step.label, place, number, ordinal)


def rows_as_python(batch: pa.RecordBatch) -> Iterator[dict[str, Any] | Raised]:
    """Give each row as a dict; in place of one that Python cannot hold (text that is no UTF-8, the year 10000), why not."""
    try:
        rows: Iterable[dict[str, Any] | Raised] = batch.to_pylist()
    except (ValueError, OverflowError):
        rows = (_as_python(batch.slice(number, 1)) for number in range(batch.num_rows))
    yield from rows


def _as_python(row: pa.RecordBatch) -> dict[str, Any] | Raised:
    try:
        (found,) = row.to_pylist()
    except (ValueError, OverflowError) as error:
        return Raised(error)
    return cast(dict[str, Any], found)


def rows_of_result(result: Any) -> list[dict[str, Any]]:
    """Return the rows that a row step gives for one; what it raises while it is asked for them is raised, and none are kept."""
    if isinstance(result, dict):
        return [result]
    if result is None:
        return []
    refuse_unawaited(result)
    made = []
    for one in result:
        if not isinstance(one, dict):
            raise TypeError(f"a row step gives dicts, not {type(one).__name__}")
        made.append(one)
    return made
