"""How much an Avro file stands for, before anybody makes records of it.

The form is that of the Avro specification ("Object Container Files"): a header with the schema, and blocks that say how many
records they have, each of them packed by itself. Some kilobytes can stand for millions of items of lists and maps.
"""

from __future__ import annotations

import bz2
import functools
import json
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import pyarrow as pa

#: What an Avro file begins with.
MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_CHUNK_BYTES: Final = 1 << 20

#: Memory that pyiceberg takes: for each record of the file, for each record in a list, for each item of a list or a map, and for
#: each byte; see tests/contract/test_memory_of_tables.py.
_RECORD, _NESTED, _ITEM, _BYTE = 1_200, 300, 80, 2
#: Numbers that are skipped by one search, which takes memory for each.
_AT_ONCE: Final = 1_000
#: Bytes of a value.
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class TooLarge(Exception):
    """A file that stands for more than is allowed."""


def measure(data: bytes, most_bytes: int, most_records: int, most_memory: int) -> int:
    """Return about how many bytes of memory the records take when pyiceberg decodes them.

    TooLarge for a file with more records, more bytes when it is unpacked, or more memory. ValueError for what is no such file.
    """
    reader, weight = _Reader(data), _Weight(most_memory)
    if reader.take(len(MAGIC)) != MAGIC:
        raise ValueError("it does not begin as an Avro file")
    header = _header_of(reader)
    unpack = _UNPACKERS.get(header.get(b"avro.codec", b"null"), _as_it_is)
    weigh = _weigher(json.loads(header.get(b"avro.schema", b"null")))
    reader.take(_SYNC_BYTES)
    length = records = 0
    while not reader.is_at_end:
        count = reader.number()
        records += count
        if count < 0 or records > most_records:
            raise TooLarge(f"{most_records:,} records")
        block = reader.take(reader.number())
        reader.take(_SYNC_BYTES)
        chunks = []
        for chunk in unpack(block):
            length += len(chunk)
            if length > most_bytes:
                raise TooLarge(f"{most_bytes:,} bytes")
            chunks.append(bytes(chunk))
            weight.add(len(chunk), _BYTE)
        weight.add(count, _RECORD)
        unpacked = _Reader(b"".join(chunks))
        for _ in range(count):
            weigh(unpacked, weight)
    return weight.total


class _Weight:
    def __init__(self, most: int) -> None:
        self._most = most
        self.total = 0

    def add(self, count: int, each: int) -> None:
        self.total += count * each
        if self.total > self._most:
            raise TooLarge(f"{self._most:,} bytes of memory")


def _header_of(reader: _Reader) -> dict[bytes, bytes]:
    header = {}
    while count := reader.number():
        if count < 0:  # then the bytes of these entries follow
            count = -count
            reader.number()
        for _ in range(min(count, reader.left)):
            name = reader.take(reader.number())
            header[name] = reader.take(reader.number())
    return header


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
        self.skip(count)
        return self._data[self._at - count : self._at]

    def skip(self, count: int) -> None:
        if not 0 <= count <= len(self._data) - self._at:
            raise ValueError("it is cut off")
        self._at += count

    def skip_numbers(self, count: int) -> None:
        while count > 0:
            if (found := _numbers(min(count, _AT_ONCE)).match(self._data, self._at)) is None:
                raise ValueError("it is cut off")
            self._at = found.end()
            count -= _AT_ONCE

    def skip_bounds(self, count: int) -> None:
        for _ in range(count):
            self.skip_numbers(1)
            self.skip(self.number())

    def number(self) -> int:
        value = self.unsigned()
        return (value >> 1) ^ -(value & 1)

    def unsigned(self) -> int:
        value = 0
        try:
            for shift in range(0, 70, 7):
                byte = self._data[self._at]
                self._at += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    return value
        except IndexError:
            raise ValueError("it is cut off") from None
        raise ValueError("it has a number that is too long")


@functools.lru_cache
def _numbers(count: int) -> re.Pattern[bytes]:
    """Return what matches as many numbers: the last byte of each is below 0x80."""
    return re.compile(rb"(?:[\x80-\xff]{0,9}[\x00-\x7f]){%d}" % count)


#: Goes over one value, and adds what is nested in it.
_Weigh = Callable[[_Reader, _Weight], None]


