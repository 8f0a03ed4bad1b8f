"""Parquet files by row number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from os.path import realpath
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint_formats.failures import changed, reading, unreadable
from checkpoint_formats.files.file_columns import KeptColumns
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.numbering import empty_chunk
from checkpoint_formats.files.parquet.footers import PROBLEM, WAY_OUT, Footers
from checkpoint_formats.files.source_files import SourceFiles, for_each, streamed_each
from checkpoint_formats.port import NOTHING_TAKEN, Chunk, Described, SourceFilesReader, TakenColumns, in_chunks
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.parquet_rows import nearest_start, open_parquet, row_batches
from checkpoint_formats.rows.plain_types import as_plain, plain_schema
from checkpoint_formats.rows.uniting import UnitedColumns
from checkpoint_formats.rows.where import Filter
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.source import FilesSource
from checkpoint_protocol.manifest.where import Condition
from checkpoint_protocol.places.source_paths import locate
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

_ICEBERG_METADATA: Final = re.compile(r"(?:v[0-9]+|[0-9]{5,}-[0-9a-f-]{36})(?:\.gz)?\.metadata\.json(?:\.gz)?")


@dataclass(frozen=True, slots=True)
class _Kind:
    """A format of tables: what its folders have, and the source that reads it."""

    title: str
    #: Below the table's folder. The first file that is there tells, if `is_its` says so of its name.
    mark: str
    is_its: Callable[[str], bool]
    source: str


_KINDS: Final = (
    _Kind("a Delta table", "_delta_log/", lambda _: True, "source.spark with format: delta"),
    _Kind("a Hudi table", ".hoodie/hoodie.properties", lambda _: True, "source.spark with format: hudi"),
    _Kind(
        "an Iceberg table",
        "metadata/*.metadata.json*",
        lambda name: _ICEBERG_METADATA.fullmatch(name) is not None,
        "source.iceberg",
    ),
)


def refuse_files_of_tables(files: SourceFiles, found: Sequence[FoundFile]) -> None:
    """Raise NeedsChange(SourceUnreadable) for a file below the folder of a table. Folders that nobody may list tell nothing."""
    first: dict[str, str] = {}
    for file in found:
        for folder in _folders_above(file.path):
            if folder in first:
                break
            first[folder] = file.path
    for folder, kind in zip(first, for_each(lambda folder: _table_in(files, folder), list(first)), strict=True):
        if kind is not None:
            raise unreadable(
                first[folder],
                f"{folder} is the folder of {kind.title}, in which files stay whose rows the table has removed or replaced",
                f"read the table by {kind.source}, or copy the files to a folder of their own if all their rows count",
            )


def _folders_above(path: str) -> Iterable[str]:
    """Give the folders that a file lies in, the nearest first."""
    location = locate(path)
    key = location.key if location.root else realpath(location.key)
    while "/" in key:
        key = key.rpartition("/")[0]
        yield location.at(key).text
    if location.root and key:
        yield location.root


def _table_in(files: SourceFiles, folder: str) -> _Kind | None:
    try:
        for kind in _KINDS:
            names = (file.path.rpartition("/")[2] for file in files.find(f"{folder}/{kind.mark}"))
            if any(map(kind.is_its, names)):
                return kind
    except NeedsChange:  # not granted, or refused by the store: the files themselves may be
        return None
    return None


class ParquetReader(SourceFilesReader):
    """Positions are row numbers. The columns of the files are united by name; what a file does not have is NULL in its rows."""

    def __init__(
        self, source: FilesSource, columns: Sequence[str] | None, files: SourceFiles, condition: Condition | None = None
    ) -> None:
        self._is_same = source.schema_rule == "Same"
        self._columns = columns
        self._files = files
        self._condition = condition
        self._footers = Footers(files)

    def check(self, file: FoundFile) -> None:
        self._chosen(file.path, plain_schema(self._footers.read(file).schema))

    def describe(self, found: Sequence[FoundFile], taken: TakenColumns = NOTHING_TAKEN) -> Described:
        # Those that are taken were not below one; of the first, which costs little, that is asked again.
        refuse_files_of_tables(self._files, [file for file in found if file is found[0] or file.path not in taken])
        described: list[SourceFile] = []
        columns, kept = UnitedColumns(is_same=self._is_same), KeptColumns("parquet", taken)
        known: dict[str, None] = {}
        raw, plain = None, pa.schema([])
        last: pa.Schema | None = None
        # A file at a time: the footers of a million files would not all fit.
        footers = streamed_each(self._footers.read, [file for file in found if kept.of_taken(file.path) is None])
        for file in found:
            here = kept.of_taken(file.path)
            if here is None:
                footer = next(footers)
                if footer.schema is not raw:
                    raw, plain = footer.schema, plain_schema(footer.schema)
                here = plain
            if here is not last:
                if last is None or not here.equals(last, check_metadata=True):
                    columns.add(f"source file {file.path}", self._chosen(file.path, here))
                    known |= dict.fromkeys(here.names)
                last = here
            if file.path not in taken:
                described.append(file.as_source("rows", footer.rows, cuts=footer.cuts, columns=kept.digest_of(here)))
        return Described(tuple(described), columns.schema, f"source file {found[0].path}", tuple(known), file_columns=kept.found)

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        return nearest_start(file.cuts, file.end or 0, position, slack)

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        self._files.check_unchanged(file)
        if piece.start == piece.end:
            yield empty_chunk(piece, schema)
            return
        with (
            reading(file.path, PROBLEM, WAY_OUT, self._files.settings_place),
            self._files.open_arrow(file.path) as opened,
            open_parquet(opened, file, len(schema)) as parquet,
        ):
            if parquet.metadata.num_rows != file.end:
                raise changed(file.path, f"it had {file.end} rows and has {parquet.metadata.num_rows}")
            end = parquet.metadata.num_rows if piece.end is None else piece.end
            present = parquet.schema_arrow.names
            names = [name for name in schema.names if name in present]
            for batch, start, stop in row_batches(parquet, piece.start, end, names, self._may_take(schema)):
                yield from in_chunks(None if batch is None else as_plain(batch, schema), start, stop, schema, sizing)

    def _may_take(self, schema: pa.Schema) -> Callable[[pq.RowGroupMetaData], bool]:
        """Return whether a row group may have rows that the condition takes; the others need not be read."""
        if self._condition is None:
            return lambda group: True
        rows, names = Filter(self._condition, schema), {name: name for name in schema.names}
        return lambda group: rows.may_take(group, names)

    def _chosen(self, path: str, schema: pa.Schema) -> pa.Schema:
        """Return those columns of a file that are asked for."""
        twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
        if twice is not None:
            raise unreadable(path, f"it has two columns {twice!r}", "rename one of them")
        if not schema.names:
            raise unreadable(path, "it has no columns", WAY_OUT)
        if self._columns is None:
            return schema
        return pa.schema([schema.field(name) for name in self._columns if name in schema.names])
