"""A seal as a table of which rows were made of which positions: where each of both lies, and back. Pure.

Called by tracing.py. A seal that does not say it, or whose files do not have the rows in the order in which they were made (a
table that is partitioned or sorted, buckets of a shuffle), is one piece: of some of its positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from checkpoint_formats.stage_results.reader import bucket_path
from checkpoint_protocol.records import (
    IcebergFile,
    IcebergTarget,
    KeysCovered,
    LanceFragment,
    Seal,
    StagedFile,
    StageFile,
    StageTarget,
    Target,
)
from checkpoint_protocol.rows.lineage import Run, Span, counted_in, merged, positions_of_rows, ranges_of, rows_made_of
from checkpoint_protocol.rows.positions import Range

#: Behind every position and every row.
UNENDING = 1 << 62


@dataclass(frozen=True, slots=True)
class TracedFile:
    """A file of a seal: where it is, as what the next stage reads it, and its rows. `is_mixed`: those are names of buckets."""

    path: str
    names: tuple[str, ...]
    rows: int
    is_mixed: bool = False


@dataclass(frozen=True, slots=True)
class Traced:
    """Some positions of a seal and the rows that were made of them. `is_exact`: each of those that were found is one of them."""

    positions: tuple[Range, ...]
    rows: tuple[tuple[TracedFile, Span], ...]
    is_exact: bool

    def rows_by_name(self) -> Iterator[tuple[str, Span]]:
        """Give the rows as the next stage reads them. How those of a bucket are numbered nobody knows."""
        for file, span in self.rows:
            yield from ((name, (0, UNENDING) if file.is_mixed else span) for name in file.names)


@dataclass(frozen=True, slots=True)
class TracedSeal:
    """The ranges of a seal, all of known ends, its files, and its runs. No ranges: its rows are known by keys."""

    ranges: tuple[Range, ...]
    files: tuple[TracedFile, ...]
    runs: tuple[Run, ...]

    def of_rows(self, asked: Mapping[str, Sequence[Span]]) -> Traced:
        """Return the positions of which these rows were made. `asked`: by the names of files."""
        spans, at = [], 0
        for file in self.files:
            for start, end in (span for name in file.names for span in asked.get(name, ())):
                first, last = (0, file.rows) if file.is_mixed else (start, min(end, file.rows))
                spans += [(at + first, at + last)] if first < last else []
            at += file.rows
        spans = merged(spans)
        positions, is_exact = positions_of_rows(self.runs, spans)
        return self._traced(positions, spans, is_exact and bool(self.ranges))

    def of_positions(self, asked: Callable[[Range], Iterable[Span]]) -> Traced:
        """Return the rows that were made of these positions. `asked`: of what lies in a range."""
        positions = counted_in(self.ranges, asked)
        spans, is_exact = rows_made_of(self.runs, positions)
        return self._traced(positions, spans, is_exact)

    def _traced(self, positions: Sequence[Span], spans: Sequence[Span], is_exact: bool) -> Traced:
        rows = tuple(self._rows(spans))
        # A bucket has rows of other seals, too, and in which order nobody knows.
        is_exact = is_exact and not any(file.is_mixed for file, _ in rows)
        return Traced(tuple(ranges_of(self.ranges, positions)), rows, is_exact)

    def _rows(self, spans: Sequence[Span]) -> Iterator[tuple[TracedFile, Span]]:
        at = 0
        for file in self.files:
            for start, end in spans:
                first, last = max(start, at), min(end, at + file.rows)
                if first < last:
                    yield file, (first - at, last - at)
            at += file.rows


def traced(seal: Seal, target: Target | None) -> TracedSeal:
    """Return what a seal tells."""
    files = tuple(_file(file, target) for file in seal.files)
    if isinstance(seal.covered, KeysCovered):
        return TracedSeal((), files, ())
    runs = seal.lineage or ()
    counted = sum(pieces * positions for pieces, positions, _ in runs)
    ranges = _with_ends(seal.covered.ranges, counted)
    length = sum((piece.end or 0) - piece.start for piece in ranges)
    is_told = counted == length and sum(pieces * rows for pieces, _, rows in runs) == seal.rows_written
    if not is_told or not _keeps_order(seal, target):
        runs = ((1, length, seal.rows_written),)
    return TracedSeal(ranges, files, runs)


def _file(file: StagedFile, target: Target | None) -> TracedFile:
    if not isinstance(target, StageTarget) or not isinstance(file, StageFile):
        return TracedFile(file.paths[0], file.paths, file.rows)
    path = f"{target.folder}/{file.name}"
    if not file.buckets:
        return TracedFile(path, (path,), file.rows)
    return TracedFile(path, tuple(bucket_path(target, bucket) for bucket in sorted(set(file.buckets))), file.rows, is_mixed=True)


def _with_ends(ranges: Sequence[Range], counted: int) -> tuple[Range, ...]:
    """Give a range to the end of its file, which nobody knew, the end up to which positions were counted; several: UNENDING."""
    lengths = [None if piece.end is None else piece.end - piece.start for piece in ranges]
    rest = counted - sum(length for length in lengths if length is not None)
    end_of = (lambda start: start + rest) if lengths.count(None) == 1 and rest > 0 else (lambda _start: UNENDING)
    return tuple(piece if piece.end is not None else replace(piece, end=end_of(piece.start)) for piece in ranges)


def _keeps_order(seal: Seal, target: Target | None) -> bool:
    if isinstance(target, IcebergTarget) and target.sort_order_json is not None:
        return False
    return all(
        (isinstance(file, IcebergFile) and not file.partition)
        or isinstance(file, LanceFragment)
        or (isinstance(file, StageFile) and not file.buckets)
        for file in seal.files
    )