def _weigher(schema: Any) -> _Weigh:
    """Return what weighs values of an Avro schema. ValueError for types that no table's metadata have, as recursive ones."""
    if isinstance(schema, list):
        return _weigher_of_union([_weigher(branch) for branch in schema])
    kind = schema.get("type") if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        return _weigher(kind)
    match kind:
        case "record":
            return _weigher_of_record([_weigher(field["type"]) for field in schema["fields"]])
        case "array":
            return _weigher_of_array(schema)
        case "map":
            return _weigher_of_items(_one_by_one(_weigher_of_record([_skip_bytes, _weigher(schema["values"])])), _NESTED)
        case "fixed":
            return _skipper(int(schema["size"]))
        case "int" | "long" | "enum":
            return _skip_number
        case "bytes" | "string":
            return _skip_bytes
        case "null" | "boolean" | "float" | "double":
            return _skipper(_SIZES[kind])
    raise ValueError(f"it has the type {str(kind)[:100]!r}")


def _weigher_of_union(branches: list[_Weigh]) -> _Weigh:
    def weigh(reader: _Reader, weight: _Weight) -> None:
        number = reader.number()
        if not 0 <= number < len(branches):
            raise ValueError("it has a value of no branch of a union")
        branches[number](reader, weight)

    return weigh


def _weigher_of_record(fields: list[_Weigh]) -> _Weigh:
    def weigh(reader: _Reader, weight: _Weight) -> None:
        for field in fields:
            field(reader, weight)

    return weigh


def _weigher_of_array(schema: Any) -> _Weigh:
    # Iceberg writes a map whose keys are no texts as an array of records of a key and a value; pyiceberg makes a dict of it.
    is_record = isinstance(schema["items"], dict) and schema["items"].get("type") == "record"
    each = _NESTED if is_record and schema.get("logicalType") != "map" else _ITEM
    kinds = tuple(field["type"] for field in schema["items"]["fields"]) if is_record else (schema["items"],)
    if all(kind in ("int", "long") for kind in kinds):  # sizes and counts of columns: most of a manifest
        return _weigher_of_items(lambda count, reader, weight: reader.skip_numbers(count * len(kinds)), each)
    if kinds == ("int", "bytes"):  # bounds of columns
        return _weigher_of_items(lambda count, reader, weight: reader.skip_bounds(count), each)
    return _weigher_of_items(_one_by_one(_weigher(schema["items"])), each)


def _one_by_one(item: _Weigh) -> Callable[[int, _Reader, _Weight], None]:
    def weigh(count: int, reader: _Reader, weight: _Weight) -> None:
        for _ in range(count):
            item(reader, weight)

    return weigh


def _weigher_of_items(items: Callable[[int, _Reader, _Weight], None], each: int) -> _Weigh:
    def weigh(reader: _Reader, weight: _Weight) -> None:
        while count := reader.number():
            if count < 0:  # then the bytes of these items follow
                count = -count
                reader.number()
            weight.add(count, each)  # before as many are looked for: an item may have no bytes at all
            items(count, reader, weight)

    return weigh


def _skipper(size: int) -> _Weigh:
    return lambda reader, weight: reader.skip(size)


def _skip_number(reader: _Reader, _: _Weight) -> None:
    reader.unsigned()


def _skip_bytes(reader: _Reader, _: _Weight) -> None:
    reader.skip(reader.number())


class _Chunk(Protocol):
    """A part of a block. Its length is known before it is unpacked."""

    def __len__(self) -> int: ...

    def __bytes__(self) -> bytes: ...


def _as_it_is(block: bytes) -> Iterator[_Chunk]:
    yield block


def _deflated(block: bytes) -> Iterator[_Chunk]:
    unpacker = zlib.decompressobj(-15)
    while block and not unpacker.eof:
        yield unpacker.decompress(block, _CHUNK_BYTES)
        block = unpacker.unconsumed_tail


def _by_bzip2(block: bytes) -> Iterator[_Chunk]:
    unpacker = bz2.BZ2Decompressor()
    while not unpacker.eof:
        yield unpacker.decompress(block, _CHUNK_BYTES)
        if unpacker.needs_input and not unpacker.eof:
            raise ValueError("a block is cut off")
        block = b""


def _by_zstandard(block: bytes) -> Iterator[_Chunk]:
    with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk


def _by_snappy(block: bytes) -> Iterator[_Chunk]:
    yield _Snappy(block)


class _Snappy:
    """Is unpacked at once, or not at all: it begins with the length, and a checksum ends it."""

    def __init__(self, block: bytes) -> None:
        self._block = block

    def __len__(self) -> int:
        return _Reader(self._block).unsigned()

    def __bytes__(self) -> bytes:
        unpacked: bytes = pa.decompress(self._block[:-4], len(self), "snappy", asbytes=True)
        return unpacked


_UNPACKERS: Final[dict[bytes, Callable[[bytes], Iterator[_Chunk]]]] = {
    b"deflate": _deflated,
    b"bzip2": _by_bzip2,
    b"zstandard": _by_zstandard,
    b"snappy": _by_snappy,
}
