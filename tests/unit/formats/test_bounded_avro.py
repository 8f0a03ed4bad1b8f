"""How much an Avro file stands for is told before anything is made of it, whatever packs its blocks."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pytest

from checkpoint_formats.iceberg.bounded_avro import MAGIC, TooLarge, measure

SYNC = bytes(range(16))
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


def container(codec: str, *blocks: bytes, records: int = 1) -> bytes:
    header = MAGIC + number(1) + text(b"avro.codec") + text(codec.encode()) + number(0) + SYNC
    return header + b"".join(number(records) + text(PACK[codec](block)) + SYNC for block in blocks)


@pytest.mark.parametrize("codec", PACK)
def test_what_is_unpacked_is_counted_over_all_blocks(codec: str) -> None:
    data = container(codec, bytes(600), bytes(400))

    measure(data, 1_000, 2)
    with pytest.raises(TooLarge, match="999 bytes"):
        measure(data, 999, 2)
    with pytest.raises(TooLarge, match="1 records"):
        measure(data, 1_000, 1)


def test_entries_of_a_header_may_come_with_their_size() -> None:
    entry = text(b"avro.codec") + text(b"deflate")
    header = MAGIC + number(-1) + number(len(entry)) + entry + number(0) + SYNC

    with pytest.raises(TooLarge):
        measure(header + number(1) + text(PACK["deflate"](bytes(2_000))) + SYNC, 1_000, 10)


@pytest.mark.parametrize("codec", PACK)
def test_what_is_cut_off_is_no_avro_file(codec: str) -> None:
    data = container(codec, bytes(600))

    for length in range(len(data) - 1, 4, -7):
        if length == len(data) - len(SYNC) - len(text(PACK[codec](bytes(600)))) - 1:
            continue  # that is a header without blocks
        with pytest.raises((ValueError, OSError, zlib.error)):
            measure(data[:length], 10_000, 10)
