"""Whether what a table has is what was given: the rule of the judge, which shares no code with the product.

A value is the same if nobody who reads it could tell that another was given: numbers by their value, times by their moment and
by whether they have a zone, floats by their bits.
"""

from __future__ import annotations

import datetime
import math
import struct
import uuid
from collections.abc import ItemsView, KeysView, ValuesView
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

_LISTS: Final = (list, tuple, set, frozenset, np.ndarray, KeysView, ValuesView, ItemsView)


def is_same(given: Any, got: Any, kind: pa.DataType) -> bool:
    """`given` is anything that a step may give; `got` what a reader found in a column of type `kind`."""
    if isinstance(given, pa.Scalar):
        given = given.as_py()
    if isinstance(given, np.generic) and not isinstance(given, np.datetime64 | np.timedelta64):
        is_float = isinstance(given, np.float32) and pa.types.is_floating(kind)
        given = float(given) if is_float else given.item()
    if given is None or got is None:
        return given is None and got is None
    if pa.types.is_struct(kind):
        return _same_struct(given, got, kind)
    if pa.types.is_map(kind):
        return _same_map(given, got, kind)
    if pa.types.is_nested(kind):
        return (
            isinstance(given, _LISTS)
            and len(given) == len(got)
            and all(is_same(one, other, kind.value_type) for one, other in zip(given, got, strict=True))
        )
    return _same_plain(given, got, kind)


def _same_struct(given: Any, got: Any, kind: pa.DataType) -> bool:
    if not isinstance(given, dict):
        return False
    names = [field.name for field in kind]
    return set(given) <= set(names) and all(is_same(given.get(field.name), got[field.name], field.type) for field in kind)


def _same_map(given: Any, got: Any, kind: pa.DataType) -> bool:
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, _LISTS) or len(pairs) != len(got):
        return False
    return all(
        isinstance(pair, tuple | list)
        and len(pair) == 2
        and is_same(pair[0], key, kind.key_type)
        and is_same(pair[1], item, kind.item_type)
        for pair, (key, item) in zip(pairs, got, strict=True)
    )


def _same_plain(given: Any, got: Any, kind: pa.DataType) -> bool:
    match given:
        case bool():
            return got is given
        case int():
            return type(got) in (int, float, Decimal) and got == given
        case float():
            return _same_float(given, got, kind)
        case Decimal():
            return isinstance(got, Decimal) and given == got
        case str():
            return isinstance(got, str) and got == given
        case uuid.UUID():
            return bool(_bytes_of(got) == given.bytes)
        case bytes() | bytearray() | memoryview():
            return bool(_bytes_of(got) == bytes(given))
        case datetime.datetime():
            return _same_moment(given, got)
        case datetime.date():
            if isinstance(got, datetime.datetime):
                return got == datetime.datetime(given.year, given.month, given.day)
            return isinstance(got, datetime.date) and got == given
        case datetime.time():
            return isinstance(got, datetime.time) and given.tzinfo is None and got == given
        case datetime.timedelta():
            return isinstance(got, datetime.timedelta) and bool(got == given) and _nanoseconds(given) == _nanoseconds(got)
        case np.datetime64():
            return isinstance(got, datetime.date) and np.datetime64(getattr(got, "asm8", got)) == given
    return False


def _bytes_of(got: Any) -> Any:
    """Return the bytes of a UUID, which Arrow gives as such, or as its text where it lies in other values."""
    return uuid.UUID(str(got)).bytes if isinstance(got, uuid.UUID | str) else got


def _same_float(given: float, got: Any, kind: pa.DataType) -> bool:
    if not isinstance(got, float):
        return False
    if math.isnan(given) or math.isnan(got):
        return math.isnan(given) and math.isnan(got)
    if pa.types.is_float32(kind) and not math.isinf(given):
        # A float32 is the nearest one; what has no near one is not to be infinity.
        return not math.isinf(got) and np.float32(given) == np.float32(got) and _sign(given) == _sign(got)
    return struct.pack(">d", given) == struct.pack(">d", got)


def _sign(value: float) -> float:
    return math.copysign(1.0, value)


def _same_moment(given: datetime.datetime, got: Any) -> bool:
    if not isinstance(got, datetime.datetime) or (given.tzinfo is None) != (got.tzinfo is None):
        return False
    return given == got and _nanoseconds(given) == _nanoseconds(got)


def _nanoseconds(value: Any) -> int:
    return int(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0))
