"""Rows that are known by their keys: those of a partition of Spark's plan, in the order in which Spark gives them.

A task cannot go back in its input. A second try of it gets the same partition anew: it passes over the rows that the chain of
its task covers already, and makes sure that they were those. Where a try loses a link to another, it raises: Spark tries again.

Called by tasks.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable, Superseded
from checkpoint_protocol.records import KeysCovered, KeySet, RowKey, Seal
from checkpoint_protocol.rows.keys import add_key_sets, key_set
from checkpoint_spark.dataframes import keys
from checkpoint_work.steps.places import Place

_Hashes = np.ndarray[Any, np.dtype[np.uint64]]


def keys_of(seal: Seal) -> KeysCovered:
    """Return the keys that a seal covers. Corrupt if it covers positions: all rows of a write are identified alike."""
    if not isinstance(seal.covered, KeysCovered):
        raise Corrupt(reasons.RECORD_UNREADABLE, f"seal {seal.link} of task {seal.task} of attempt {seal.attempt} has no keys")
    return seal.covered


@dataclass(frozen=True, slots=True)
class KeyedPlace(Place):
    """Where the rows of a piece come from, for messages: a row is named by its key."""

    key_names: tuple[str, ...] = field(kw_only=True)
    key_values: pa.RecordBatch = field(kw_only=True)

    def identity_of(self, row: int) -> tuple[str | int, ...]:
        return tuple(_same_everywhere(keys.value_at(column, row)) for column in self.key_values.columns)

    def of_row(self, row: int) -> str:
        if row >= self.key_values.num_rows:
            return Place.of_row(self, row)
        values = [keys.value_at(column, row) for column in self.key_values.columns[1:]]
        return f"the row with {keys.text_of(self.key_names, values)}"


def _same_everywhere(value: Any) -> str:
    """Write a key's value, an instant in UTC: Spark gives it in the zone of the session, and not always."""
    is_instant = isinstance(value, datetime) and value.tzinfo is not None
    return str(value.astimezone(UTC) if is_instant else value)


@dataclass(frozen=True, slots=True)
class Piece:
    """A Batch: some rows of the partition. `begins` says for each row whether a key begins with it."""

    source: RowsByKey
    rows: pa.RecordBatch
    keys: pa.RecordBatch
    first: _Hashes
    second: _Hashes
    begins: np.ndarray[Any, np.dtype[np.bool_]]
    start: int

    def slice(self, start: int, end: int) -> Piece:
        length = end - start
        arrays = (self.first[start:end], self.second[start:end], self.begins[start:end])
        return Piece(self.source, self.rows.slice(start, length), self.keys.slice(start, length), *arrays, self.start + start)

    @property
    def place(self) -> Place:
        return KeyedPlace(self.source.title, "rows", self.start, key_names=self.source.key_names, key_values=self.keys)

    @property
    def unreadable(self) -> CheckpointError | None:
        return None  # what Spark cannot read it raises itself

    @property
    def source_rows(self) -> int:
        return int(self.begins.sum())

    @property
    def positions(self) -> int:
        return self.source_rows

    @property
    def may_begin_segment(self) -> bool:
        """Only between keys, so that all rows of a key are in one segment."""
        return self.source.cuts and bool(self.begins[0])

    def identity_of(self, number: int) -> RowKey:
        source, *values = (keys.value_at(column, number) for column in self.keys.columns)
        return RowKey(source=source, values=keys.texts_of(values))

    def key_set(self) -> KeySet:
        first, second = self.first[self.begins], self.second[self.begins]
        return key_set(len(first), int(first.sum(dtype=np.uint64)), int(second.sum(dtype=np.uint64)))


