"""Random Arrow types, nested up to some depth, and values of them, as Python has them."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

#: Names that some library takes for something else: paths, indexes, quotes, two that differ in case, none at all.
NAMES: Final = ("a", "b", "A", "a.b", ".a", "[0]", "x y", "größe", '"', "'", "element", "key", "value", "𝒳", "list", "null")
TEXTS: Final = ("", "a", "ä" * 16, "𝒳" * 17, "null", "NaN", "\x00", "a\x00", "\\N", " ", "1.5", "x" * 300, "\u2028", "\ufeff")
MORE: Final = 0.25

_UTC: Final = datetime.UTC
_EPOCH: Final = datetime.datetime(1970, 1, 1)

Value = Callable[[random.Random], Any]


def _integer(low: int, high: int) -> Value:
    return lambda of: of.choice([low, high, 0, 1, of.randint(low, high), max(low, -1)])


def _float32(of: random.Random) -> float:
    return of.choice([0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 3.4028234663852886e38, 1e-45, 16777216.0])


def _float64(of: random.Random) -> float:
    return of.choice([_float32(of), 1e300, -1e300, 5e-324, 0.1, of.uniform(-1e9, 1e9)])


def decimals(precision: int, scale: int) -> Value:
    def value(of: random.Random) -> Decimal:
        unscaled = of.choice([0, 1, -1, 10**precision - 1, 1 - 10**precision, of.randrange(10**precision)])
        # Not scaleb, which rounds to 28 digits.
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))

    return value


def _moment(zone: datetime.tzinfo | None, unit_us: int = 1) -> Value:
    def value(of: random.Random) -> datetime.datetime:
        made = of.choice(
            [
                datetime.datetime(1, 1, 2),
                datetime.datetime(9999, 12, 30, 23, 59, 59, 999_999),
                _EPOCH,
                datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),
                datetime.datetime(2026, 3, 29, 1, 30, 0, of.randrange(1_000_000)),
            ]
        )
        return made.replace(microsecond=made.microsecond // unit_us * unit_us, tzinfo=zone)

    return value


def _bytes(of: random.Random) -> bytes:
    return of.choice([b"", b"a", b"\x00", b"a\x00", b"\xff\xfe", bytes(300), of.randbytes(16)])


def _day(of: random.Random) -> datetime.date:
    return of.choice([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(1970, 1, 1), datetime.date(2026, 2, 28)])


def _time(of: random.Random) -> datetime.time:
    return of.choice([datetime.time(), datetime.time(23, 59, 59, 999_999), datetime.time(12, 0, 0, 1)])


#: Types that a table of Iceberg and one of Lance may have, with values.
OF_BOTH: Final[dict[pa.DataType, Value]] = {
    pa.bool_(): lambda of: of.random() < 0.5,
    pa.int32(): _integer(-(2**31), 2**31 - 1),
    pa.int64(): _integer(-(2**63), 2**63 - 1),
    pa.float32(): _float32,
    pa.float64(): _float64,
    pa.decimal128(9, 2): decimals(9, 2),
    pa.decimal128(38, 0): decimals(38, 0),
    pa.decimal128(38, 38): decimals(38, 38),
    pa.date32(): _day,
    pa.time64("us"): _time,
    pa.timestamp("us"): _moment(None),
    pa.timestamp("us", "UTC"): _moment(_UTC),
    pa.string(): lambda of: of.choice(TEXTS),
    pa.binary(): _bytes,
    pa.binary(3): lambda of: of.randbytes(3),
}
OF_ICEBERG: Final = OF_BOTH | {pa.uuid(): lambda of: of.randbytes(16)}
OF_LANCE: Final = OF_BOTH | {
    pa.int8(): _integer(-128, 127),
    pa.int16(): _integer(-(2**15), 2**15 - 1),
    pa.uint8(): _integer(0, 255),
    pa.uint16(): _integer(0, 2**16 - 1),
    pa.uint32(): _integer(0, 2**32 - 1),
    pa.uint64(): _integer(0, 2**64 - 1),
    pa.timestamp("ms"): _moment(None, 1_000),
    pa.timestamp("s", "UTC"): _moment(_UTC, 1_000_000),
    pa.duration("us"): lambda of: datetime.timedelta(microseconds=of.randint(-(10**15), 10**15)),
    pa.large_string(): lambda of: of.choice(TEXTS),
    pa.large_binary(): _bytes,
}


def field_of(of: random.Random, name: str, leaves: dict[pa.DataType, Value], depth: int, *, maps: bool = True) -> pa.Field:
    """Return a random field: required or optional, plain or nested up to `depth` deep."""
    return pa.field(name, type_of(of, leaves, depth, maps=maps), nullable=of.random() < 0.7)


def type_of(of: random.Random, leaves: dict[pa.DataType, Value], depth: int, *, maps: bool = True) -> pa.DataType:
    kind = "plain" if depth == 0 else of.choice(["plain", "list", "struct", *(["map"] if maps else [])])
    match kind:
        case "list":
            return pa.list_(field_of(of, "element", leaves, depth - 1, maps=maps))
        case "struct":
            names = of.sample(NAMES, of.randint(1, 3))
            return pa.struct([field_of(of, name, leaves, depth - 1, maps=maps) for name in names])
        case "map":
            keys = of.choice([key for key in leaves if not pa.types.is_floating(key) and not isinstance(key, pa.UuidType)])
            return pa.map_(keys, field_of(of, "value", leaves, depth - 1, maps=maps))
    return of.choice(list(leaves))


def value_of(of: random.Random, field: pa.Field, leaves: dict[pa.DataType, Value]) -> Any:
    """Return a value of the field: a dict for a struct, pairs for a map, bytes for a UUID."""
    if field.nullable and of.random() < MORE:
        return None
    kind = field.type
    if pa.types.is_struct(kind):
        return {part.name: value_of(of, part, leaves) for part in kind}
    if pa.types.is_map(kind):
        keys = {repr(key): key for key in (leaves[kind.key_type](of) for _ in range(of.randint(0, 3)))}
        return [(key, value_of(of, kind.item_field, leaves)) for key in keys.values()]
    if pa.types.is_nested(kind):
        return [value_of(of, kind.value_field, leaves) for _ in range(of.randint(0, 3))]
    return leaves[kind](of)
