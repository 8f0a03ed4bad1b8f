"""Numbers of JSON as they are written: pyarrow makes doubles of all numbers of a field that has one with a point.

Beyond 2^53 a double does not hold every whole number. Where the first rows have one beside numbers with a point, their type is
a decimal; where it comes up later, in a field of doubles that were inferred, it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_formats.files.lines import Lines

_LARGEST_IN_DOUBLE: Final = 1 << 53
_LARGEST_DECIMAL_DIGITS: Final = 38


def has_large_doubles(column: pa.ChunkedArray | pa.Array) -> bool:
    """Whether there is a double at any depth that may have been a whole number beyond 2^53."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    kind = column.type
    if pa.types.is_floating(kind):
        return any((pc.max(pc.abs(chunk)).as_py() or 0) >= _LARGEST_IN_DOUBLE for chunk in chunks)
    if pa.types.is_struct(kind):
        return any(has_large_doubles(part) for chunk in chunks for part in chunk.flatten())
    return pa.types.is_list(kind) and any(has_large_doubles(chunk.flatten()) for chunk in chunks)


def written_rows(lines: Lines) -> Iterator[dict[str, Any]]:
    """Give the objects with numbers as they are written: int without point and exponent, Decimal otherwise."""
    return (row for _, row in written_lines(lines))


def written_lines(lines: Lines) -> Iterator[tuple[int, dict[str, Any]]]:
    """Give each object, as `written_rows` does, with the number of its line among these, from 1."""
    for number, line in enumerate(lines.data[lines.begin : lines.end].split(b"\n"), 1):
        try:
            row = json.loads(line, parse_float=Decimal) if line.strip() else None
        except (ValueError, RecursionError) as error:  # a number of more than 4300 digits, too
            raise pa.ArrowInvalid(str(error)) from error
        if isinstance(row, dict):
            yield number, row


def exact_type(kind: pa.DataType, values: Iterable[Any], path: str) -> pa.DataType:
    """Return the type with decimals in the place of doubles that would round whole numbers. ArrowInvalid if none holds them."""
    present = [value for value in values if value is not None]
    if pa.types.is_struct(kind):
        return pa.struct(
            [
                (field.name, exact_type(field.type, [value.get(field.name) for value in present], f"{path}.{field.name}"))
                for field in kind
            ]
        )
    if pa.types.is_list(kind):
        return pa.list_(exact_type(kind.value_type, [inner for value in present for inner in value], path))
    if not pa.types.is_floating(kind) or (large := _first_rounded(present)) is None:
        return kind
    numbers = [Decimal(value).as_tuple() for value in present]
    scale = max(0, *(-int(number.exponent) for number in numbers))
    whole = max(len(number.digits) + int(number.exponent) for number in numbers)
    if whole + scale > _LARGEST_DECIMAL_DIGITS:
        raise pa.ArrowInvalid(f"field {path!r}: no type holds {large} and its other numbers exactly; float64 rounds it")
    return pa.decimal128(_LARGEST_DECIMAL_DIGITS, scale)


def refuse_rounded(lines: Lines, field: pa.Field) -> None:
    """Raise ArrowInvalid for a whole number in a field of doubles that a double may not hold."""
    for row in written_rows(lines):
        for path, value in _doubles(field.type, row.get(field.name), field.name):
            if _is_rounded(value):
                raise pa.ArrowInvalid(f"field {path!r}: {value} lies beyond 2^53 and would be rounded in a double")


def _doubles(kind: pa.DataType, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Give the values that are read as doubles."""
    if value is None:
        return
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _doubles(field.type, value.get(field.name), f"{path}.{field.name}")
    elif pa.types.is_list(kind):
        for inner in value:
            yield from _doubles(kind.value_type, inner, path)
    elif pa.types.is_floating(kind):
        yield path, value


def _first_rounded(values: Iterable[Any]) -> int | None:
    return next((value for value in values if _is_rounded(value)), None)


def _is_rounded(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > _LARGEST_IN_DOUBLE
