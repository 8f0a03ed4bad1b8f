"""Whole files as rows: images, PDFs, and whatever else the steps take apart."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from checkpoint_formats.failures import unreadable, vanished
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.numbering import empty_chunk
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.port import NOTHING_TAKEN, Chunk, Described, SourceFilesReader, TakenColumns
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.plain_types import as_plain
from checkpoint_formats.rows.where import Filter
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.where import Condition, columns_of
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

#: A task has a content several times: as it was read, as the steps' value, and in the file that is staged.
MOST_CONTENT_BYTES: Final = 1 << 30

_CONTENT: Final = "content"
_COLUMNS: Final = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("etag", pa.string()),
        ("modified", pa.timestamp("us", "UTC")),
        (_CONTENT, pa.binary()),
    ]
)
#: What may be wrong with one file alone.
_ABOUT_ONE_FILE: Final = (reasons.CREDENTIALS_REFUSED, reasons.SOURCE_UNREADABLE)


class BinaryReader(SourceFilesReader):
    """A file has one row, which is known by number: 0. What its columns say besides the content is as the input was fixed.

    The content is read only where it is asked for, and where the rest does not say that `where` leaves the file out. One that
    cannot be read, though the file is there, is a row that failed.
    """

    def __init__(self, columns: Sequence[str] | None, files: SourceFiles, condition: Condition | None = None) -> None:
        self._columns = columns
        self._files = files
        # A condition on the content itself cannot spare reading it.
        self._condition = None if condition is None or _CONTENT in columns_of(condition) else condition

    def check(self, file: FoundFile) -> None:
        """Any file is of the format."""

    def describe(self, found: Sequence[FoundFile], taken: TakenColumns = NOTHING_TAKEN) -> Described:
        new = (file for file in found if file.path not in taken)
        described = tuple(file.as_source("rows", 1, modified_us=file.modified_us) for file in new)
        names = [name for name in self._columns or _COLUMNS.names if name in _COLUMNS.names]
        schema = pa.schema([_COLUMNS.field(name) for name in names])
        return Described(described, schema, f"source file {found[0].path}", tuple(_COLUMNS.names))

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        self._files.check_unchanged(file)
        if piece.start == piece.end or not self._may_be_taken(file, schema):
            yield empty_chunk(piece, schema)
            return
        content: bytes | None = None
        if _CONTENT in schema.names:
            try:
                content = self._read_content(file)
            except NeedsChange as error:
                if error.reason not in _ABOUT_ONE_FILE:
                    raise
                # Where the store refuses us altogether, it does not tell of the file either.
                self._files.check_unchanged(file)
                nothing = pa.RecordBatch.from_pylist([], schema=schema)
                yield Chunk(nothing, piece.start, piece.end, failed=error)
                return
        yield Chunk(_row(file, schema, content), piece.start, piece.end)

    def _may_be_taken(self, file: SourceFile, schema: pa.Schema) -> bool:
        if self._condition is None:
            return True
        return len(Filter(self._condition, schema).take(_row(file, schema, None))) > 0

    def _read_content(self, file: SourceFile) -> bytes:
        if file.size_bytes > MOST_CONTENT_BYTES:
            raise unreadable(
                file.path,
                f"it has {file.size_bytes:,} bytes, and a content may have {MOST_CONTENT_BYTES:,}",
                "set onRowError: Quarantine to set it apart, or, as long as nothing is sealed, leave it out (source.where: "
                f"size <= {MOST_CONTENT_BYTES}), or read its path only (source.columns) and open the file in a step",
            )
        content = self._files.read_range(file.path, 0, file.size_bytes)
        if len(content) != file.size_bytes:
            raise vanished(file.path)
        return content


def _row(file: SourceFile, schema: pa.Schema, content: bytes | None) -> pa.RecordBatch:
    """Return the row of a file under a schema, which may have columns of other sources: they are NULL."""
    arrays = {
        "path": pa.array([file.path], _COLUMNS.field("path").type),
        "size": pa.array([file.size_bytes], _COLUMNS.field("size").type),
        "etag": pa.array([file.etag], _COLUMNS.field("etag").type),
        "modified": pa.array([file.modified_us], _COLUMNS.field("modified").type),
        _CONTENT: _of_content(content),
    }
    return as_plain(pa.RecordBatch.from_pydict({name: arrays[name] for name in _COLUMNS.names if name in schema.names}), schema)


def _of_content(content: bytes | None) -> pa.Array:
    """Return the value as a column. It is not copied: there may be a gigabyte of it."""
    if content is None:
        return pa.nulls(1, pa.binary())
    offsets = pa.py_buffer(struct.pack("=ii", 0, len(content)))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(content)])
