"""The task of the DataFrame way: one partition of Spark's plan becomes staged files, keys objects and seals.

A task cannot go back in its input. A second try of it gets the same partition anew: it passes over the rows that the chain of
its task covers already, and makes sure that they were those. Where a try loses a link to another, it raises: Spark tries again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from checkpoint_formats.batch_sizing import BatchSizing
from checkpoint_formats.port import Stager
from checkpoint_formats.stagers import stager_for
from checkpoint_protocol import reasons
from checkpoint_protocol.deadlines import is_due
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable, Superseded
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.keys import add_key_sets, key_set
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.quarantine import describe_limit, most_rows
from checkpoint_protocol.records import KeysCovered, KeySet, LaunchRecord, Part, RowKey, Seal, Target
from checkpoint_protocol.store import open_store
from checkpoint_spark.advising import InHand, telling_of_task
from checkpoint_spark.begun import open_note
from checkpoint_spark.code import use_code
from checkpoint_spark.dataframes import keys
from checkpoint_spark.executor import storage_settings
from checkpoint_spark.failures import wrap
from checkpoint_spark.quarantine import Allowance, QuarantineOfSegment
from checkpoint_spark.row_isolation import apply_apart
from checkpoint_spark.schema_cast import fit
from checkpoint_spark.steps import Pipeline, Place

_Hashes = np.ndarray[Any, np.dtype[np.uint64]]


class PartitionOrder(Part):
    """What the driver ships to all tasks of an attempt.

    `cuts`: a segment may end before the task does. `expands`: several rows in a row may have one key, because something between
    source and steps makes them of one row of the source; without it such rows are duplicates. `later`: columns that the table got
    after the write began.
    """

    uri: str
    uid: str
    epoch: int
    attempt: int
    target: Target
    key_names: tuple[str, ...]
    cuts: bool
    expands: bool
    later: tuple[str, ...] = ()


def run_partition(order_json: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run one task to its `last` seal. Gives no rows. Raises TaskFailed, whose text the driver can read back."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    try:
        _execute(PartitionOrder.model_validate_json(order_json), context.partitionId(), batches)
    except CheckpointError as error:
        raise wrap(error) from error
    return iter(())


def _execute(order: PartitionOrder, number: int, batches: Iterator[pa.RecordBatch]) -> None:
    storage = storage_settings()
    key = EpochKey(order.uid, order.epoch)
    store, in_hand = open_store(order.uri, storage), InHand()
    ledger = Ledger(store, key)
    launch = ledger.read_launch(order.attempt)
    assert launch is not None
    use_code(ledger.store, order.uid, launch.code)
    label = f"{order.attempt}-{number}"
    stager = stager_for(order.target, key, label, launch.target_file_size_bytes, storage)
    pipeline = Pipeline(launch.steps, order.later, open_note(os.environ))
    with telling_of_task(store.overwrite, store.delete, ledger.at.work(order.attempt, number), number, in_hand):
        run_keyed_task(order, number, batches, launch, pipeline, stager, ledger, time.monotonic, in_hand)


def run_keyed_task(
    order: PartitionOrder,
    number: int,
    batches: Iterator[pa.RecordBatch],
    launch: LaunchRecord,
    pipeline: Pipeline,
    stager: Stager,
    ledger: Ledger,
    clock: Callable[[], float],
    in_hand: InHand | None = None,
) -> None:
    """Do what the seals of this task do not cover yet, sealing as it goes.

    Safe to run any number of times, also at once: tries of one task contend for each link of its chain, and the loser of a link
    throws its segment away and raises Retryable, unless the winner has sealed the whole task.
    """
    plan = ledger.read_plan(order.attempt)
    if plan is None or number >= plan.task_count:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"Spark runs task {number}, which the plan of attempt {order.attempt} has not")
    chain = ledger.read_chain(order.attempt, number)
    if chain and chain[-1].last:
        return
    rows = Rows(batches, order.key_names, f"partition {number} of the source", order.expands, BatchSizing(launch.interval_s))
    if chain:
        rows.pass_over(add_key_sets(keys_of(seal).keys for seal in chain))
    try:
        _stage_all(order, number, chain, rows, launch, pipeline, stager, ledger, clock, in_hand or InHand())
    except Superseded as lost:
        chain = ledger.read_chain(order.attempt, number)
        if not (chain and chain[-1].last):
            raise Retryable(reasons.ORDER_CHANGED, f"{lost.message}; this one begins again after what that has sealed") from lost


def _sources_of(batch: pa.RecordBatch) -> pa.Array:
    """Return the number of each row's source, which rides along only where there are several."""
    if keys.SOURCE in batch.schema.names:
        return batch.column(keys.SOURCE)
    return pa.array(np.zeros(batch.num_rows, np.int32))


