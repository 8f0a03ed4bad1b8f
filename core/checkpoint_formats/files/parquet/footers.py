"""What the footers of Parquet files say: rows, row groups, and the schema.

A million files nearly always have one schema, of few bytes that are the same in each of them, and one row group. Then the footer
is

    version and schema | number of rows | one row group | metadata, program, orders of columns

where only what is in the middle differs from the footer before it. So the first and the last of these are compared with those
of a footer that pyarrow has read, and only the number in the middle is read: in a tenth of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint_formats.failures import explain, reading, unreadable
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.parquet.thrift import fields_of, list_header, varint
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.rows.parquet_rows import INT96_UNIT, row_group_starts

PROBLEM: Final = "it cannot be read as Parquet"
WAY_OUT: Final = "replace or remove it, or let the path match the Parquet files only (folder/*.parquet)"
_MAGIC: Final = b"PAR1"
#: Length of the footer, and magic.
_END_BYTES: Final = 8
#: So much is read of the first file; of later ones twice as much as the last footer took.
_FIRST_BYTES: Final = 64 << 10
#: Files of so many schemas or programs may lie in any order.
_KEPT: Final = 4
_NUM_ROWS: Final = 3
_ROW_GROUPS: Final = 4
#: That field is a list, and follows the one before it.
_ROW_GROUPS_HEADER: Final = 0x19


@dataclass(frozen=True, slots=True)
class Footer:
    """How many rows a file has, at which of them its row groups begin, and the schema, the same object where it is the same."""

    rows: int
    cuts: tuple[int, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class _Known:
    """A footer that pyarrow has read: the bytes in front of its number of rows, and those behind its row groups."""

    head: bytes
    tail: bytes
    schema: pa.Schema

    def read(self, footer: bytes) -> Footer | None:
        """Return what a footer says that differs from this one in the middle only, and has one row group; None: ask pyarrow.

        Bytes that only look like the end of this one, inside the metadata of a file that was made to deceive, would be taken
        for it. A task that opens the file goes by its own footer: it compares the rows, and casts the columns.
        """
        if not footer.startswith(self.head) or not footer.endswith(self.tail):
            return None
        rows, at = varint(footer, len(self.head))
        if footer[at] != _ROW_GROUPS_HEADER or list_header(footer, at + 1)[0] != 1:
            return None
        rows >>= 1  # as thrift writes a number that is not negative
        return Footer(rows, (0,) if rows else (), self.schema)


def _known_from(footer: bytes, schema: pa.Schema) -> _Known | None:
    """Return what later footers can be compared with; None if it cannot be told where its fields lie."""
    head, at = None, 0
    try:
        for number, begin, end in fields_of(footer):
            if number == _NUM_ROWS:
                head = footer[:begin]
            elif number == _ROW_GROUPS:
                at = end
    except (IndexError, ValueError):
        return None
    return None if head is None or not at else _Known(head, footer[at:], schema)


class Footers:
    """Reads footers. Safe to use from several threads."""

    def __init__(self, files: SourceFiles) -> None:
        self._files = files
        self._known: tuple[_Known, ...] = ()
        self._bytes = _FIRST_BYTES

    def read(self, file: FoundFile) -> Footer:
        """Return what a file's footer says. NeedsChange(SourceUnreadable) if it is no Parquet file."""
        footer = self._bytes_of(file)
        if footer is None:
            place = self._files.settings_place
            with reading(file.path, PROBLEM, WAY_OUT, place), self._files.open_arrow(file.path) as opened:
                return _by_pyarrow(opened)
        for known in self._known:
            if (found := known.read(footer)) is not None:
                return found
        try:
            found = _by_pyarrow(pa.BufferReader(footer + len(footer).to_bytes(4, "little") + _MAGIC))
        except (OSError, pa.ArrowException, ValueError) as error:
            raise unreadable(file.path, f"{PROBLEM}: {explain(error)}", WAY_OUT) from error
        if (latest := _known_from(footer, found.schema)) is not None and latest.read(footer) == found:
            self._known = (latest, *self._known[: _KEPT - 1])
        return found

    def _bytes_of(self, file: FoundFile) -> bytes | None:
        """Return the footer; None if the file does not end as one of Parquet that is not encrypted."""
        end = self._files.read_range(file.path, max(0, file.size_bytes - self._bytes), file.size_bytes)
        if len(end) < _END_BYTES or not end.endswith(_MAGIC):
            return None
        length = int.from_bytes(end[-_END_BYTES:-4], "little")
        begin = len(end) - _END_BYTES - length
        if begin < 0 and length <= file.size_bytes - _END_BYTES:
            end = self._files.read_range(file.path, file.size_bytes - _END_BYTES - length, file.size_bytes)
            begin = 0 if len(end) == length + _END_BYTES else -1
        if begin < 0:
            return None
        self._bytes = min(_FIRST_BYTES, 2 * length + _END_BYTES)
        return end[begin:-_END_BYTES]


def _by_pyarrow(opened: pa.NativeFile) -> Footer:
    with pq.ParquetFile(opened, coerce_int96_timestamp_unit=INT96_UNIT) as parquet:
        metadata = parquet.metadata
        return Footer(metadata.num_rows, row_group_starts(metadata), parquet.schema_arrow)
