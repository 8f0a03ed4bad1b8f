"""What a format fulfils: readers give batches of rows with their positions, and stagers write data files."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

import pyarrow as pa

from checkpoint_formats.files.lines import line_start
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.nested import no_rows
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import StagedFile
from checkpoint_protocol.records.inputs import FileColumns, SourceFile
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.object_store import disk_full, translate_store_error


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows and the positions they cover in one file: a segment may end after any chunk.

    `start` is where the last chunk of the same range ended; `end` is None where the file has ended. `kept` are the numbers of
    the batch's rows among those of the range, where some were left out: by `where`, or by a table's deletes. `row_bounds` gives
    from where to where each row lies, those that were left out too, in order; None: positions count rows. It is asked for where
    a row failed, and not before. `failed`: why the chunk's one row cannot be read; the batch is empty then. `group`: how
    messages name the rows, where they are all those of one key.
    """

    batch: pa.RecordBatch
    start: int
    end: int | None
    kept: pa.Array | None = None
    row_bounds: Callable[[], Sequence[tuple[int, int]]] | None = None
    failed: CheckpointError | None = None
    group: str = ""

    def bounds(self) -> Sequence[tuple[int, int]]:
        """Return from where to where each row of the batch lies, in order; of one that cannot be read too."""
        rows = 1 if self.failed is not None else self.batch.num_rows
        numbers = range(rows) if self.kept is None else self.kept.to_pylist()
        if self.row_bounds is None:
            return [(self.start + number, self.start + number + 1) for number in numbers]
        bounds = self.row_bounds()
        return [bounds[number] for number in numbers]


def in_chunks(batch: pa.RecordBatch | None, start: int, end: int, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
    """Cut a batch, which has a row for each position of start..end, as the sizing asks for; None: the rows were not read."""
    if batch is None:
        yield Chunk(no_rows(schema), start, end)
        return
    offset = 0
    while offset < batch.num_rows:
        rows = min(sizing.rows, batch.num_rows - offset)
        yield Chunk(batch.slice(offset, rows), start + offset, start + offset + rows)
        offset += rows


class Reader(Protocol):
    """One format."""

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        """Return the smallest position >= the given one at which reading may start (`file.end` at the most).

        Or another one, at most `slack` away on either side, at which it starts with less to read. Most formats start anywhere.
        """
        return position

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        """Give the rows at the positions of the piece, in order, without gaps; at least one chunk, which may be empty.

        A chunk has about as many rows (or bytes of text) as the sizing asks for at that moment. The ends of the chunks
        rise up to the end of the piece. NeedsChange(SourceChanged) if the file's etag is no longer that of the record.
        """

    def check_unchanged(self, file: SourceFile) -> None:
        """Raise NeedsChange(SourceChanged), naming the file, if it was replaced or has vanished since it was described."""


@dataclass(frozen=True, slots=True)
class Described:
    """What a source has now: its files, and under which schema the chosen ones of its columns are read.

    `place` names it in messages, `known` are all of its columns, chosen or not, and `else_hint` is what one can do, beside
    correcting the name, about a column that is not there. `note` tells of what can be read, and is likely not meant: the field of
    the source that it is about, and what to do. `file_columns` are those that its files name.
    """

    files: tuple[SourceFile, ...]
    schema: pa.Schema
    place: str
    known: tuple[str, ...]
    else_hint: str = ""
    note: str = ""
    file_columns: tuple[FileColumns, ...] = ()


#: By the paths of files that earlier epochs have taken and that have not changed since, their columns; None: not known.
TakenColumns = Mapping[str, FileColumns | None]
NOTHING_TAKEN: Final[TakenColumns] = MappingProxyType({})


class FileReader(Reader, Protocol):
    """A format whose sources are files."""

    def check(self, file: FoundFile) -> None:
        """Raise NeedsChange(SourceUnreadable) if a file by itself is not of the format, as far as its ends tell."""

    def describe(self, found: Sequence[FoundFile], taken: TakenColumns = NOTHING_TAKEN) -> Described:
        """Return the files, of which there is at least one, in their order, and the schema of their rows.

        Files that are `taken` are not among those that are returned, and are opened only where their columns are not known. The
        schema is of all files.
        Of the columns that are asked for, the schema has those that some file has. NeedsChange(SourceUnreadable) names a file
        that is not of the format, or whose columns do not go with those of another one.
        """


class SourceFilesReader(FileReader):
    """Reads files of a disk or a bucket. By number, reading starts at any row; by byte, where a line starts."""

    _files: SourceFiles

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        return line_start(self._files, file, position) if file.unit == "bytes" else position

    def check_unchanged(self, file: SourceFile) -> None:
        self._files.check_unchanged(file)


class WrappingReader(Reader):
    """Gives what another reader reads, changed. That one says where reading may start, and whether a file is what it was."""

    inner: Reader

    def inner_of(self, file: SourceFile) -> Reader:
        return self.inner

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        return self.inner_of(file).align(file, position, slack)

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        return self.inner_of(file).read(file, piece, schema, sizing)

    def check_unchanged(self, file: SourceFile) -> None:
        self.inner_of(file).check_unchanged(file)


class StagingFormat(Protocol):
    """The package of a sink's format, which its targets name. To import it imports no table library."""

    def open_stager(self, target: Any, key: EpochKey, label: str, target_bytes: int, storage: StorageSettings, /) -> Stager:
        """Return a stager of rows for one task try. `target`: this format's own."""

    def columns_of(self, target: Any, /) -> tuple[str, ...]:
        """Return the names of the columns of a table; none where there is no table."""


class Stager(Protocol):
    """Writes data files where the table will want them, and no reader sees them."""

    @property
    def arrow_schema(self) -> pa.Schema | None:
        """The schema that batches must have, with the table's defaults (`plain_types.py`); None where anything is taken."""

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        """Write all batches and return the finished files. No rows: no file. Every file has a fresh random name."""


_REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, slots=True)
class Placed:
    """A stager, and where its files lie: what the disk there does not take is told with that place.

    What the steps raise is an error of ours already when it comes through here.
    """

    stager: Stager
    place: str

    @property
    def arrow_schema(self) -> pa.Schema | None:
        return self.stager.arrow_schema

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        try:
            return self.stager.stage(batches)
        except OSError as error:
            if (full := disk_full(error, self.place)) is not None:
                raise full from error
            if error.errno in _REFUSED:
                raise translate_store_error(error, self.place) from error
            raise