def keys_of(seal: Seal) -> KeysCovered:
    """Return the keys that a seal covers. Corrupt if it covers positions: rows of one write are known in one way."""
    if not isinstance(seal.covered, KeysCovered):
        raise Corrupt(reasons.RECORD_UNREADABLE, f"seal {seal.link} of task {seal.task} of attempt {seal.attempt} has no keys")
    return seal.covered


def _stage_all(
    order: PartitionOrder,
    number: int,
    chain: tuple[Seal, ...],
    rows: Rows,
    launch: LaunchRecord,
    pipeline: Pipeline,
    stager: Stager,
    ledger: Ledger,
    clock: Callable[[], float],
    in_hand: InHand,
) -> None:
    link, failed, last = len(chain), sum(seal.rows_quarantined for seal in chain), False
    allowance = _allowance(launch, ledger)
    while not last:
        quarantine = None if allowance is None else QuarantineOfSegment(ledger, order.attempt, allowance, failed)
        put = _keys_put_by(ledger, order, number)
        in_hand.begin(link)
        segment = _Segment(rows, pipeline, stager.arrow_schema, launch, order.cuts, put, clock, quarantine, in_hand)
        staged = stager.stage(segment.batches())
        covered = segment.keys.finish()
        last = rows.exhausted
        seal = Seal(
            token=new_token(),
            attempt=order.attempt,
            task=number,
            link=link,
            # The keys are in the store before the seal that names them: who reads the seal finds them.
            covered=KeysCovered(objects=tuple(segment.keys.objects), keys=covered, quarantined=segment.keys.quarantined),
            rows_read=covered.rows,
            rows_written=segment.rows_written,
            code_digest=launch.code_digest,
            files=staged,
            last=last,
            quarantined=quarantine.finish() if quarantine is not None else None,
        )
        ledger.put_seal(seal)
        link += 1
        failed += seal.rows_quarantined


def _allowance(launch: LaunchRecord, ledger: Ledger) -> Allowance | None:
    if launch.on_row_error != "Quarantine":
        return None
    record = ledger.read_input(launch.input_since)
    return Allowance(most_rows(launch.quarantine, record), describe_limit(launch.quarantine, record))


