"""Which columns of a Parquet file are worth a dictionary. Pure.

Arrow's writer begins a dictionary for every column and gives it up only when it has grown to a megabyte: a column of distinct
values pays for a hash table, and for an index beside each value. Here some of the rows tell beforehand, by the rule of Parquet's
Java writer after its first page: a dictionary is kept where it and its indices are smaller than the values.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_SAMPLE_ROWS: Final = 20_000


def not_worth_a_dictionary(rows: pa.Table) -> frozenset[str]:
    """Return the top-level columns whose values are too distinct, in the first rows. Nested columns are left to the writer."""
    sample = rows.slice(0, _SAMPLE_ROWS)
    return frozenset(name for name, column in zip(sample.column_names, sample.columns, strict=True) if not _is_worth(column))


def _is_worth(column: pa.ChunkedArray) -> bool:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    values = len(column) - column.null_count
    if pa.types.is_nested(column.type) or not values:
        return True
    distinct = pc.count_distinct(column, mode="only_valid").as_py()
    value_bytes = _size_bytes(column) / values
    index_bytes = max(1, (distinct - 1).bit_length()) / 8
    return bool(distinct * value_bytes + values * index_bytes < values * value_bytes)


def _size_bytes(column: pa.ChunkedArray) -> int:
    """Return what the values take without a dictionary: as in Parquet, four bytes of length before text."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type) or _is_large(column.type):
        return int((pc.sum(pc.binary_length(column)).as_py() or 0) + 4 * (len(column) - column.null_count))
    return int(column.nbytes)


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))
