"""Values as people write them in a step: spelled in other ways, and with odd ones among them."""

from __future__ import annotations

import datetime
import random
import uuid
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

_TOKYO = datetime.timezone(datetime.timedelta(hours=9))


class One(IntEnum):
    ONE = 1


_ODD: Final[tuple[Any, ...]] = (
    *(1.5, 7.9, 1e300, 2**24 + 1.5, float("nan"), np.float32(0.1), np.float64(2.5), np.int64(3), np.uint64(2**63), One.ONE),
    *(True, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**38, 1, 0, -1, 300),
    *("1", "a", "", "true", b"a", b"", b"\xff", bytearray(b"xyz"), memoryview(b"xyz"), uuid.UUID(int=7)),
    *(Decimal("1.234"), Decimal("NaN"), Decimal("Infinity"), Decimal("1E+5"), Decimal("-0.00"), Decimal(10) ** 37),
    *(datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 1, 5, 6, 7, 8)),
    datetime.datetime(2026, 1, 1, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
    *(pd.Timestamp("2026-01-01T00:00:00.000000001"), pd.Timestamp("2026-01-01", tz="Asia/Tokyo"), pd.NaT, pd.NA),
    *(np.datetime64("2026-01-01"), np.datetime64("2026-01-01T00:00:00.000000001"), np.timedelta64(5, "ns")),
    *(datetime.time(1, 2, 3), datetime.time(1, tzinfo=datetime.UTC), datetime.timedelta(days=1), pd.Timedelta(1, "ns")),
    *([], [1], [1.5], ["a", b"a"], [datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1, 5)], (), (1, "a"), {1}, {"a"}),
    *({}, {"a": 1}, {1: 2}, {"a": 1.5, "surplus": 2}, [("a", 1)], [("a", 1.5)], {"a": None}, [(None, 1)], [[]], [{}], [None]),
    *(np.array([1, 2]), np.array([1.5]), np.array(["a"]), np.array([[1]]), np.array(5), object(), 1j),
    *(pa.scalar(5, pa.int8()), pa.scalar(1.5), pa.scalar("a")),
)
#: What may be taken for a value of the type, and is another one, or is none that it has.
_NEAR: Final[tuple[tuple[Callable[[pa.DataType], bool], tuple[Any, ...]], ...]] = (
    (pa.types.is_boolean, (1, 0, 2, "true", 1.0)),
    (pa.types.is_integer, (1.5, 7.9, 2.0, True, "1", Decimal("1.5"), 2**63, 2**64, -1, 300, np.float64(2.5), float("nan"))),
    (pa.types.is_float32, (1e300, -1e300, 2**24 + 1, 2**1023, "1.5", Decimal("0.1"), True)),
    (pa.types.is_float64, (2**53 + 1, -(2**63), "1.5", Decimal("0.1"), True, 10**400)),
    (pa.types.is_decimal, (Decimal("0.12345"), 1.5, 10**38, Decimal("NaN"), Decimal("-Infinity"), "1", 2**64)),
    (pa.types.is_date, (datetime.datetime(2026, 1, 1, 5), datetime.datetime(2026, 1, 1), "2026-01-01", 20454)),
    (
        pa.types.is_timestamp,
        (
            *(datetime.datetime(2026, 1, 1, 5), datetime.datetime(2026, 1, 1, 5, tzinfo=_TOKYO), datetime.date(2026, 1, 1), 1),
            *(pd.Timestamp("2026-01-01T00:00:00.000000001"), datetime.datetime(2026, 1, 1, 5, 0, 0, 1), "2026-01-01"),
        ),
    ),
    (
        pa.types.is_time,
        (datetime.time(1, tzinfo=_TOKYO), datetime.timedelta(hours=1), "01:00", 1, datetime.datetime(2026, 1, 1, 5)),
    ),
    (pa.types.is_duration, (pd.Timedelta(1, "ns"), datetime.time(1), 1, np.timedelta64(5, "ns"), np.timedelta64(5, "s"))),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), (b"a", 1, True, uuid.UUID(int=7), b"\xff")),
    (lambda kind: isinstance(kind, pa.UuidType), (str(uuid.UUID(int=7)), bytes(15), bytes(17), 7)),
    (pa.types.is_fixed_size_binary, (b"", b"ab", b"abcd", "abc", 7)),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), ("a", uuid.UUID(int=7), 7, [1])),
)


def written(of: random.Random, value: Any, field: pa.Field, odds: float) -> Any:
    """Return a value as somebody may write it, with odd ones anywhere in it."""
    kind = field.type
    if of.random() < odds / 4:
        return of.choice(_ODD)
    if of.random() < odds / 4:
        return None
    if value is None:
        return None
    if pa.types.is_struct(kind):
        parts = {part.name: written(of, value[part.name], part, odds) for part in kind}
        return {name: part for name, part in parts.items() if part is not None or of.random() < 0.7}
    if pa.types.is_map(kind):
        pairs = [(key, written(of, item, kind.item_field, odds)) for key, item in value]
        is_dict = of.random() < 0.5 and all(key.__hash__ is not None for key, _ in pairs)
        return dict(pairs) if is_dict else of.choice([list, tuple])(pairs)
    if pa.types.is_nested(kind):
        items = [written(of, item, kind.value_field, odds) for item in value]
        return of.choice([list, tuple])(items)
    if of.random() < odds:
        return of.choice(next(near for is_kind, near in _NEAR if is_kind(kind)))
    return _spelled(of, value, kind)


def _spelled(of: random.Random, value: Any, kind: pa.DataType) -> Any:
    """Return the same plain value in another way."""
    match value:
        case bool() | None:
            return value
        case int() if of.random() < 0.3:
            return np.uint64(value) if value >= 0 else np.int64(value)
        case float() if pa.types.is_float32(kind) and of.random() < 0.3:
            return np.float32(value)
        case bytes() if isinstance(kind, pa.UuidType):
            return of.choice([value, uuid.UUID(bytes=value)])
        case bytes():
            return of.choice([value, bytearray(value), memoryview(value)])
        case datetime.datetime() if value.tzinfo is not None and 1 < value.year < 9999:
            return value.astimezone(of.choice([datetime.UTC, datetime.timezone(datetime.timedelta(hours=-5))]))
        case Decimal() if value == value.to_integral_value() and of.random() < 0.3:
            return int(value)
    return value
