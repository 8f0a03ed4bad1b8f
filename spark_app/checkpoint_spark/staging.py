"""The task: turn an iterator of batches into staged files and seals.

The way of a row: reader -> steps -> fit to the table -> stager (a file that no reader of the table sees) -> seal (from here on
it counts). Whatever dies before the seal leaves files that nobody names; whatever dies after it has lost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from checkpoint_formats.batch_sizing import BatchSizing
from checkpoint_formats.port import Chunk, Reader, Stager
from checkpoint_protocol import reasons
from checkpoint_protocol.deadlines import is_due
from checkpoint_protocol.errors import Corrupt, Superseded
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.positions import Range, merge, subtract
from checkpoint_protocol.records import PositionsCovered, RowPosition, Seal, SourceFile
from checkpoint_spark.advising import InHand
from checkpoint_spark.quarantine import SOURCE, Allowance, QuarantineOfSegment
from checkpoint_spark.row_isolation import apply_apart
from checkpoint_spark.schema_cast import fit
from checkpoint_spark.steps import Pipeline, Place


@dataclass(frozen=True, slots=True)
class Task:
    """What one Spark task has to do. `allowance`: how many rows may fail and be quarantined; None: the first one ends it."""

    attempt: int
    number: int
    pieces: tuple[Range, ...]
    code_digest: str
    interval_s: float
    minimum_bytes: int
    allowance: Allowance | None = None
    read_digest: str | None = None


@dataclass(slots=True)
class _Source:
    """The chunks of the remaining pieces, one ahead, so that the end is known before the last seal is put."""

    reader: Reader
    files: Sequence[SourceFile]
    schema: pa.Schema
    pieces: tuple[Range, ...]
    sizing: BatchSizing
    _chunks: Iterator[tuple[int, Chunk]] = field(init=False)
    _next: tuple[int, Chunk] | None = field(init=False)

    def __post_init__(self) -> None:
        self._chunks = self._read()
        self._next = next(self._chunks, None)

    def _read(self) -> Iterator[tuple[int, Chunk]]:
        for piece in self.pieces:
            for chunk in self.reader.read(self.files[piece.file], piece, self.schema, self.sizing):
                yield piece.file, chunk

    @property
    def exhausted(self) -> bool:
        return self._next is None

    def take(self) -> tuple[int, Chunk]:
        assert self._next is not None
        taken = self._next
        self._next = next(self._chunks, None)
        return taken


@dataclass(slots=True)
class _Segment:
    """The part of a task's work that is sealed together: it ends after a chunk, when it is old and large enough."""

    source: _Source
    pipeline: Pipeline
    schema: pa.Schema | None
    task: Task
    clock: Callable[[], float]
    quarantine: QuarantineOfSegment | None = None
    in_hand: InHand = field(default_factory=InHand)
    covered: list[Range] = field(default_factory=list)
    rows_read: int = 0
    rows_written: int = 0
    _size_bytes: int = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        started = now = self.clock()
        while not self.source.exhausted:
            file, chunk = self.source.take()
            for batch in self._results_of(file, chunk):
                self.rows_written += batch.num_rows
                self._size_bytes += batch.nbytes
                yield batch
            # Only after all that the chunk gave was taken: a segment never ends inside a chunk, so never inside a row's yield.
            self.covered.append(Range(file=file, start=chunk.start, end=chunk.end))
            self.rows_read += chunk.batch.num_rows + (chunk.failed is not None)
            self.in_hand.add(chunk.batch.num_rows, chunk.batch.num_rows if chunk.end is None else chunk.end - chunk.start)
            before, now = now, self.clock()
            self.source.sizing.took(now - before)
            if self._is_due(now - started):
                return

    def _results_of(self, file: int, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Give what the steps make of a chunk, as the table will have it."""
        place = Place(self.source.files[file].path, self.source.files[file].unit, chunk.start, chunk.kept)
        if self.quarantine is None:
            if chunk.failed is not None:
                raise chunk.failed
            for made in self.pipeline.apply(chunk.batch, place, self.schema):
                row_of = self.pipeline.row_of(place, chunk.batch.num_rows)
                yield made if self.schema is None else fit(made, self.schema, row_of)
            return
        quarantine = self.quarantine
        bounds: Sequence[tuple[int, int]] | None = None

        def set_apart(number: int, step: str, error: BaseException) -> None:
            nonlocal bounds
            if bounds is None:
                bounds = chunk.bounds()
            where = Range(file=file, start=bounds[number][0], end=bounds[number][1])
            quarantine.add(RowPosition(range=where), place.of_row(number), step, error)

        if chunk.failed is not None:
            set_apart(0, SOURCE, chunk.failed)
        yield from apply_apart(self.pipeline, chunk.batch, place, self.schema, set_apart)

    def _is_due(self, age_s: float) -> bool:
        return is_due(age_s, self._size_bytes, self.task.interval_s, self.task.minimum_bytes)


def ranges_of(seal: Seal) -> tuple[Range, ...]:
    """Return the positions that a seal covers. Corrupt if it covers keys: rows of one write are known in one way."""
    if not isinstance(seal.covered, PositionsCovered):
        raise Corrupt(
            reasons.RECORD_UNREADABLE, f"seal {seal.link} of task {seal.task} of attempt {seal.attempt} has no positions"
        )
    return seal.covered.ranges


def run_task(
    task: Task,
    files: Sequence[SourceFile],
    source_schema: pa.Schema,
    reader: Reader,
    pipeline: Pipeline,
    stager: Stager,
    ledger: Ledger,
    clock: Callable[[], float],
    in_hand: InHand | None = None,
) -> None:
    """Do what the seals of this task do not cover yet, sealing as it goes.

    Safe to run any number of times, also at once: tries of one task contend for each link of its seal chain, the loser of a
    link throws its segment away and goes on after what the winner sealed. Returns when the chain ends in a `last` seal.
    """
    while True:
        chain = ledger.read_chain(task.attempt, task.number)
        if chain and chain[-1].last:
            return
        remaining = subtract(task.pieces, [piece for seal in chain for piece in ranges_of(seal)])
        source = _Source(reader, files, source_schema, remaining, BatchSizing(task.interval_s))
        try:
            _stage_all(task, chain, source, pipeline, stager, ledger, clock, in_hand or InHand())
        except Superseded:
            continue
        return


def _stage_all(
    task: Task,
    chain: tuple[Seal, ...],
    source: _Source,
    pipeline: Pipeline,
    stager: Stager,
    ledger: Ledger,
    clock: Callable[[], float],
    in_hand: InHand,
) -> None:
    link, failed, last = len(chain), sum(seal.rows_quarantined for seal in chain), False
    while not last:
        quarantine = None
        if task.allowance is not None:
            quarantine = QuarantineOfSegment(ledger, task.attempt, task.allowance, failed)
        in_hand.begin(link)
        segment = _Segment(source, pipeline, stager.arrow_schema, task, clock, quarantine, in_hand)
        staged = stager.stage(segment.batches())
        for index in sorted({piece.file for piece in segment.covered}):
            source.reader.check_unchanged(source.files[index])
        last = source.exhausted
        seal = Seal(
            token=new_token(),
            attempt=task.attempt,
            task=task.number,
            link=link,
            covered=PositionsCovered(ranges=merge(segment.covered)),
            rows_read=segment.rows_read,
            rows_written=segment.rows_written,
            code_digest=task.code_digest,
            files=staged,
            last=last,
            quarantined=quarantine.finish() if quarantine is not None else None,
            read_digest=task.read_digest,
        )
        ledger.put_seal(seal)
        link += 1
        failed += seal.rows_quarantined
