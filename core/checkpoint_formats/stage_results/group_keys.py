"""Keys of rows that come together: which can be, in which bucket each lies, and which rows have the same.

Equal means what it does in Spark's GROUP BY: NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0. Buckets lie in stores, so
that what puts a key into one never changes: another rule would be another field of `Grouping`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

Hashes = npt.NDArray[np.uint64]

_OF_NULL: Final = np.uint64(0x9E3779B97F4A7C15)
_KINDS: Final = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_temporal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


def refuse_keys(schema: pa.Schema, by: Sequence[str]) -> None:
    """Raise NeedsChange where rows of these columns cannot come together by the keys."""
    for name in by:
        if schema.names.count(name) != 1:
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"keyBy names the column {name!r}, which the rows do not have (they have {', '.join(schema.names)}); correct "
                "keyBy, or have the stage before give the column",
            )
        kind = schema.field(name).type
        if not any(is_kind(kind) for is_kind in _KINDS) or pa.types.is_interval(kind):
            raise NeedsChange(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"keyBy names the column {name!r} of type {kind}, by which rows cannot be grouped: numbers, texts, bytes, "
                "booleans and times can be keys; have the stage before give one",
            )


def hashes_of(batch: pa.RecordBatch, by: Sequence[str]) -> Hashes:
    """Return a hash of each row's key. The same for equal keys, in every release."""
    found = np.zeros(batch.num_rows, np.uint64)
    for name in by:
        found = _mixed(found * np.uint64(31) + _hashes_of_column(batch.column(name)))
    return found


def codes_of(batch: pa.RecordBatch, by: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return a number for each row: the same for rows of one key, counted from the key that comes first."""
    codes = np.zeros(batch.num_rows, np.int64)
    for name in by:
        column = pc.dictionary_encode(_comparable(batch.column(name)), null_encoding="encode")
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
        codes = pc.dictionary_encode(pa.array(codes)).indices.to_numpy().astype(np.int64)
    return codes


def _comparable(column: pa.Array) -> pa.Array:
    """Return values that are the same bits where they are equal: of floats, their bits."""
    if not pa.types.is_floating(column.type):
        return column
    values = np.asarray(column.cast(pa.float64()).fill_null(0.0))
    values = np.where(np.isnan(values), np.nan, values + 0.0)  # -0.0 + 0.0 is 0.0
    return pa.array(values.view(np.int64), mask=np.asarray(column.is_null()))


def _hashes_of_column(column: pa.Array) -> Hashes:
    column = _comparable(column)
    kind = column.type
    is_null = np.asarray(column.is_null())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        hashes = _mixed(_as_integers(column))
    else:
        encoded = pc.dictionary_encode(column)
        values = encoded.dictionary
        if pa.types.is_decimal(kind):
            values = values.cast(pa.string())
        distinct = np.array([_digest(value) for value in values.to_pylist()], np.uint64)
        hashes = distinct[encoded.indices.fill_null(0).to_numpy()] if len(distinct) else np.zeros(len(column), np.uint64)
    return np.where(is_null, _OF_NULL, hashes)


def _as_integers(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    if not pa.types.is_uint64(column.type):
        column = column.cast(pa.int64())
    return np.asarray(column.fill_null(0)).view(np.uint64)


def _digest(value: str | bytes) -> int:
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _mixed(values: Hashes) -> Hashes:
    """Spread numbers over all bits (the finalizer of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
