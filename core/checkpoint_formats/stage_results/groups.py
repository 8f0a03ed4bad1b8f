"""Rows in buckets by their keys, and groups of rows with one key: what the steps of an Aggregate get.

A bucket that is larger than some memory is divided on the disk of this machine first. What has to fit in memory is the rows of
one key, as with Spark's applyInPandas and applyInArrow.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from checkpoint_formats.failures import reading
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.port import Chunk
from checkpoint_formats.rows.batch_sizing import BatchSizing, cut
from checkpoint_formats.stage_results.group_keys import Hashes, codes_of, hashes_of
from checkpoint_formats.stage_results.reader import PROBLEM, WAY_OUT, gone_is_told
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import Grouping
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

# Rows into buckets: each part of a file has the rows of one bucket after the other, a record batch for each.
#
# So many rows are held at a time as fit in some memory, whatever their number and that of their keys.


_HELD_BYTES: Final = 32 << 20


def by_bucket(batches: Iterator[pa.RecordBatch], grouping: Grouping) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Give the same rows in batches of one bucket each, with its number."""
    held: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in (piece for given in batches for piece in cut(given, _HELD_BYTES)):
        if held and size_bytes + batch.nbytes > _HELD_BYTES:
            yield from _divided(pa.concat_batches(held), grouping)
            held, size_bytes = [], 0
        if batch.num_rows:
            held.append(batch)
            size_bytes += batch.nbytes
    if held:
        yield from _divided(pa.concat_batches(held), grouping)


def buckets_of(hashes: Hashes, buckets: int) -> Hashes:
    return hashes % np.uint64(buckets)


def _divided(batch: pa.RecordBatch, grouping: Grouping) -> Iterator[tuple[pa.RecordBatch, int]]:
    if grouping.buckets == 1:
        yield batch, 0
        return
    of = buckets_of(hashes_of(batch, grouping.by), grouping.buckets)
    yield from divided(batch, of)


def divided(batch: pa.RecordBatch, numbers: Hashes) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Give the rows of each number together, by rising numbers, in the order that they had."""
    order = np.argsort(numbers, kind="stable")
    ordered, sorted_numbers = batch.take(pa.array(order)), numbers[order]
    starts = np.flatnonzero(np.diff(sorted_numbers, prepend=sorted_numbers[:1] + np.uint64(1)))
    ends = np.append(starts[1:], len(order))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield ordered.slice(start, end - start), int(sorted_numbers[start])


_MOST_BYTES: Final = 64 << 20
_MOST_PARTS: Final = 128
#: Values of a key that messages show.
_MOST_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class PiecesOfFile:
    """Which record batches of a file are some bucket's."""

    path: str
    batches: tuple[int, ...]


class GroupReader:
    """A Reader. A file is a bucket, and each chunk has all rows of one key; positions count the rows of the bucket.

    In which order the keys come is nothing to build on, so that a bucket is always read as a whole.
    `pieces`: where the rows of each bucket lie, by its path. `most_bytes`: a bucket that has more is divided on disk.
    """

    def __init__(
        self,
        grouping: Grouping,
        pieces: Mapping[str, Sequence[PiecesOfFile]],
        storage: StorageSettings,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self._grouping, self._pieces = grouping, pieces
        self._files = SourceFiles(storage)
        self._most_bytes = most_bytes

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        """Nowhere within a bucket."""
        return position if position == file.start else file.end or 0

    def check_unchanged(self, file: SourceFile) -> None:
        """Its rows were put whole, under names that nothing else ever has."""

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        if (piece.start, piece.end) != (file.start, file.end):
            raise Corrupt(reasons.RECORD_UNREADABLE, f"rows {piece.start} to {piece.end} of {file.path} are no whole bucket")
        at = 0
        for group in self._groups(file, schema):
            yield Chunk(group, at, at + group.num_rows, group=_named(group, self._grouping.by))
            at += group.num_rows
        if at != file.end:
            raise Corrupt(
                reasons.RECORD_UNREADABLE, f"{file.path} has {at} rows, and {file.end} by the seals of its stage; {WAY_OUT}"
            )

    def _groups(self, file: SourceFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        batches = self._batches(file, schema)
        if not self._grouping.by:
            yield pa.concat_batches(list(batches))
            return
        held: list[pa.RecordBatch] = []
        size_bytes = rows = 0
        for batch in batches:
            held.append(batch)
            size_bytes, rows = size_bytes + batch.nbytes, rows + batch.num_rows
            if size_bytes > self._most_bytes:
                parts = min(_MOST_PARTS, 2 * round(size_bytes * (file.end or 0) / rows / self._most_bytes) + 1)
                yield from self._of_parts(chain(held, batches), schema, parts)
                return
        yield from self._of_some(held)

    def _of_some(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if batches:
            rows = pa.concat_batches(batches)
            yield from (group for group, _ in divided(rows, codes_of(rows, self._grouping.by).view(np.uint64)))

    def _of_parts(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, parts: int) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory(prefix="checkpointed-write-groups-") as name:
            paths: dict[int, Path] = {}
            with ExitStack() as opened:
                writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
                for batch in batches:
                    for rows, number in divided(batch, self._parts_of(batch, parts)):
                        if number not in writers:
                            paths[number] = Path(name, f"{number}.arrow")
                            writers[number] = opened.enter_context(pa.ipc.new_stream(str(paths[number]), schema))
                        writers[number].write_batch(rows)
            for path in paths.values():
                with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
                    held = list(stream)
                path.unlink()
                yield from self._of_some(held)

    def _parts_of(self, batch: pa.RecordBatch, parts: int) -> Hashes:
        """Return which part each row is of, by bits of its hash that its bucket does not come of."""
        return (hashes_of(batch, self._grouping.by) // np.uint64(self._grouping.buckets)) % np.uint64(parts)

    def _batches(self, file: SourceFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for piece in self._pieces.get(file.path, ()):
            with (
                reading(piece.path, PROBLEM, WAY_OUT, self._files.settings_place),
                gone_is_told(piece.path),
                self._files.open_arrow(piece.path) as opened,
            ):
                stored = pa.ipc.open_file(opened)
                for number in piece.batches:
                    if number >= stored.num_record_batches:
                        raise Corrupt(reasons.RECORD_UNREADABLE, f"{piece.path} has no record batch {number}; {WAY_OUT}")
                    yield pa.RecordBatch.from_arrays(stored.get_batch(number).columns, schema=schema)


def _named(group: pa.RecordBatch, by: Sequence[str]) -> str:
    if not by:
        return "all rows"
    values = (f"{name} = {group.column(name)[0].as_py()!r:.{_MOST_SHOWN}}" for name in by)
    return f"the {group.num_rows} rows with {', '.join(values)}"
