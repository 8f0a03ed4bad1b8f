"""Output that belongs to rows which are there already: each of its rows has the address of one.

A stager that wants it has the column in its schema. The steps do not see it: the engine puts in it which row of its batch a row
was made of, and the task makes an address of that.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

#: As Lance calls it, which has no column of that name. The fragment is in the upper half, the place in it in the lower one.
ROW_ADDRESS: Final = "_rowaddr"
ADDRESS_FIELD: Final = pa.field(ROW_ADDRESS, pa.uint64(), nullable=False)
_PLACE_BITS: Final = np.uint64(32)
_PLACE: Final = np.uint64(0xFFFF_FFFF)

Addresses = np.ndarray[tuple[int], np.dtype[np.uint64]]


def addresses_of(fragment: int, places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Addresses:
    """Return the addresses of rows of a fragment by their places in it."""
    made: Addresses = (np.uint64(fragment) << _PLACE_BITS) | places.astype(np.uint64)
    return made


def fragments_of(addresses: Addresses) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return (addresses >> _PLACE_BITS).astype(np.int64)


def places_of(addresses: Addresses) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return (addresses & _PLACE).astype(np.int64)


def asks_for_addresses(schema: pa.Schema | None) -> bool:
    return schema is not None and schema.get_field_index(ROW_ADDRESS) >= 0


def without_addresses(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != ROW_ADDRESS])
