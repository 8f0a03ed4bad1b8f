"""The keys of rows: their types, their hashes, and those of a segment.

A key is a source number and the values of the key columns. Hashes are made by Spark, once for the source and once for each row
that a task gets, so that both are of one function; they only add up to fingerprints and tell where a key ends. What is skipped
is decided by exact values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_formats.keys_objects import write_object
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.records import MAX_KEY_LENGTH, KeySet, KeysObject
from checkpoint_protocol.rows.keys import key_set
from checkpoint_protocol.store.parts import digest_of

#: Columns that ride along with the rows of the source to the tasks, and no step sees.
HIDDEN_PREFIX: Final = "__checkpoint_"
SOURCE: Final = f"{HIDDEN_PREFIX}source"
FIRST: Final = f"{HIDDEN_PREFIX}first"
SECOND: Final = f"{HIDDEN_PREFIX}second"

_SUITABLE: Final = re.compile(r"tinyint|smallint|int|bigint|string|binary|decimal\(\d+,\d+\)|date|timestamp|timestamp_ntz")
_MOST_ROWS: Final = 1 << 20
_MOST_BYTES: Final = 32 << 20


def column_of(number: int) -> str:
    """Return the name of the n-th key column in a keys object: the user's names play no part there."""
    return f"k{number}"


def check_type(name: str, kind: str) -> None:
    """Refuse a type whose equality is not what people mean by it. `kind` is in Spark's words."""
    if not _SUITABLE.fullmatch(kind):
        raise NeedsChange(
            reasons.KEYS_UNSUITABLE,
            f"the key column {name!r} is {kind}; keys are strings (of the default collation), integers, binaries, decimals, "
            "dates or timestamps: cast it in the source, or name another column in keyColumns",
        )


def text_of(names: Sequence[str], values: Sequence[Any]) -> str:
    """Write a key for people."""
    return ", ".join(f"{name}={value}" for name, value in zip(names, texts_of(values), strict=True))


def value_at(column: pa.Array | pa.ChunkedArray, row: int) -> Any:
    """Return a key's value for people: of what Python cannot hold (text that is no UTF-8, the year 10000) its bytes or number."""
    found = column[row]
    try:
        return found.as_py()
    except (ValueError, OverflowError):
        return found.value if hasattr(found, "value") else found.as_buffer().to_pybytes()


def texts_of(values: Sequence[Any]) -> tuple[str, ...]:
    """Write the values of a key for people."""
    return tuple(str(value)[:MAX_KEY_LENGTH] for value in values)


@dataclass(slots=True)
class _Sums:
    """What keys add up to so far."""

    rows: int = 0
    first: int = 0
    second: int = 0

    def add(self, first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> None:
        self.rows += len(first)
        self.first += int(first.sum(dtype=np.uint64))
        self.second += int(second.sum(dtype=np.uint64))

    def as_set(self) -> KeySet:
        return key_set(self.rows, self.first, self.second)


#: Stores the bytes of a keys object and returns its path.
Put = Callable[[bytes], str]


@dataclass(slots=True)
class SegmentKeys:
    """The keys of one segment, put into objects as they come: never more than one object's worth is held.

    Those of rows that failed get objects of their own, so that a later epoch can take just them again. `expands`: rows of one key
    may follow one another, and their key is added once.
    """

    names: tuple[str, ...]
    put: Put
    expands: bool = False
    objects: list[KeysObject] = field(default_factory=list)
    _all: _Sums = field(default_factory=_Sums)
    _failed: _Sums = field(default_factory=_Sums)
    _held: list[pa.RecordBatch] = field(default_factory=list)
    _hashes: list[np.ndarray[Any, np.dtype[np.uint64]]] = field(default_factory=list)
    _held_failed: list[int] = field(default_factory=list)
    _held_rows: int = 0
    _held_bytes: int = 0

    def add(
        self, keys: pa.RecordBatch, first: np.ndarray[Any, Any], second: np.ndarray[Any, Any], failed: Sequence[int] = ()
    ) -> None:
        """Take keys, each once, with their two hashes. `failed` are the numbers of those whose rows are quarantined."""
        self._all.add(first, second)
        if failed:
            numbers = np.asarray(failed)
            self._failed.add(first[numbers], second[numbers])
            self._held_failed += [self._held_rows + number for number in failed]
        self._held.append(keys)
        self._hashes.append(first)
        self._held_rows += keys.num_rows
        self._held_bytes += keys.nbytes
        if self._held_rows >= _MOST_ROWS or self._held_bytes >= _MOST_BYTES:
            self._flush()

    def finish(self) -> KeySet:
        """Put what is held; return what all of it adds up to. NeedsChange(KeysNotUnique) names a key that came twice."""
        if self._held_rows:
            self._flush()
        return self._all.as_set()

    @property
    def quarantined(self) -> KeySet | None:
        """What the keys of the rows that failed add up to; None if there are none."""
        return self._failed.as_set() if self._failed.rows else None

    def _flush(self) -> None:
        # Nothing of a dictionary or a view, and no slice of a larger buffer, gets into the object.
        keys = pa.Table.from_batches(self._held).combine_chunks()
        # Sorted, and not np.unique: that makes a hash table of integers, which takes ten times as long.
        hashes = np.concatenate(self._hashes)
        hashes.sort()
        if bool((hashes[1:] == hashes[:-1]).any()):
            _refuse_duplicates(self.names, keys, self.expands)
        has_failed = np.zeros(keys.num_rows, np.bool_)
        has_failed[self._held_failed] = True
        for part, quarantined in ((~has_failed, False), (has_failed, True)):
            if part.any():
                self._put(keys if part.all() else keys.filter(pa.array(part)), quarantined)
        self._held, self._hashes, self._held_failed, self._held_rows, self._held_bytes = [], [], [], 0, 0

    def _put(self, keys: pa.Table, quarantined: bool) -> None:
        data = write_object(keys)
        path = self.put(data)
        self.objects.append(
            KeysObject(
                path=path,
                rows=keys.num_rows,
                size_bytes=len(data),
                values_bytes=keys.nbytes,
                quarantined=quarantined,
                digest=digest_of(data),
            )
        )


def _refuse_duplicates(names: tuple[str, ...], keys: pa.Table, expands: bool) -> None:
    counted = keys.group_by(keys.column_names, use_threads=False).aggregate([([], "count_all")])
    twice = counted.filter(pc.greater(counted["count_all"], 1)).slice(0, 3)
    if twice.num_rows:
        examples = [
            text_of(names, [value_at(twice[column_of(n)], row) for n in range(len(names))]) for row in range(twice.num_rows)
        ]
        raise not_unique(examples, expands)


def not_unique(examples: Sequence[str], expands: bool = False) -> NeedsChange:
    """Return the error for rows that share a key. `expands`: the rows were seen behind what makes several of one."""
    apart = "; or a batch function gives what it makes of one row apart: let it give that one after the other" if expands else ""
    return NeedsChange(
        reasons.KEYS_NOT_UNIQUE,
        f"several rows of the source have one key: {'; '.join(examples)}; if one of them were sealed, the others would be passed "
        f"over: add columns to keyColumns that tell them apart (in a new write), or remove the duplicates from the source{apart}",
    )