def _keys_put_by(ledger: Ledger, order: PartitionOrder, number: int) -> keys.SegmentKeys:
    def put(data: bytes) -> str:
        path = ledger.at.keys_object(order.attempt, number, new_token())
        ledger.put_keys(path, data)
        return path

    return keys.SegmentKeys(order.key_names, put, order.expands)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of the partition. `begins` says for each row whether a key begins with it."""

    rows: pa.RecordBatch
    keys: pa.RecordBatch
    first: _Hashes
    second: _Hashes
    begins: np.ndarray[Any, np.dtype[np.bool_]]
    start: int

    def slice(self, start: int, end: int) -> Piece:
        length = end - start
        arrays = (self.first[start:end], self.second[start:end], self.begins[start:end])
        return Piece(self.rows.slice(start, length), self.keys.slice(start, length), *arrays, self.start + start)

    def key_set(self) -> KeySet:
        first, second = self.first[self.begins], self.second[self.begins]
        return key_set(len(first), int(first.sum(dtype=np.uint64)), int(second.sum(dtype=np.uint64)))


@dataclass(slots=True)
class Rows:
    """The rows of a partition in the order in which Spark gives them, a piece at a time, one ahead."""

    batches: Iterator[pa.RecordBatch]
    key_names: tuple[str, ...]
    title: str
    expands: bool
    sizing: BatchSizing
    _pieces: Iterator[Piece] = field(init=False)
    _next: Piece | None = field(init=False)
    _count: int = 0
    _last: tuple[int, int] | None = None
    #: Hashes of the keys that were passed over, sorted by the first: a key of theirs must not come again.
    _passed: tuple[_Hashes, _Hashes] | None = None

    def __post_init__(self) -> None:
        self._pieces = self._cut()
        self._next = next(self._pieces, None)

    @property
    def exhausted(self) -> bool:
        return self._next is None

    @property
    def is_between_keys(self) -> bool:
        """Whether the row that comes next begins a key, so that all rows of the keys before it were taken."""
        return self._next is None or bool(self._next.begins[0])

    def take(self) -> Piece:
        assert self._next is not None
        taken = self._next
        self._refuse_passed(taken)
        self._next = next(self._pieces, None)
        return taken

    def pass_over(self, sealed: KeySet) -> None:
        """Drop the first rows, as many as have these keys.

        Retryable if their keys are others: the order is not that of the try before. The next attempt, which goes by keys and not
        by order, does the rest. Of rows that share a key another one may be passed over than was sealed; so from here on such a
        key is refused.
        """
        passed: list[Piece] = []
        missing = sealed.rows
        while self._next is not None:
            piece = self._next
            begins = np.flatnonzero(piece.begins)
            if len(begins) > missing:
                border = int(begins[missing])
                passed.append(piece.slice(0, border))
                self._next = piece.slice(border, len(piece.begins))
                break
            passed.append(piece)
            missing -= len(begins)
            self._next = next(self._pieces, None)
        hashes = [(piece.first[piece.begins], piece.second[piece.begins]) for piece in passed]
        if add_key_sets(piece.key_set() for piece in passed) != sealed:
            raise Retryable(
                reasons.ORDER_CHANGED,
                f"{self.title} came in another order than to the try before, which has sealed {sealed.rows} rows of it; the next "
                "attempt goes on by keys",
            )
        if hashes:
            first, second = (np.concatenate(lane) for lane in zip(*hashes, strict=True))
            order = np.argsort(first)
            self._passed = (first[order], second[order])

    def _refuse_passed(self, piece: Piece) -> None:
        if self._passed is None:
            return
        first, second = self._passed
        starts, ends = np.searchsorted(first, piece.first, "left"), np.searchsorted(first, piece.first, "right")
        for row in np.flatnonzero(starts < ends):
            if piece.second[row] in second[starts[row] : ends[row]]:
                values = [keys.value_at(column, int(row)) for column in piece.keys.columns[1:]]
                raise keys.not_unique([keys.text_of(self.key_names, values)])

    def _cut(self) -> Iterator[Piece]:
        for batch in self.batches:
            described = self._described(batch) if batch.num_rows else None
            start = 0
            while described is not None and start < batch.num_rows:
                end = min(batch.num_rows, start + self.sizing.rows)
                yield described.slice(start, end)
                start = end

    def _described(self, batch: pa.RecordBatch) -> Piece:
        key_columns = [batch.column(name) for name in self.key_names]
        for name, column in zip(self.key_names, key_columns, strict=True):
            if column.null_count:
                row = column.is_null().to_numpy(zero_copy_only=False).argmax()
                raise self._null_key(name, batch.slice(int(row), 1))
        first = batch.column(keys.FIRST).to_numpy(zero_copy_only=False).view(np.uint64)
        second = batch.column(keys.SECOND).to_numpy(zero_copy_only=False).view(np.uint64)
        begins = np.ones(batch.num_rows, np.bool_)
        if self.expands:
            begins[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
            begins[0] = self._last != (int(first[0]), int(second[0]))
            self._last = (int(first[-1]), int(second[-1]))
        shown = [name for name in batch.schema.names if not name.startswith(keys.HIDDEN_PREFIX)]
        names = ["source", *(keys.column_of(number) for number in range(len(key_columns)))]
        start, self._count = self._count, self._count + batch.num_rows
        return Piece(
            rows=batch.select(shown),
            keys=pa.RecordBatch.from_arrays([_sources_of(batch), *key_columns], names=names),
            first=first,
            second=second,
            begins=begins,
            start=start,
        )

    def _null_key(self, name: str, row: pa.RecordBatch) -> NeedsChange:
        values = {
            column: str(value)[:100] for column, value in row.to_pylist()[0].items() if not column.startswith(keys.HIDDEN_PREFIX)
        }
        return NeedsChange(
            reasons.KEYS_UNSUITABLE,
            f"the key column {name!r} is NULL in a row of {self.title}: {values}; a row without a key cannot be told from "
            "others: give it one, or leave such rows out (WHERE ... IS NOT NULL)",
        )


@dataclass(slots=True)
class _Segment:
    """The part of a task's work that is sealed together: it ends after a piece, between keys, when it is old and large enough."""

    rows: Rows
    pipeline: Pipeline
    schema: pa.Schema | None
    launch: LaunchRecord
    cuts: bool
    keys: keys.SegmentKeys
    clock: Callable[[], float]
    quarantine: QuarantineOfSegment | None = None
    in_hand: InHand = field(default_factory=InHand)
    rows_written: int = 0
    _size_bytes: int = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        started = now = self.clock()
        while not self.rows.exhausted:
            piece = self.rows.take()
            failed: list[int] = []
            for batch in self._results_of(piece, failed):
                self.rows_written += batch.num_rows
                self._size_bytes += batch.nbytes
                yield batch
            # Only after all that the piece gave was taken, as a segment may end here.
            if piece.begins.all():
                self.keys.add(piece.keys, piece.first, piece.second, failed)
            else:
                self.keys.add(piece.keys.filter(pa.array(piece.begins)), piece.first[piece.begins], piece.second[piece.begins])
            keys_begun = int(piece.begins.sum())
            self.in_hand.add(keys_begun, keys_begun)
            before, now = now, self.clock()
            self.rows.sizing.took(now - before)
            if self._may_end() and is_due(now - started, self._size_bytes, self.launch.interval_s, self.launch.minimum_bytes):
                return

    def _results_of(self, piece: Piece, failed: list[int]) -> Iterator[pa.RecordBatch]:
        """Give what the steps make of a piece, as the table will have it; note the numbers of the rows that fail."""
        place = KeyedPlace(self.rows.title, "rows", piece.start, key_names=self.rows.key_names, key_values=piece.keys)
        if self.quarantine is None:
            for made in self.pipeline.apply(piece.rows, place, self.schema):
                row_of = self.pipeline.row_of(place, piece.rows.num_rows)
                yield made if self.schema is None else fit(made, self.schema, row_of)
            return
        quarantine = self.quarantine

        def set_apart(row: int, step: str, error: BaseException) -> None:
            source, *values = (keys.value_at(column, row) for column in piece.keys.columns)
            failed.append(row)
            quarantine.add(RowKey(source=source, values=keys.texts_of(values)), place.of_row(row), step, error)

        yield from apply_apart(self.pipeline, piece.rows, place, self.schema, set_apart)

    def _may_end(self) -> bool:
        return self.cuts and self.rows.is_between_keys


@dataclass(frozen=True, slots=True)
class KeyedPlace(Place):
    """Where the rows of a piece come from, for messages: a row is named by its key."""

    key_names: tuple[str, ...] = field(kw_only=True)
    key_values: pa.RecordBatch = field(kw_only=True)

    def of_row(self, row: int) -> str:
        if row >= self.key_values.num_rows:
            return Place.of_row(self, row)
        values = [keys.value_at(column, row) for column in self.key_values.columns[1:]]
        return f"the row with {keys.text_of(self.key_names, values)}"


def task_function(order: PartitionOrder) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what Spark runs on each partition: importable, with plain JSON for its data."""
    return partial(run_partition, order.model_dump_json())
