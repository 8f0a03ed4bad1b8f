"""Times among Python values, of which pyarrow would lose a part without a word: of several kinds at once, and nanoseconds."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa


def refuse_mixed_times(values: Iterable[Any], found: pa.DataType, name: str = "") -> None:
    """Refuse dates beside times, and times with a zone beside those without: pyarrow would take all for the kind of the first."""
    if not holds_times(found):
        return
    kinds: dict[str, set[str]] = {}
    for value in values:
        for path, kind in _kinds_of_times(value, ""):
            kinds.setdefault(path, set()).add(kind)
    for path, mixed in kinds.items():
        if len(mixed) > 1:
            place = f"{name}{path}"
            raise ValueError(f"{f'{place!r} has ' if place else ''}{' and '.join(sorted(mixed))} beside one another")


def holds_times(kind: pa.DataType) -> bool:
    return (
        pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or any(holds_times(kind.field(number).type) for number in range(kind.num_fields))
    )


def _kinds_of_times(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Give the kind of each time in a value, with the field that it lies in."""
    if isinstance(value, datetime.datetime):
        if value == value:  # not pandas' NaT
            yield path, "times with a zone" if value.tzinfo is not None else "times without a zone"
    elif isinstance(value, datetime.date):
        yield path, "dates"
    elif isinstance(value, dict):
        for field, part in value.items():
            yield from _kinds_of_times(part, f"{path}.{field}")
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _kinds_of_times(part, path)


def has_nanoseconds(value: object) -> bool:
    if isinstance(value, datetime.datetime):
        return bool(getattr(value, "nanosecond", 0))  # pandas' Timestamp
    if isinstance(value, dict):
        return any(map(has_nanoseconds, value.values()))
    return isinstance(value, list | tuple) and any(map(has_nanoseconds, value))


def in_nanoseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(in_nanoseconds(field.type)) for field in kind])
    return pa.list_(in_nanoseconds(kind.value_type)) if pa.types.is_list(kind) else kind
