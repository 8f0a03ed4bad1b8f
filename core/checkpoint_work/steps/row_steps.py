"""Row steps: a row goes in as a dict, and none, one or many come out."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

import pyarrow as pa

from checkpoint_work.steps import row_keys
from checkpoint_work.steps.calling.calls import Calls
from checkpoint_work.steps.calling.event_loop import refuse_unawaited
from checkpoint_work.steps.calling.memo_values import Memory, encode, memo_key, rows_of
from checkpoint_work.steps.failing.failures import Raised
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.row_keys import NamedRow
from checkpoint_work.steps.values.taking import row_of

#: A row, and the number of the source row that it was made of; None after a batch step, which does not tell.
Row = tuple[dict[str, Any], int | None]

_MAY_RETURN: Final = (
    "a row step returns a dict, a model, a dataclass or a named tuple (one row), None (no row), or some of them in a list or "
    "generator (several rows)"
)


def call_on_rows(
    calls: Calls, rows: Iterable[tuple[dict[str, Any] | Raised, int | None]], failed: Container[int | None], place: Place
) -> Iterator[tuple[list[dict[str, Any]] | Raised, int | None]]:
    """Give what a row step makes of each row, or what it raised on it, in the order of the rows, each with its source row.

    One row at a time, when it is asked for, and rows of source rows that are among `failed` by then are passed over. A step that
    waits is called on all of them together.
    """
    memory = calls.around.memory if calls.step.memo else None
    convert = rows_of_result if memory is None else partial(_kept, memory)
    asked = (_ask(row, named, memory) for row, named in _named(calls, rows, place))
    if calls.waits:
        all_asked = list(asked)
        called = [one for one in all_asked if one.known is None]
        made = iter(calls.together([one.row for one in called], convert, [one.named for one in called]))
        yield from ((next(made) if one.known is None else one.known, one.named.number) for one in all_asked)
        return
    for one in asked:
        if one.named.number not in failed:
            yield calls.directly(one.row, convert, one.named) if one.known is None else one.known, one.named.number


@dataclass(frozen=True, slots=True)
class _Asked:
    """A row for a step. `known`: what comes of it without a call; None: it is to be called."""

    row: dict[str, Any]
    named: NamedRow
    known: list[dict[str, Any]] | Raised | None


def _ask(row: dict[str, Any] | Raised, named: NamedRow, memory: Memory | None) -> _Asked:
    if isinstance(row, Raised):
        return _Asked({}, named, row)
    if memory is None or (key := memo_key(named, row)) is None:
        return _Asked(row, named, None)
    kept = memory.find(key)
    return _Asked(row, replace(named, memo=key), rows_of(kept) if kept is not None else None)


def _kept(memory: Memory, result: Any) -> list[dict[str, Any]]:
    """Return the rows that a step gives, and keep them."""
    rows, named = rows_of_result(result), row_keys.current.get()
    if named is not None and named.memo is not None and (text := encode(rows)) is not None:
        memory.keep(named.memo, text)
    return rows


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
    """Return the rows that a row step gives for one; what it raises while it is asked for them is raised, and none are kept.

    They are the rows as they are now, whatever the step does with its objects later.
    """
    if (row := row_of(result)) is not None:
        return [row]
    if result is None:
        return []
    refuse_unawaited(result)
    if isinstance(result, str | bytes) or not isinstance(result, Iterable):
        raise TypeError(f"{_MAY_RETURN}; this one returned {_described(result)}")
    made = []
    for one in result:
        if (row := row_of(one)) is None:
            raise TypeError(f"{_MAY_RETURN}; this one returned {_described(result)} with {_described(one)} in it")
        made.append(row)
    return made


def _described(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
