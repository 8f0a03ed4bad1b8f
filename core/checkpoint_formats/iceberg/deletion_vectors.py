"""Deletion vectors: which rows of one data file are deleted, as a bitmap in a blob of a Puffin file.

Source of the rules: the Iceberg specifications of tables (deletion vectors) and of Puffin files (blob type deletion-vector-v1,
the footer), and the portable 64-bit format of Roaring bitmaps.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from pyroaring import BitMap64

_VECTOR_MAGIC: Final = bytes.fromhex("d1d33964")
_PUFFIN_MAGIC: Final = b"PFA1"
#: The field id of the position of a row in its file.
_POSITION: Final = 2147483645
#: A length before the bitmap and its magic, and a checksum after them.
_NUMBER_BYTES: Final = 4


class BlobPlace(NamedTuple):
    """Where a blob lies in its file, in bytes."""

    offset: int
    length: int


def as_bitmap(positions: np.ndarray[Any, Any]) -> BitMap64:
    return BitMap64(positions.astype(np.uint64))


def encode(rows: BitMap64) -> bytes:
    """Return the blob of a vector."""
    rows.run_optimize()
    data = _VECTOR_MAGIC + rows.serialize()
    return len(data).to_bytes(_NUMBER_BYTES, "big") + data + zlib.crc32(data).to_bytes(_NUMBER_BYTES, "big")


def decode(blob: bytes) -> BitMap64:
    """Return the rows of a vector. ValueError if the blob is not a whole one."""
    data, checksum = blob[_NUMBER_BYTES:-_NUMBER_BYTES], blob[-_NUMBER_BYTES:]
    if len(data) != int.from_bytes(blob[:_NUMBER_BYTES], "big") or not data.startswith(_VECTOR_MAGIC):
        raise ValueError("it is no deletion vector")
    if zlib.crc32(data) != int.from_bytes(checksum, "big"):
        raise ValueError("its checksum is wrong")
    return BitMap64.deserialize(data[len(_VECTOR_MAGIC) :])


def puffin_of(vectors: Mapping[str, BitMap64]) -> tuple[bytes, dict[str, BlobPlace]]:
    """Return a Puffin file of the vectors of these data files, and where each lies in it."""
    body = bytearray(_PUFFIN_MAGIC)
    places: dict[str, BlobPlace] = {}
    blobs: list[dict[str, object]] = []
    for data_file, rows in vectors.items():
        blob = encode(rows)
        places[data_file] = BlobPlace(len(body), len(blob))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [_POSITION],
                "snapshot-id": -1,  # inherited
                "sequence-number": -1,
                "offset": len(body),
                "length": len(blob),
                "properties": {"referenced-data-file": data_file, "cardinality": str(len(rows))},
            }
        )
        body += blob
    footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
    flags = bytes(4)
    body += _PUFFIN_MAGIC + footer + len(footer).to_bytes(_NUMBER_BYTES, "little") + flags + _PUFFIN_MAGIC
    return bytes(body), places
