"""How much an Avro file stands for is told before anything is made of it, whatever packs its blocks."""

from __future__ import annotations

import bz2
import json
import zlib
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pytest

from checkpoint_formats.iceberg.bounded.avro import MAGIC, TooLarge, measure

SYNC = bytes(range(16))
MEMORY: Final = 1 << 30
PACK: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "bzip2": bz2.compress,
    "zstandard": lambda data: pa.compress(data, "zstd", asbytes=True),
    "snappy": lambda data: pa.compress(data, "snappy", asbytes=True) + bytes(4),
}


def number(value: int) -> bytes:
    value, data = (value << 1) ^ (value >> 63), b""
    while value > 0x7F:
        value, data = value >> 7, data + bytes([value & 0x7F | 0x80])
    return data + bytes([value])


def text(data: bytes) -> bytes:
    return number(len(data)) + data


def container(codec: str, *blocks: bytes, records: int = 0, schema: object = "null") -> bytes:
    entries = text(b"avro.codec") + text(codec.encode()) + text(b"avro.schema") + text(json.dumps(schema).encode())
    header = MAGIC + number(2) + entries + number(0) + SYNC
    return header + b"".join(number(records) + text(PACK[codec](block)) + SYNC for block in blocks)


@pytest.mark.parametrize("codec", PACK)
def test_what_is_unpacked_is_counted_over_all_blocks(codec: str) -> None:
    data = container(codec, bytes(600), bytes(400), records=1)

    measure(data, 1_000, 2, MEMORY)
    with pytest.raises(TooLarge, match="999 bytes"):
        measure(data, 999, 2, MEMORY)
    with pytest.raises(TooLarge, match="1 records"):
        measure(data, 1_000, 1, MEMORY)


def record(**fields: object) -> dict[str, object]:
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


SUMMARY = record(contains_null="boolean", contains_nan=["null", "boolean"], lower_bound=["null", "bytes"])
A_SUMMARY = b"\0" + number(1) + b"\0" + number(0)
COUNTS = {"type": "array", "items": record(key="int", value="long"), "logicalType": "map"}
BOUNDS = {"type": "array", "items": record(key="int", value="bytes"), "logicalType": "map"}
ITEMS: Final[dict[str, tuple[object, bytes, int]]] = {
    "records": ({"type": "array", "items": SUMMARY}, A_SUMMARY, 300),
    "counts": (COUNTS, number(1 << 40) + number(-7), 80),
    "bounds": (BOUNDS, number(300) + text(b"abc"), 80),
    "numbers": ({"type": "array", "items": "long"}, number(1 << 62), 80),
    "texts": ({"type": "array", "items": "string"}, text(b"x"), 80),
    "a map": ({"type": "map", "values": "double"}, text(b"x") + bytes(8), 300),
    "fixed": ({"type": "array", "items": {"type": "fixed", "size": 3, "name": "f"}}, bytes(3), 80),
}


@pytest.mark.parametrize("kind", ITEMS)
def test_items_of_lists_and_maps_are_counted_wherever_they_are_nested(kind: str) -> None:
    schema, item, each = ITEMS[kind]
    value = number(1_500) + item * 1_500 + number(-2) + number(2 * len(item)) + item * 2 + number(0)
    row = number(1) + value + number(5)
    data = container("deflate", row * 3, records=3, schema=record(first=["null", schema], second="int"))

    taken = measure(data, 1 << 20, 3, MEMORY)

    assert taken == 3 * 1_200 + 3 * 1_502 * each + len(row) * 3 * 2
    assert measure(data, 1 << 20, 3, taken) == taken
    with pytest.raises(TooLarge, match=f"{taken - 1:,} bytes of memory"):
        measure(data, 1 << 20, 3, taken - 1)


def test_items_without_bytes_are_refused_before_they_are_looked_for() -> None:
    data = container("null", number(1 << 60) + number(0), records=1, schema={"type": "array", "items": "null"})

    with pytest.raises(TooLarge, match="bytes of memory"):
        measure(data, 100, 1, MEMORY)


@pytest.mark.parametrize(
    ("schema", "block"),
    [
        (record(self="r"), b"\0"),
        (["null", "int"], number(2)),
        (["null", "int"], number(-1)),
        (COUNTS, number(3) + number(1)),
        ({"type": "array", "items": "long"}, number(2) + b"\xff" * 12),
        ("string", number(9) + b"x"),
        ("string", number(-1)),
    ],
)
def test_what_is_no_value_of_its_schema_is_no_file_of_a_table(schema: object, block: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        measure(container("null", block, records=1, schema=schema), 100, 1, MEMORY)


def test_entries_of_a_header_may_come_with_their_size() -> None:
    entry = text(b"avro.codec") + text(b"deflate")
    entries = number(-1) + number(len(entry)) + entry + number(1) + text(b"avro.schema") + text(b'"null"') + number(0)
    header = MAGIC + entries + SYNC

    with pytest.raises(TooLarge):
        measure(header + number(1) + text(PACK["deflate"](bytes(2_000))) + SYNC, 1_000, 10, MEMORY)


@pytest.mark.parametrize("codec", PACK)
def test_what_is_cut_off_is_no_avro_file(codec: str) -> None:
    data = container(codec, bytes(600))

    for length in range(len(data) - 1, 4, -7):
        if length == len(data) - len(SYNC) - len(text(PACK[codec](bytes(600)))) - 1:
            continue  # that is a header without blocks
        with pytest.raises((ValueError, OSError, zlib.error)):
            measure(data[:length], 10_000, 10, MEMORY)
