"""Values of JSON as they are written: numbers with all their digits, and what is to be text as text."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
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


# Values of JSON as text: of a field whose type is `string` by source.files.types, numbers, booleans, lists and objects, too.
#
# pyarrow reads a column of strings from strings only. So lines that it refuses are written again, with a string in the place of
# each other value: its JSON text, as it is written in the file.


_SPACE: Final = re.compile(r"[ \t\r\n]*")


def with_texts(lines: Lines, names: Collection[str]) -> Lines:
    """Return the lines with strings in the place of what else is not null in these fields at the top of objects.

    A line that is no object is left as it is: what is wrong with it is then said of what the file has. The same lines come
    back where there is nothing to change.
    """
    given = lines.data[lines.begin : lines.end]
    data = b"".join(_with_texts(line, names) for line in given.splitlines(keepends=True))
    return lines if data == given else Lines(data, 0, len(data), lines.position)


def _with_texts(line: bytes, names: Collection[str]) -> bytes:
    try:
        text = line.decode()
        parts: list[str] = []
        done = 0
        for name, start, end in _fields(text):
            if name in names and text[start] != '"' and text[start:end] != "null":
                parts += [text[done:start], json.dumps(text[start:end], ensure_ascii=False)]
                done = end
    except (ValueError, IndexError, RecursionError):
        return line
    return "".join([*parts, text[done:]]).encode() if parts else line


def _fields(text: str) -> Iterator[tuple[str, int, int]]:
    """Give the fields of an object: the name, and from where to where the value lies. ValueError or IndexError if it is none."""
    at = _after(text, _skip(text, 0), "{")
    if text[at] == "}":
        at += 1
    else:
        while True:
            name, at = _DECODER.raw_decode(text, at)
            start = _after(text, _skip(text, at), ":")
            _, end = _DECODER.raw_decode(text, start)
            yield name, start, end
            at = _skip(text, end)
            if text[at] == "}":
                at += 1
                break
            at = _after(text, at, ",")
    if text[at:].strip():
        raise ValueError("more than one object")


def _after(text: str, at: int, mark: str) -> int:
    """Return the place after a character that has to be there, and after the space that follows."""
    if text[at] != mark:
        raise ValueError(f"{mark} is missing")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


#: Only the ends of numbers are looked for: Python makes no int of 5,000 digits.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)
