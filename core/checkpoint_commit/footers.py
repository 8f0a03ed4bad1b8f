"""The rows of staged files by their own footers, compared with what the seals say: for who does not believe drivers that far.

A seal with a wrong count loses no row by itself, but every reader that counts by metadata is told the wrong number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint_formats.files.parquet.thrift import counts_in
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, one_line
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.sink import Verify
from checkpoint_protocol.store.memory import Pool
from checkpoint_protocol.store.parallel import in_threads

#: Of so many files in a row, one is looked at, where they are sampled: so at least one of each epoch is.
_SAMPLED_OF: Final = 20
#: Footers that are asked for together.
_BATCH: Final = 200
#: Most footers are in the first request. Those of others are no footers: a driver may have made them.
_FIRST_BYTES: Final = 64 << 10
_MOST_BYTES: Final = 16 << 20
#: What the objects of a footer may take for each byte: measured, of columns without a name, which have three.
_MEMORY_OF_BYTE: Final = 170
#: In larger ones the objects are counted first, which takes Python 0.2 s for each megabyte.
_MOST_UNCOUNTED_BYTES: Final = 1 << 20
_MEMORY_OF_STRUCT: Final = 3 * _MEMORY_OF_BYTE
_MEMORY_OF_ITEM: Final = 40
_ONE_LARGE: Final = threading.Lock()
#: Memory for footers that are looked at, by all threads of a process.
ROOM: Final = Pool(256 << 20)
#: The footer's length and the magic bytes are the end of a Parquet file.
_END_BYTES: Final = 8
_MAGIC: Final = b"PAR1"


class _Said(NamedTuple):
    """What a seal says of a file."""

    path: str
    rows: int
    fields: Sequence[int]


@dataclass(slots=True)
class Footers:
    """Takes the files of an epoch, once it is sure that they are its own, and looks at those that are to be looked at.

    `count_rows` returns the rows of a data file by its footer, of its path and the ids of the fields that are in it by its seal
    (none where seals do not say it); NeedsChange if it is not there, or has none, or other columns. `choose` returns
    a number from 0 below the given one, and must not be foreseen by whoever makes seals.
    """

    verify: Verify
    count_rows: Callable[[str, Sequence[int]], int]
    choose: Callable[[int], int]
    _group: list[_Said] = field(default_factory=list)
    _wanted: list[_Said] = field(default_factory=list)

    def add(self, path: str, rows: int, fields: Sequence[int] = ()) -> None:
        """Take a file, and what its seal says. NeedsChange if a footer says otherwise, of this file or of one before."""
        if self.verify == "Seals":
            return
        self._group.append(_Said(path, rows, fields))
        if self.verify == "Footers" or len(self._group) == _SAMPLED_OF:
            self._choose()
        if len(self._wanted) == _BATCH:
            self._examine()

    def finish(self) -> None:
        """Look at what is left. NeedsChange as in `add`."""
        if self._group:
            self._choose()
        self._examine()

    def _choose(self) -> None:
        self._wanted.append(self._group[self.choose(len(self._group))])
        self._group.clear()

    def _examine(self) -> None:
        wanted, self._wanted = self._wanted, []
        found = in_threads(lambda said: self.count_rows(said.path, said.fields), wanted) if wanted else []
        for said, rows in zip(wanted, found, strict=True):
            if rows != said.rows:
                raise NeedsChange(
                    reasons.STAGED_RESULT_REFUSED,
                    f"the staged file {said.path} has {counted(rows, 'row')} by its footer, and its seal says {said.rows:,}",
                )


def columns_of(schema: pa.Schema) -> pq.ParquetSchema:
    """Return the columns, with types and field ids, that the footer of a file has which is written with this schema."""
    written = pa.BufferOutputStream()
    pq.ParquetWriter(written, schema, store_decimal_as_integer=True).close()
    return pq.read_metadata(pa.BufferReader(written.getvalue())).schema


def parquet_rows(path: str, tail: Callable[[int], bytes], columns: Sequence[pq.ParquetSchema] = (), room: Pool = ROOM) -> int:
    """Return the rows of a Parquet file by its footer. `tail` gives its last bytes. NeedsChange if it has no footer, or one with
    none of these columns: readers of the whole table would fail, or take a column for another.

    All of the footer is read. One that would take more memory than there is room for is refused, since it cannot be checked.
    """
    end = tail(_FIRST_BYTES)
    size_bytes = _END_BYTES + int.from_bytes(end[-_END_BYTES:-4], "little")
    if end[-4:] != _MAGIC or size_bytes > _MOST_BYTES:
        raise _no_footer(path, "it does not end as one")
    is_large = size_bytes > _MOST_UNCOUNTED_BYTES
    # A large one is held while its memory is waited for.
    with _ONE_LARGE if is_large else nullcontext():
        if is_large:
            with room.room(size_bytes):
                end = tail(size_bytes)
                needed_bytes = _memory_of(path, end[-size_bytes:])
            if needed_bytes > room.most_bytes:
                raise NeedsChange(
                    reasons.STAGED_RESULT_REFUSED,
                    f"the staged file {path} has a footer that would take {needed_bytes:,} bytes of memory, and "
                    f"{room.most_bytes:,} are the most, so that it cannot be checked; make sink.targetFileSize smaller",
                )
        else:
            needed_bytes = size_bytes * _MEMORY_OF_BYTE
        with room.room(needed_bytes):
            if size_bytes > len(end):
                end = tail(size_bytes)
            try:
                metadata = pq.read_metadata(pa.BufferReader(end))
                has_these = not columns or any(metadata.schema.equals(each) for each in columns)
                rows = int(metadata.num_rows)
            except (pa.ArrowException, OSError, ValueError, IndexError) as error:
                raise _no_footer(path, one_line(error)) from error
    if not has_these:
        raise NeedsChange(
            reasons.STAGED_RESULT_REFUSED, f"the staged file {path} has other columns than the table it was staged for"
        )
    return rows


def _memory_of(path: str, footer: bytes) -> int:
    """Return how much memory the objects of a footer take, at the most."""
    try:
        counts = counts_in(footer)
    except (ValueError, IndexError) as error:
        raise _no_footer(path, one_line(error)) from error
    return len(footer) + counts.structs * _MEMORY_OF_STRUCT + counts.items * _MEMORY_OF_ITEM


def _no_footer(path: str, why: str) -> NeedsChange:
    return NeedsChange(reasons.STAGED_RESULT_REFUSED, f"the staged file {path} is no Parquet file: {why}")
