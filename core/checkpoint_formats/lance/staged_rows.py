"""Rows of staged Lance fragments, which no version of the dataset has yet: read as a merge needs them, and staged once more.

Where some of them must not be committed, their fragment is written anew without them: Lance takes no deletes for a fragment that
is not in a version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader

from checkpoint_formats.files.numbering import empty_chunk
from checkpoint_formats.lance.access import access
from checkpoint_formats.lance.datasets import is_not_found
from checkpoint_formats.lance.stager import LanceStager
from checkpoint_formats.merging.reading import Positions
from checkpoint_formats.merging.rewriting import Rest, RewritingReader, path_of
from checkpoint_formats.port import Chunk, Reader
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.plain_types import as_plain
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable, one_line
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import LanceFragment, LanceRewrite
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range


def as_source(fragment: LanceFragment, left_out: tuple[str, ...] = ()) -> SourceFile:
    """Return a staged fragment as a file that is read. As a stager writes it, it has one data file."""
    (data_file,) = fragment.files
    return SourceFile(
        path=data_file.path, etag="", size_bytes=data_file.size_bytes, unit="rows", end=fragment.rows, left_out=left_out
    )


@dataclass(frozen=True, slots=True)
class StagedFragments(Reader):
    """Reads the data files of staged fragments by row number. `is_exact`: no value is cast, and columns may be missing."""

    uri: str
    storage: StorageSettings
    is_exact: bool = False

    def check_unchanged(self, file: SourceFile) -> None:
        """A data file is never written again. One that is gone is told of when it is read."""

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        end = file.end if piece.end is None else piece.end
        assert end is not None
        at = piece.start
        if at == end:
            yield empty_chunk(piece, schema)
            return
        whole = self._whole(file.path)
        try:
            there = self._names_in(whole) if self.is_exact else schema.names
            names = [name for name in schema.names if name in there]
            reader = LanceFileReader(whole, columns=names, **access(self.uri, self.storage))
            for batch in reader.read_range(at, end - at, batch_size=sizing.rows).to_batches():
                self._refuse_other_types(whole, batch, schema)
                yield Chunk(as_plain(batch, schema), at, at + batch.num_rows)
                at += batch.num_rows
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self._translated(whole, error) from error

    def rows_left_out(self, file: SourceFile, _: Range) -> Positions:
        """Return the numbers of the rows that the files named with it say, rising."""
        found = [np.empty(0, np.int64)]
        for name in file.left_out:
            whole = self._whole(name)
            try:
                table = LanceFileReader(whole, **access(self.uri, self.storage)).read_all().to_table()
            except (ValueError, OSError) as error:
                raise self._translated(whole, error) from error
            found.append(table.column(0).to_numpy().astype(np.int64))
        return np.unique(np.concatenate(found))

    def _names_in(self, whole: str) -> frozenset[str]:
        """Return the columns of a staged file. One that others have added to the dataset since is NULL in its rows."""
        reader = LanceFileReader(whole, **access(self.uri, self.storage))
        return frozenset(reader.metadata().schema.names)

    def _whole(self, name: str) -> str:
        return f"{self.uri.rstrip('/')}/data/{name}"

    def _refuse_other_types(self, whole: str, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        for given in batch.schema if self.is_exact else ():
            if not given.type.equals(wanted := schema.field(given.name).type, check_metadata=False):
                raise NeedsChange(
                    reasons.TABLE_UNSUPPORTED,
                    f"the staged file {whole} gives the column {given.name!r} as {given.type}, and the dataset as {wanted}, so "
                    "that its rows cannot be written a second time, as whenMatched: Ignore and onDuplicate: Last need it; "
                    "start a new write without these",
                )

    def _translated(self, whole: str, error: Exception) -> NeedsChange | Retryable:
        if is_not_found(error):
            return NeedsChange(reasons.STAGED_FILE_MISSING, f"the staged file {whole} is gone")
        return Retryable(reasons.STORE_UNAVAILABLE, f"the staged file {whole} cannot be read: {one_line(error)}")


@dataclass(slots=True)
class LanceRewritesStager:
    """Writes the rows that stay of each staged fragment that a segment has rows of. A Stager of what a RewritingReader gives."""

    inner: LanceStager
    arrow_schema: None = field(default=None, init=False)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[LanceRewrite, ...]:
        """Write what stays; files are whole in the store when this returns."""
        return tuple(self._rewrite(path, given) for path, given in groupby(batches, path_of))

    def _rewrite(self, path: str, batches: Iterator[pa.RecordBatch]) -> LanceRewrite:
        rest = Rest(batches, self.inner.arrow_schema)
        fragments = self.inner.stage(iter(rest))
        return LanceRewrite(source=path, rows=rest.rows, fragments=fragments)


def rest_reader(uri: str, schema: pa.Schema, storage: StorageSettings) -> RewritingReader:
    """Return the reader of staged fragments that are written anew. `schema`: that of the dataset."""
    staged = StagedFragments(uri, storage, is_exact=True)
    return RewritingReader(staged, staged.rows_left_out, schema)
