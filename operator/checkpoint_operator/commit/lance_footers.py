"""What the data files of a Lance dataset say of themselves in their footers."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cached_property
from typing import Final

from lance.file import LanceFileSession

from checkpoint_formats.lance.datasets import is_not_found
from checkpoint_operator.commit.footers import ROOM
from checkpoint_operator.commit.staged_files import FileEnd, Tails
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable, one_line
from checkpoint_protocol.memory import Pool

#: The end of a file: where the metadata of columns begin, where the tables of these and of the buffers do, how many there are.
_END: Final = struct.Struct("<QQQIIHH4s")
_MAGIC: Final = b"LANC"
#: Where a buffer is, and how long. The first one is the schema.
_BUFFER: Final = struct.Struct("<QQ")
_FIRST_BYTES: Final = 64 << 10
_MOST_BYTES: Final = 4 << 20
#: As with Parquet: empty messages of protobuf are objects of some hundred bytes.
_MEMORY_OF_BYTE: Final = 170


def _metadata_bytes(end: FileEnd) -> int | None:
    """Return how much Lance reads of a file when it opens it; None for the end of what is no such file."""
    if len(end.data) < _END.size:
        return None
    columns, column_table, buffer_table, buffers, _, _, _, magic = _END.unpack(end.data[-_END.size :])
    at = buffer_table - (end.size_bytes - len(end.data))
    places = (columns, column_table, buffer_table)
    if magic != _MAGIC or not buffers or max(places) > end.size_bytes or not 0 <= at <= len(end.data) - _BUFFER.size:
        return None
    _, schema_bytes = _BUFFER.unpack_from(end.data, at)
    return int(end.size_bytes - min(places) + schema_bytes)


class LanceFooters:
    """Of one dataset. The connection to its store is made once: for one file it would cost more than the footer."""

    def __init__(self, uri: str, options: Mapping[str, str], tails: Tails, room: Pool = ROOM) -> None:
        self._folder = f"{uri}/data"
        self._options = dict(options) or None
        self._tails = tails
        self._room = room

    @cached_property
    def _session(self) -> LanceFileSession:
        return LanceFileSession(self._folder, storage_options=self._options)

    def count_rows(self, path: str) -> int:
        """Return the rows of a data file, in three requests. NeedsChange if it is gone, or no file of Lance's."""
        whole = f"{self._folder}/{path}"
        # Lance reads all the metadata of a file at once, and they are as long as the file says.
        metadata_bytes = _metadata_bytes(self._tails.end_of(whole, _FIRST_BYTES))
        if metadata_bytes is None:
            raise NeedsChange(reasons.STAGED_RESULT_REFUSED, f"the staged file {whole} is no data file of Lance: its end is none")
        if metadata_bytes > _MOST_BYTES:
            raise NeedsChange(
                reasons.STAGED_RESULT_REFUSED,
                f"the staged file {whole} has {metadata_bytes:,} bytes of metadata, and {_MOST_BYTES:,} are read at the most",
            )
        try:
            with self._room.room(metadata_bytes * _MEMORY_OF_BYTE):
                return int(self._session.open_reader(path).num_rows())
        except (ValueError, OSError) as error:
            text = one_line(error)
            if is_not_found(error):
                raise NeedsChange(reasons.STAGED_FILE_MISSING, f"the staged file {whole} is gone") from error
            if "LanceError(IO)" in text:
                raise Retryable(reasons.STORE_UNAVAILABLE, f"the staged file {whole} could not be read: {text}") from error
            raise NeedsChange(
                reasons.STAGED_RESULT_REFUSED, f"the staged file {whole} is no data file of Lance: {text}"
            ) from error
