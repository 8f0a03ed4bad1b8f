"""Which types the columns of CSV files have: taken once from samples, then fixed for the epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_spark.sources.failures import unreadable
from checkpoint_spark.sources.parsing import LARGE_INTEGERS


def infer_types(
    path: str, sample: pa.Table, given: Mapping[str, pa.DataType], texts_of: Callable[[Sequence[str]], pa.Table]
) -> dict[str, pa.DataType]:
    """Return the types of a sample's columns, wide enough for values like those seen.

    `texts_of` gives columns of the same rows as text.
    """
    types: dict[str, pa.DataType] = {}
    numbers = [field.name for field in sample.schema if field.name not in given and _is_number(field.type)]
    texts = texts_of(numbers) if numbers else None
    for name in sample.schema.names:
        types[name] = given[name] if name in given else _wide_type(sample.column(name))
        if texts is not None and name in numbers:
            types[name] = _number_type(sample.column(name), texts.column(name))
        if name not in given and pa.types.is_binary(types[name]):
            raise unreadable(
                path, f"the column {name!r} has text that is not UTF-8", f"convert the file, or set source.types.{name}: binary"
            )
    return types


def merge_types(samples: Iterable[Mapping[str, pa.DataType]]) -> dict[str, pa.DataType]:
    """Return for each column the type that holds the values of all samples; text where nothing else does."""
    merged: dict[str, pa.DataType] = {}
    for sample in samples:
        for name, kind in sample.items():
            merged[name] = reduce(_common_type, (kind, merged[name])) if name in merged else kind
    return {name: pa.string() if pa.types.is_null(kind) else kind for name, kind in merged.items()}


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _number_type(column: pa.ChunkedArray, texts: pa.ChunkedArray) -> pa.DataType:
    """Return the type of a column that pyarrow takes for numbers: text where it reads another number than is written there.

    It reads 0xffffffffffffffff as -1, and 12e4567 (of a column of hashes, say) as infinite.
    """

    def which(pattern: str) -> pa.ChunkedArray:
        return pc.fill_null(pc.match_substring_regex(texts, pattern), False)

    if pa.types.is_integer(column.type):
        return pa.string() if pc.any(which(r"^\s*[+-]?0[xX]")).as_py() else column.type
    if pc.any(pc.and_(pc.fill_null(pc.is_inf(column), False), which("[0-9]"))).as_py():
        return pa.string()
    if pc.all(pc.or_(which(r"^\s*[+-]?[0-9]+\s*$"), pc.is_null(texts))).as_py():
        return LARGE_INTEGERS if not pc.any(which("[1-9][0-9]{38}")).as_py() else pa.string()
    return column.type


def _wide_type(column: pa.ChunkedArray) -> pa.DataType:
    """Return the type for a column: a sample without fractions of seconds does not mean that there are none."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        ns = pc.cast(pc.cast(column, pa.timestamp("ns", kind.tz)), pa.int64()) if kind.unit == "ns" else None
        in_us = ns is None or pc.all(pc.equal(pc.subtract(ns, pc.multiply(pc.divide(ns, 1000), 1000)), 0)).as_py() is not False
        return pa.timestamp("us" if in_us else "ns", kind.tz)
    return pa.time64("us") if pa.types.is_time(kind) else kind


def _common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    kinds = pa.types
    if one == other or kinds.is_null(other):
        return one
    if kinds.is_null(one):
        return other
    if all(_is_number(kind) for kind in (one, other)):
        return pa.float64()
    if {one, other} == {pa.int64(), LARGE_INTEGERS}:
        return LARGE_INTEGERS
    times = [kind for kind in (one, other) if kinds.is_timestamp(kind)]
    if len(times) == 2 and one.tz == other.tz:
        return pa.timestamp("ns", one.tz)
    if len(times) == 1 and times[0].tz is None and (kinds.is_date(one) or kinds.is_date(other)):
        return times[0]
    return pa.string()
