"""The objects with the exact keys of rows that are sealed: Parquet of a source number and the values of the key columns.

Several can be put together in one, as they are:

    the Parquet objects, one after the other
    the bytes of each, their number (eight bytes each, the lowest first), and b"CWKEYS01"

So the operator, which does that, reads no Parquet that a driver has written: of a few megabytes of it there may be any number of
gigabytes.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.records import KeysObject
from checkpoint_protocol.store.parts import digest_of

_TOGETHER: Final = b"CWKEYS01"
_LENGTH_BYTES: Final = 8


def write_object(keys: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(keys, buffer, compression="zstd", use_dictionary=["source"], write_statistics=False)
    return buffer.getvalue()


def put_together(objects: Iterable[bytes]) -> bytes:
    """Return one object with the keys of several, any of which may be such an object itself. Corrupt if that is not whole."""
    pieces = [piece for data in objects for piece in _pieces_of(data)]
    return b"".join([*pieces, struct.pack(f"<{len(pieces) + 1}Q", *map(len, pieces), len(pieces)), _TOGETHER])


def _pieces_of(data: bytes) -> Sequence[memoryview]:
    whole = memoryview(data)
    if not data.endswith(_TOGETHER):
        return [whole]
    end = len(data) - len(_TOGETHER) - _LENGTH_BYTES
    count = int.from_bytes(data[max(0, end) : end + _LENGTH_BYTES], "little") if end >= 0 else 0
    begin = end - count * _LENGTH_BYTES
    lengths = struct.unpack_from(f"<{count}Q", data, begin) if begin >= 0 else ()
    if not lengths or sum(lengths) != begin:
        raise Corrupt(reasons.RECORD_UNREADABLE, "an object with the keys of several objects lacks some of its parts")
    pieces, at = [], 0
    for length in lengths:
        pieces.append(whole[at : at + length])
        at += length
    return pieces


def read_object(data: bytes) -> pa.Table:
    return pa.concat_tables([pq.read_table(pa.BufferReader(piece)) for piece in _pieces_of(data)])


def check_sealed(item: KeysObject, data: bytes | None, where: str) -> bytes:
    """Return the bytes of a sealed object. Corrupt, naming it, if it is gone (None) or not what was sealed."""
    if data is None:
        raise _touched(where, "is gone")
    if len(data) != item.size_bytes:
        raise _touched(where, f"has {len(data)} bytes, and was sealed with {item.size_bytes}")
    if item.digest is not None and digest_of(data) != item.digest:
        raise _touched(where, "has another digest than what was sealed")
    return data


def read_sealed(item: KeysObject, data: bytes | None, where: str) -> pa.Table:
    """Return the keys of a sealed object. Corrupt, naming it, if it is gone (None) or not what was sealed."""
    table = read_object(check_sealed(item, data, where))
    if table.num_rows != item.rows:
        raise _touched(where, f"has {table.num_rows} keys, and was sealed with {item.rows}")
    return table


def _touched(where: str, what: str) -> Corrupt:
    return Corrupt(reasons.RECORD_UNREADABLE, f"{where} {what}: sealed keys must not be touched; find out who may write there")
