"""What the data files of a Lance dataset say of themselves in their footers: rows and columns."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
from lance.file import LanceFileSession

from checkpoint_commit.footers import ROOM
from checkpoint_commit.lance.files.file_schema import FileField, fields_in, fields_of_schema, fields_of_target, is_written_for
from checkpoint_commit.staged_files import FileEnd, Tails
from checkpoint_formats.lance.access import access
from checkpoint_formats.lance.datasets import STORE_FAILED, is_not_found
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable, one_line
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import LanceTarget
from checkpoint_protocol.store.memory import Pool

#: The end of a file: where the metadata of columns begin, where the tables of these and of the buffers do, how many there are.
_END: Final = struct.Struct("<QQQIIHH4s")
_MAGIC: Final = b"LANC"
#: Where a buffer is, and how long. The first one is the schema.
_BUFFER: Final = struct.Struct("<QQ")
_FIRST_BYTES: Final = 64 << 10
_MOST_BYTES: Final = 4 << 20
#: As with Parquet: empty messages of protobuf are objects of some hundred bytes.
_MEMORY_OF_BYTE: Final = 170


@dataclass(frozen=True, slots=True)
class _Layout:
    """What the end of a file says: the columns, how much Lance reads when it opens the file, and where the schema lies."""

    columns: int
    metadata_bytes: int
    schema_at: int
    schema_bytes: int


def _layout(end: FileEnd) -> _Layout | None:
    """Return None for the end of what is no such file."""
    if len(end.data) < _END.size:
        return None
    columns_at, column_table, buffer_table, buffers, columns, _, _, magic = _END.unpack(end.data[-_END.size :])
    at = buffer_table - (end.size_bytes - len(end.data))
    places = (columns_at, column_table, buffer_table)
    if magic != _MAGIC or not buffers or max(places) > end.size_bytes or not 0 <= at <= len(end.data) - _BUFFER.size:
        return None
    schema_at, schema_bytes = _BUFFER.unpack_from(end.data, at)
    return _Layout(columns, int(end.size_bytes - min(places) + schema_bytes), schema_at, schema_bytes)


class LanceFooters:
    """Of one dataset. The connection to its store is made once: for one file it would cost more than the footer."""

    def __init__(self, uri: str, storage: StorageSettings, tails: Tails, room: Pool = ROOM) -> None:
        self._uri = uri
        self._folder = f"{uri}/data"
        self._storage = storage
        self._tails = tails
        self._room = room
        self._wanted: tuple[tuple[FileField, ...], ...] = ()

    @cached_property
    def _session(self) -> LanceFileSession:
        return LanceFileSession(self._folder, **access(self._uri, self._storage))

    def expect(self, targets: Sequence[LanceTarget]) -> None:
        """Compare columns of files from now on with those of these targets: a file is written for one of them."""
        self._wanted = tuple(dict.fromkeys(fields_of_target(target) for target in targets))

    def expect_schema(self, schema: pa.Schema) -> None:
        """Compare columns of files from now on with a schema without nested columns: files that are no data files."""
        self._wanted = (fields_of_schema(schema, range(len(schema))),)

    def count_rows(self, path: str, fields: Sequence[int]) -> int:
        """Return the rows of a data file, in three requests, or four for one with many columns.

        NeedsChange if it is gone, or no file of Lance's, or has other columns than are expected, or not those of the fields.
        """
        whole = f"{self._folder}/{path}"
        # Lance reads all the metadata of a file at once, and they are as long as the file says.
        end = self._tails.end_of(whole, _FIRST_BYTES)
        layout = _layout(end)
        if layout is None:
            raise NeedsChange(reasons.STAGED_RESULT_REFUSED, f"the staged file {whole} is no data file of Lance: its end is none")
        if layout.metadata_bytes > _MOST_BYTES:
            raise NeedsChange(
                reasons.STAGED_RESULT_REFUSED,
                f"the staged file {whole} has {layout.metadata_bytes:,} bytes of metadata, and {_MOST_BYTES:,} are read at the "
                "most",
            )
        try:
            with self._room.room(layout.metadata_bytes * _MEMORY_OF_BYTE):
                said = fields_in(self._schema(path, layout, end))
                is_as_expected = not self._wanted or is_written_for(said, fields, self._wanted)
                if is_as_expected and layout.columns == len(fields):
                    return int(self._session.open_reader(path).num_rows())
        except (ValueError, IndexError, OSError) as error:
            text = one_line(error)
            if is_not_found(error):
                raise NeedsChange(reasons.STAGED_FILE_MISSING, f"the staged file {whole} is gone") from error
            if STORE_FAILED in str(error):
                raise Retryable(reasons.STORE_UNAVAILABLE, f"the staged file {whole} could not be read: {text}") from error
            raise NeedsChange(
                reasons.STAGED_RESULT_REFUSED, f"the staged file {whole} is no data file of Lance: {text}"
            ) from error
        what = (
            f"{layout.columns} columns by its footer, and its seal says {len(fields)}"
            if is_as_expected
            else "other columns than it was staged for"
        )
        raise NeedsChange(reasons.STAGED_RESULT_REFUSED, f"the staged file {whole} has {what}")

    def _schema(self, path: str, layout: _Layout, end: FileEnd) -> bytes:
        begin = layout.schema_at - (end.size_bytes - len(end.data))
        if begin < 0:
            return bytes(self._session.read_range(path, layout.schema_at, layout.schema_bytes))
        return end.data[begin : begin + layout.schema_bytes]
