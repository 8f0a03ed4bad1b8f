"""The rows of a stage's result, by their numbers in its files, and their columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from checkpoint_formats.failures import reading
from checkpoint_formats.files.numbering import empty_chunk
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.port import Chunk, in_chunks
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.parquet_rows import nearest_start
from checkpoint_formats.rows.plain_types import plain_field
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import StageFile, StageTarget
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

PROBLEM: Final = "it cannot be read as a file of a stage's result"
WAY_OUT: Final = "change an argument of the stage, so that it is done again"


def source_file(target: StageTarget, file: StageFile) -> SourceFile:
    """Return a file of a result as the input of the next stage. No etag: its name was never used before, and never is again."""
    cuts, first = [], 0
    for rows in file.batches:
        cuts.append(first)
        first += rows
    return SourceFile(
        path=f"{target.folder}/{file.name}", etag="", size_bytes=file.size_bytes, unit="rows", end=file.rows, cuts=tuple(cuts)
    )


def bucket_path(target: StageTarget, bucket: int) -> str:
    """Return what a bucket is called as the input of an Aggregate. There is no such object: its rows lie in several."""
    return f"{target.folder}/bucket-{bucket:04}"


class StageResultReader:
    """A Reader. Positions are row numbers; what is read of a store are the record batches that have some of them."""

    def __init__(self, storage: StorageSettings) -> None:
        self._files = SourceFiles(storage)

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        return nearest_start(file.cuts, file.end or 0, position, slack)

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        assert file.end is not None
        end = file.end if piece.end is None else piece.end
        if piece.start == end:
            yield empty_chunk(piece, schema)
            return
        with (
            reading(file.path, PROBLEM, WAY_OUT, self._files.settings_place),
            gone_is_told(file.path),
            self._files.open_arrow(file.path) as opened,
        ):
            stored = pa.ipc.open_file(opened)
            if stored.num_record_batches != len(file.cuts):
                raise Corrupt(
                    reasons.RECORD_UNREADABLE,
                    f"{file.path} has {stored.num_record_batches} record batches, and its seal says {len(file.cuts)}; {WAY_OUT}",
                )
            for number in range(bisect_right(file.cuts, piece.start) - 1, len(file.cuts)):
                first = file.cuts[number]
                if first >= end:
                    break
                batch = stored.get_batch(number)
                start, stop = max(first, piece.start), min(first + batch.num_rows, end)
                rows = pa.RecordBatch.from_arrays(batch.slice(start - first, stop - start).columns, schema=schema)
                yield from in_chunks(rows, start, stop, schema, sizing)

    def check_unchanged(self, file: SourceFile) -> None:
        """It was put whole, under a name that nothing else ever has: it can be gone, which reading it tells."""


@contextmanager
def gone_is_told(path: str) -> Iterator[None]:
    """Say of a file that is not there what a person can do: nobody has another copy of it."""
    try:
        yield
    except NeedsChange as error:
        if error.reason != reasons.SOURCE_CHANGED:
            raise
        raise NeedsChange(error.reason, f"{path}, which a stage of the write has made, is gone; {WAY_OUT}") from error
    except FileNotFoundError as error:
        raise NeedsChange(reasons.SOURCE_CHANGED, f"{path}, which a stage of the write has made, is gone; {WAY_OUT}") from error


def stored_schema(given: pa.Schema) -> pa.Schema:
    """Return the columns under which a stage's output is stored: as the steps give them, without dictionaries.

    A file has one dictionary for a column, and the batches of a task may each have one of their own. UUIDs are their sixteen
    bytes, as those of any source, and a table that is made of them later has UUIDs.
    """
    return pa.schema(
        [plain_field(field) if isinstance(field.type, pa.UuidType) else _without_dictionaries(field) for field in given]
    )


def _without_dictionaries(field: pa.Field) -> pa.Field:
    return field.with_type(_decoded(field.type))


def _decoded(given: pa.DataType) -> pa.DataType:
    kind = pa.types
    if kind.is_dictionary(given) or kind.is_run_end_encoded(given):
        return _decoded(given.value_type)
    if kind.is_struct(given):
        return pa.struct([_without_dictionaries(field) for field in given])
    if kind.is_map(given):
        return pa.map_(_without_dictionaries(given.key_field), _without_dictionaries(given.item_field), given.keys_sorted)
    if kind.is_fixed_size_list(given):
        return pa.list_(_without_dictionaries(given.value_field), given.list_size)
    if kind.is_large_list(given):
        return pa.large_list(_without_dictionaries(given.value_field))
    if kind.is_list(given):
        return pa.list_(_without_dictionaries(given.value_field))
    return given
