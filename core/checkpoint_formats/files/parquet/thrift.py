"""Where the fields of a Parquet footer lie. https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md

What they mean is pyarrow's to say: this goes past them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 3, 7, 8, 9, 10, 11, 12
_BOOLEANS: Final = (1, 2)
_WHOLE_NUMBERS: Final = (4, 5, 6)
#: As deep as pyarrow follows.
_DEEPEST: Final = 64
#: Bytes of a number of 64 bits.
_LONGEST_NUMBER: Final = 10


def fields_of(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Give number, begin and end of each field of the struct that the data starts with: of its value, behind the header.

    ValueError or IndexError for what is none.
    """
    at, number = 0, 0
    while header := data[at]:
        at, number = _field(data, at + 1, header, number)
        begin, at = at, _past(data, at, header & 15, 0)
        yield number, begin, at


@dataclass(slots=True)
class Counts:
    """How many structs, and items of lists, some data are made of: by these a reader's memory grows."""

    structs: int = 0
    items: int = 0


def counts_in(data: bytes) -> Counts:
    """Go past the struct that the data starts with, and count. ValueError or IndexError for what is none."""
    counts = Counts()
    _past(data, 0, _STRUCT, 0, counts)
    return counts


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number as it is written, and where it ends. ValueError for one that is longer than any that thrift has."""
    value = 0
    for shift in range(0, 7 * _LONGEST_NUMBER, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number is too long")


def _field(data: bytes, at: int, header: int, before: int) -> tuple[int, int]:
    """Return where the value of a field begins, and the field's number."""
    if header >> 4:
        return at, before + (header >> 4)
    number, at = varint(data, at)
    return at, number >> 1 ^ -(number & 1)


def _past(data: bytes, at: int, kind: int, depth: int, counts: Counts | None = None, *, is_item: bool = False) -> int:
    """Return where a value ends. A boolean is in its field's header, but takes a byte as an item of a list."""
    if depth > _DEEPEST:
        raise ValueError("too deep")
    if kind in _BOOLEANS:
        return at + is_item
    if kind == _BYTE:
        return at + 1
    if kind in _WHOLE_NUMBERS:
        return varint(data, at)[1]
    if kind == _DOUBLE:
        return at + 8
    if kind == _BINARY:
        length, at = varint(data, at)
        return at + length
    if kind in (_LIST, _SET):
        count, item, at = list_header(data, at)
        if counts is not None:
            counts.items += count
        for _ in range(count):
            at = _past(data, at, item, depth + 1, counts, is_item=True)
            if at > len(data):
                raise IndexError(at)
        return at
    if kind == _STRUCT:
        if counts is not None:
            counts.structs += 1
        while header := data[at]:
            at, _ = _field(data, at + 1, header, 0)
            at = _past(data, at, header & 15, depth + 1, counts)
        return at + 1
    raise ValueError(f"no type {kind} in a footer")


def list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """Return how many items a list has, of which type, and where they begin."""
    header = data[at]
    if header >> 4 < 15:
        return header >> 4, header & 15, at + 1
    count, at = varint(data, at + 1)
    return count, header & 15, at
