"""Parquet files by row number."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest import Source
from checkpoint_protocol.positions import Range
from checkpoint_protocol.records import SourceFile
from checkpoint_spark.pace import Pace
from checkpoint_spark.sources.chunks import Chunk
from checkpoint_spark.sources.failures import changed, reading, unreadable
from checkpoint_spark.sources.files import SourceFiles, for_each
from checkpoint_spark.sources.locations import FoundFile, locate
from checkpoint_spark.sources.numbering import empty_chunk
from checkpoint_spark.sources.plain_types import as_plain, plain_schema

_PROBLEM: Final = "it cannot be read as Parquet"
_WAY_OUT: Final = "replace or remove it, or let the path match the Parquet files only (folder/*.parquet)"

_DECODE_ROWS: Final = 65_536
_DECODE_BYTES: Final = 16 << 20
#: Small row groups are read together, so that a file of many does not give a chunk for each.
_TOGETHER_BYTES: Final = 32 << 20
#: From a bucket, the column chunks of this many bytes are fetched at once; more than that is streamed.
_FETCH_BYTES: Final = 128 << 20
_SMALLEST_BUFFER_BYTES: Final = 256 << 10
_LARGEST_BUFFER_BYTES: Final = 8 << 20
#: As nanoseconds, old Spark's timestamps (INT96) before 1677 and after 2262 would become others, without a word.
_INT96_UNIT: Final = "us"
#: A split may begin this part of the file later than asked, if it then begins at a row group.
_SHIFT: Final = 1 / 100


@dataclass(frozen=True, slots=True)
class _Footer:
    rows: int
    cuts: tuple[int, ...]
    schema: pa.Schema


class ParquetReader:
    """Positions are row numbers. The columns of all files have the same names and types, in any order."""

    def __init__(self, source: Source, files: SourceFiles) -> None:
        self._columns = source.columns
        self._files = files

    def describe(self, paths: Sequence[str]) -> tuple[tuple[SourceFile, ...], pa.Schema]:
        found = self._files.expand(paths)
        footers = for_each(self._read_footer, found)
        schema = self._wanted(found[0].path, footers[0].schema)
        for file, footer in zip(found, footers, strict=True):
            _check_same(found[0].path, schema, file.path, self._wanted(file.path, footer.schema))
        described = tuple(
            SourceFile(path=file.path, etag=file.etag, size_bytes=file.size_bytes, unit="rows", end=footer.rows, cuts=footer.cuts)
            for file, footer in zip(found, footers, strict=True)
        )
        return described, schema

    def align(self, file: SourceFile, position: int) -> int:
        """Any row will do, but a split that begins inside a row group decodes and drops what is before it.

        So the next row group is taken if it is near. Not if it is far: a file of one large row group must still be shared out
        among the cores, since what takes time is the steps.
        """
        end = file.end or 0
        index = bisect_left(file.cuts, position)
        cut = file.cuts[index] if index < len(file.cuts) else end
        return cut if cut - position <= end * _SHIFT else position

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, pace: Pace) -> Iterator[Chunk]:
        self._files.check_unchanged(file)
        if piece.start == piece.end:
            yield empty_chunk(piece, schema)
            return
        with reading(file.path, _PROBLEM, _WAY_OUT):
            for batch, start in self._batches(file, piece, schema):
                offset = 0
                while offset < batch.num_rows:
                    rows = min(pace.rows, batch.num_rows - offset)
                    yield Chunk(batch.slice(offset, rows), start + offset, start + offset + rows)
                    offset += rows

    def check_unchanged(self, file: SourceFile) -> None:
        self._files.check_unchanged(file)

    def _read_footer(self, file: FoundFile) -> _Footer:
        with reading(file.path, _PROBLEM, _WAY_OUT), self._files.open_arrow(file.path) as opened:
            with pq.ParquetFile(opened, coerce_int96_timestamp_unit=_INT96_UNIT) as parquet:
                metadata, schema = parquet.metadata, parquet.schema_arrow
            cuts, rows = [], 0
            for group in range(metadata.num_row_groups):
                rows_in_group = metadata.row_group(group).num_rows
                if rows_in_group:
                    cuts.append(rows)
                rows += rows_in_group
        return _Footer(rows, tuple(cuts), plain_schema(schema))

    def _wanted(self, path: str, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the columns that are asked for."""
        twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
        if twice is not None:
            raise unreadable(path, f"it has two columns {twice!r}", "rename one of them")
        if not schema.names:
            raise unreadable(path, "it has no columns", _WAY_OUT)
        if self._columns is None:
            return schema
        for name in self._columns:
            if name not in schema.names:
                raise unreadable(path, f"it has no column {name!r} (it has {', '.join(schema.names)})", "correct source.columns")
        return pa.schema([schema.field(name) for name in self._columns])

    def _batches(self, file: SourceFile, piece: Range, schema: pa.Schema) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Give the rows of the piece in batches of bounded size, each with the position of its first row."""
        with self._files.open_arrow(file.path) as opened, _open(opened, file, len(schema)) as parquet:
            if parquet.metadata.num_rows != file.end:
                raise changed(file.path, f"it had {file.end} rows and has {parquet.metadata.num_rows}")
            end = parquet.metadata.num_rows if piece.end is None else piece.end
            for groups, first, bytes_a_row in _runs(parquet.metadata, piece.start, end):
                decoded = parquet.iter_batches(
                    batch_size=max(1, min(_DECODE_ROWS, _DECODE_BYTES // bytes_a_row)),
                    row_groups=groups,
                    columns=schema.names,
                    use_threads=False,  # each task has one core
                )
                for batch in decoded:
                    start, stop = max(first, piece.start), min(first + batch.num_rows, end)
                    if start < stop:
                        yield as_plain(batch.slice(start - first, stop - start), schema), start
                    first += batch.num_rows
                    if first >= end:
                        break


def _open(opened: pa.NativeFile, file: SourceFile, columns: int) -> pq.ParquetFile:
    """Open for reading in bounded memory: by small buffers on disk, by few large requests from a bucket."""
    groups = max(1, len(file.cuts))
    fetch = locate(file.path).root != "" and file.size_bytes // groups <= _FETCH_BYTES
    buffer_bytes = max(_SMALLEST_BUFFER_BYTES, min(_LARGEST_BUFFER_BYTES, _FETCH_BYTES // columns))
    return pq.ParquetFile(
        opened,
        pre_buffer=fetch,
        buffer_size=0 if fetch else buffer_bytes if locate(file.path).root else _SMALLEST_BUFFER_BYTES,
        coerce_int96_timestamp_unit=_INT96_UNIT,
        page_checksum_verification=True,  # where the writer put some, as Spark does
    )


def _runs(metadata: pq.FileMetaData, start: int, end: int) -> Iterator[tuple[list[int], int, int]]:
    """Give the row groups that hold rows of start..end, small neighbours together.

    With each run come the position of its first row and its mean bytes a row, as stored without compression.
    """
    run: list[int] = []
    run_first = run_rows = run_bytes = 0
    first = 0
    for group in range(metadata.num_row_groups):
        rows, size_bytes = metadata.row_group(group).num_rows, metadata.row_group(group).total_byte_size
        if rows and first < end and first + rows > start:
            if run and run_bytes + size_bytes > _TOGETHER_BYTES:
                yield run, run_first, max(1, run_bytes // run_rows)
                run, run_rows, run_bytes = [], 0, 0
            if not run:
                run_first = first
            run.append(group)
            run_rows, run_bytes = run_rows + rows, run_bytes + size_bytes
        first += rows
    if run:
        yield run, run_first, max(1, run_bytes // run_rows)


def _check_same(first_path: str, expected: pa.Schema, path: str, schema: pa.Schema) -> None:
    for name in (*expected.names, *schema.names):
        here = schema.field(name).type if name in schema.names else None
        there = expected.field(name).type if name in expected.names else None
        if here != there:
            raise NeedsChange(
                reasons.SOURCE_UNREADABLE,
                f"source file {path} {_has(name, here)}, and {first_path} {_has(name, there)}; all files of a write must have "
                "the same columns: rewrite one of them, leave the column out by source.columns, or use one write for each kind",
            )


def _has(name: str, kind: pa.DataType | None) -> str:
    return f"has no column {name!r}" if kind is None else f"has {kind} in the column {name!r}"
