"""The rows of one Parquet file in bounded memory, with their numbers; and which columns are worth a dictionary."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkpoint_protocol.places.source_paths import locate
from checkpoint_protocol.records.inputs import SourceFile

#: As nanoseconds, old Spark's timestamps (INT96) before 1677 and after 2262 would become others, without a word.
INT96_UNIT: Final = "us"
_DECODE_ROWS: Final = 65_536
_DECODE_BYTES: Final = 16 << 20
#: Small row groups are read together, so that a file of many does not give a chunk for each.
_TOGETHER_BYTES: Final = 32 << 20
#: From a bucket, the column chunks of this many bytes are fetched at once; more than that is streamed.
_FETCH_BYTES: Final = 128 << 20
_SMALLEST_BUFFER_BYTES: Final = 256 << 10
_LARGEST_BUFFER_BYTES: Final = 8 << 20


def open_parquet(opened: pa.NativeFile, file: SourceFile, columns: int) -> pq.ParquetFile:
    """Open for reading in bounded memory: by small buffers on disk, by few large requests from a bucket."""
    groups = max(1, len(file.cuts))
    fetch = locate(file.path).root != "" and file.size_bytes // groups <= _FETCH_BYTES
    buffer_bytes = max(_SMALLEST_BUFFER_BYTES, min(_LARGEST_BUFFER_BYTES, _FETCH_BYTES // max(1, columns)))
    return pq.ParquetFile(
        opened,
        pre_buffer=fetch,
        buffer_size=0 if fetch else buffer_bytes if locate(file.path).root else _SMALLEST_BUFFER_BYTES,
        coerce_int96_timestamp_unit=INT96_UNIT,
        page_checksum_verification=True,  # where the writer put some, as Spark does
    )


def row_group_starts(metadata: pq.FileMetaData) -> tuple[int, ...]:
    """Return the number of the first row of each row group that has rows."""
    starts, rows = [], 0
    for group in range(metadata.num_row_groups):
        rows_in_group = metadata.row_group(group).num_rows
        if rows_in_group:
            starts.append(rows)
        rows += rows_in_group
    return tuple(starts)


def nearest_start(starts: Sequence[int], end: int, position: int, slack: int) -> int:
    """Return the first row of the row group (or the file's end) that is nearest to a row, if it is within the slack.

    Else the row itself: any will do, but what begins inside a row group fetches and decodes it from its beginning. A file of one
    large row group must still be shared out among the cores, since what takes time is the steps.
    """
    index = bisect_left(starts, position)
    after = starts[index] if index < len(starts) else end
    before = starts[index - 1] if index else after
    nearest = before if position - before < after - position else after
    return nearest if abs(nearest - position) <= slack else position


def row_batches(
    parquet: pq.ParquetFile,
    start: int,
    end: int,
    columns: Sequence[str],
    may_take: Callable[[pq.RowGroupMetaData], bool] = lambda group: True,
) -> Iterator[tuple[pa.RecordBatch | None, int, int]]:
    """Give the rows start..end without gaps, in batches of bounded size, each with the positions that it covers.

    None in the place of a batch stands for rows that are not read, because `may_take` says no of their row group.
    ValueError where fewer rows come than the footer says: Arrow takes an empty first page of a list for its end.
    """
    for groups, first, after, bytes_a_row in _runs(parquet.metadata, start, end, may_take):
        if not groups:
            yield None, max(first, start), min(after, end)
            continue
        decoded = parquet.iter_batches(
            batch_size=max(1, min(_DECODE_ROWS, _DECODE_BYTES // bytes_a_row)),
            row_groups=groups,
            columns=list(columns),
            use_threads=False,  # each task has one core
        )
        for batch in decoded:
            begin, stop = max(first, start), min(first + batch.num_rows, end)
            if begin < stop:
                yield batch.slice(begin - first, stop - begin), begin, stop
            first += batch.num_rows
            if first >= end:
                break
        if first < min(after, end):
            raise ValueError(f"rows {first} to {min(after, end) - 1} are missing, which it has as its footer says")


def _runs(
    metadata: pq.FileMetaData, start: int, end: int, may_take: Callable[[pq.RowGroupMetaData], bool]
) -> Iterator[tuple[list[int], int, int, int]]:
    """Give the row groups that hold rows of start..end, small neighbours together; no groups for those that are passed over.

    With each run come the positions of its first row and after its last, and its mean bytes a row, as stored without
    compression.
    """
    run: list[int] = []
    run_first = run_rows = run_bytes = 0
    first = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        rows, size_bytes = group.num_rows, group.total_byte_size
        if rows and first < end and first + rows > start:
            is_wanted = may_take(group)
            if run and (not is_wanted or run_bytes + size_bytes > _TOGETHER_BYTES):
                yield run, run_first, run_first + run_rows, max(1, run_bytes // run_rows)
                run, run_rows, run_bytes = [], 0, 0
            if is_wanted:
                if not run:
                    run_first = first
                run.append(number)
                run_rows, run_bytes = run_rows + rows, run_bytes + size_bytes
            else:
                yield [], first, first + rows, 1
        first += rows
    if run:
        yield run, run_first, run_first + run_rows, max(1, run_bytes // run_rows)


# Which columns of a Parquet file are worth a dictionary. Pure.
#
# Arrow's writer begins a dictionary for every column and gives it up only when it has grown to a megabyte: a column of distinct
# values pays for a hash table, and for an index beside each value. Here some of the rows tell beforehand, by the rule of
# Parquet's Java writer after its first page: a dictionary is kept where it and its indices are smaller than the values.


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