@dataclass(frozen=True, slots=True)
class RowsByKey:
    """A RowSource: the rows of a partition, which can be gone through once.

    `cuts`: a segment may end before the task does. `expands`: several rows in a row may have one key; without it such rows are
    duplicates. `put` stores a keys object.
    """

    batches: Iterator[pa.RecordBatch]
    key_names: tuple[str, ...]
    title: str
    cuts: bool
    expands: bool
    put: keys.Put

    def rest(self, chain: tuple[Seal, ...], sizing: BatchSizing, lost: Superseded | None) -> Iterator[Piece]:
        if lost is not None:
            raise Retryable(reasons.ORDER_CHANGED, f"{lost.message}; this one begins again after what that has sealed") from lost
        pieces = _Cutting(self, sizing).pieces()
        return self._after(add_key_sets(keys_of(seal).keys for seal in chain), pieces) if chain else pieces

    def begin_segment(self) -> _Keys:
        return _Keys(keys.SegmentKeys(self.key_names, self.put, self.expands))

    def _after(self, sealed: KeySet, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """Drop the first rows, as many as have these keys.

        Retryable if their keys are others: the order is not that of the try before. The next attempt, which goes by keys and not
        by order, does the rest. Of rows that share a key another one may be passed over than was sealed; so from here on such a
        key is refused.
        """
        passed: list[Piece] = []
        rest: list[Piece] = []
        missing = sealed.rows
        for piece in pieces:
            begins = np.flatnonzero(piece.begins)
            if len(begins) > missing:
                border = int(begins[missing])
                passed.append(piece.slice(0, border))
                rest.append(piece.slice(border, len(piece.begins)))
                break
            passed.append(piece)
            missing -= len(begins)
        if add_key_sets(piece.key_set() for piece in passed) != sealed:
            raise Retryable(
                reasons.ORDER_CHANGED,
                f"{self.title} came in another order than to the try before, which has sealed {sealed.rows} rows of it; the next "
                "attempt goes on by keys",
            )
        passed_keys = _PassedKeys.of(passed)
        for piece in itertools.chain(rest, pieces):
            yield piece
            # When it is taken, which is when the one behind it is asked for: the rows before it are done then, or have failed.
            passed_keys.refuse_in(piece)


@dataclass(frozen=True, slots=True)
class _PassedKeys:
    """Hashes of the keys that were passed over, sorted by the first: a key of theirs must not come again."""

    first: _Hashes
    second: _Hashes

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> _PassedKeys:
        nothing = np.empty(0, np.uint64)
        first = np.concatenate([nothing, *(piece.first[piece.begins] for piece in pieces)])
        second = np.concatenate([nothing, *(piece.second[piece.begins] for piece in pieces)])
        order = np.argsort(first)
        return cls(first[order], second[order])

    def refuse_in(self, piece: Piece) -> None:
        starts, ends = np.searchsorted(self.first, piece.first, "left"), np.searchsorted(self.first, piece.first, "right")
        for row in np.flatnonzero(starts < ends):
            if piece.second[row] in self.second[starts[row] : ends[row]]:
                values = [keys.value_at(column, int(row)) for column in piece.keys.columns[1:]]
                raise keys.not_unique([keys.text_of(piece.source.key_names, values)])


@dataclass(slots=True)
class _Cutting:
    """Cuts what Spark gives into pieces, and finds where keys begin."""

    source: RowsByKey
    sizing: BatchSizing
    _count: int = 0
    _last: tuple[int, int] | None = None

    def pieces(self) -> Iterator[Piece]:
        for batch in self.source.batches:
            described = self._described(batch) if batch.num_rows else None
            start = 0
            while described is not None and start < batch.num_rows:
                end = min(batch.num_rows, start + self.sizing.rows)
                yield described.slice(start, end)
                start = end

    def _described(self, batch: pa.RecordBatch) -> Piece:
        key_columns = [batch.column(name) for name in self.source.key_names]
        for name, column in zip(self.source.key_names, key_columns, strict=True):
            if column.null_count:
                row = column.is_null().to_numpy(zero_copy_only=False).argmax()
                raise self._null_key(name, batch.slice(int(row), 1))
        first = batch.column(keys.FIRST).to_numpy(zero_copy_only=False).view(np.uint64)
        second = batch.column(keys.SECOND).to_numpy(zero_copy_only=False).view(np.uint64)
        begins = np.ones(batch.num_rows, np.bool_)
        if self.source.expands:
            begins[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
            begins[0] = self._last != (int(first[0]), int(second[0]))
            self._last = (int(first[-1]), int(second[-1]))
        start, self._count = self._count, self._count + batch.num_rows
        return Piece(
            source=self.source,
            rows=shown_columns(batch),
            keys=keys_of_rows(batch, self.source.key_names),
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
            f"the key column {name!r} is NULL in a row of {self.source.title}: {values}; a row without a key cannot be told from "
            "others: give it one, or leave such rows out (WHERE ... IS NOT NULL)",
        )


@dataclass(slots=True)
class _Keys:
    """The keys of the rows of a segment, each once."""

    _keys: keys.SegmentKeys

    def add(self, piece: Piece, failed: Sequence[int]) -> None:
        if piece.begins.all():
            self._keys.add(piece.keys, piece.first, piece.second, failed)
        else:
            self._keys.add(piece.keys.filter(pa.array(piece.begins)), piece.first[piece.begins], piece.second[piece.begins])

    def finish(self) -> tuple[KeysCovered, int]:
        found = self._keys.finish()
        return KeysCovered(objects=tuple(self._keys.objects), keys=found, quarantined=self._keys.quarantined), found.rows


def keys_of_rows(batch: pa.RecordBatch, key_names: Sequence[str]) -> pa.RecordBatch:
    """Return the keys of the rows that Spark has given: the number of the source and the values."""
    names = ["source", *(keys.column_of(number) for number in range(len(key_names)))]
    return pa.RecordBatch.from_arrays([_sources_of(batch), *(batch.column(name) for name in key_names)], names=names)


def shown_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows as the steps see them."""
    return batch.select([name for name in batch.schema.names if not name.startswith(keys.HIDDEN_PREFIX)])


def _sources_of(batch: pa.RecordBatch) -> pa.Array:
    """Return the number of each row's source, which rides along only where there are several."""
    if keys.SOURCE in batch.schema.names:
        return batch.column(keys.SOURCE)
    return pa.array(np.zeros(batch.num_rows, np.int32))
