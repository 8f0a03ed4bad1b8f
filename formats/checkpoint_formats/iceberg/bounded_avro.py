"""How much an Avro file stands for, before anybody makes records of it.

The form is that of the Avro specification ("Object Container Files"): a header, and blocks that say how many records they have,
each of them packed by itself.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

#: What an Avro file begins with.
MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_CHUNK_BYTES: Final = 1 << 20


class TooLarge(Exception):
    """A file that stands for more than is allowed."""


def measure(data: bytes, most_bytes: int, most_records: int) -> None:
    """Raise TooLarge for a file with more records, or more bytes when it is unpacked, ValueError for one that is none."""
    reader = _Reader(data)
    if reader.take(len(MAGIC)) != MAGIC:
        raise ValueError("it does not begin as an Avro file")
    codec = _codec_of(reader)
    reader.take(_SYNC_BYTES)
    length = records = 0
    while not reader.is_at_end:
        records += reader.number()
        if records > most_records:
            raise TooLarge(f"{most_records:,} records")
        block = reader.take(reader.number())
        reader.take(_SYNC_BYTES)
        for unpacked in _UNPACKERS.get(codec, _as_it_is)(block):
            length += unpacked
            if length > most_bytes:
                raise TooLarge(f"{most_bytes:,} bytes")


def _codec_of(reader: _Reader) -> bytes:
    codec = b"null"
    while count := reader.number():
        if count < 0:  # then the bytes of these entries follow
            count = -count
            reader.number()
        for _ in range(min(count, reader.left)):
            name, value = reader.take(reader.number()), reader.take(reader.number())
            if name == b"avro.codec":
                codec = value
    return codec


class _Reader:
    """Goes through bytes once; ValueError behind their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    @property
    def is_at_end(self) -> bool:
        return not self.left

    def take(self, count: int) -> bytes:
        if not 0 <= count <= self.left:
            raise ValueError("it is cut off")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self) -> int:
        value = self.unsigned()
        return (value >> 1) ^ -(value & 1)

    def unsigned(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("it has a number that is too long")


def _as_it_is(block: bytes) -> Iterator[int]:
    yield len(block)


def _deflated(block: bytes) -> Iterator[int]:
    unpacker = zlib.decompressobj(-15)
    while block and not unpacker.eof:
        yield len(unpacker.decompress(block, _CHUNK_BYTES))
        block = unpacker.unconsumed_tail


def _by_bzip2(block: bytes) -> Iterator[int]:
    unpacker = bz2.BZ2Decompressor()
    while not unpacker.eof:
        yield len(unpacker.decompress(block, _CHUNK_BYTES))
        if unpacker.needs_input and not unpacker.eof:
            raise ValueError("a block is cut off")
        block = b""


def _by_zstandard(block: bytes) -> Iterator[int]:
    with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield len(chunk)


def _by_snappy(block: bytes) -> Iterator[int]:
    yield _Reader(block).unsigned()  # it begins with that


_UNPACKERS: Final[dict[bytes, Callable[[bytes], Iterator[int]]]] = {
    b"deflate": _deflated,
    b"bzip2": _by_bzip2,
    b"zstandard": _by_zstandard,
    b"snappy": _by_snappy,
}
