"""Which rows of a data file have keys of staged rows, or which staged rows have keys of its rows. Over Arrow and DuckDB.

The rows of a file, by their keys, wait in a database that spills; the keys come in groups that fit in memory.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint_formats.merging.database import fill, open_database
from checkpoint_formats.merging.keys import column_of, read_bounds
from checkpoint_protocol.records import MergeKeysPart, MergeKeysRecord

_MEMORY_BYTES: Final = 512 << 20
#: Keys that are joined at once.
_MOST_ROWS: Final = 1 << 21

#: Reads the bytes of a part.
LoadPart = Callable[[MergeKeysPart], bytes]


@dataclass(frozen=True, slots=True)
class Found:
    """Rows to be deleted, by the row of the file that was read: `at` is its number there, rising.

    `file` and `pos` say which row goes: an index into the staged files, or nothing where it is the row itself.
    """

    at: np.ndarray[Any, np.dtype[np.int64]]
    file: np.ndarray[Any, np.dtype[np.int32]] | None = None
    pos: np.ndarray[Any, np.dtype[np.int64]] | None = None


@dataclass(slots=True)
class Matcher:
    """The keys of an epoch, for one task after the other file."""

    record: MergeKeysRecord
    load: LoadPart
    database: Any
    #: Of the rows: the key columns and pos.
    schema: pa.Schema
    _parts: pa.Table = field(init=False)
    _held: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        bounds = read_bounds(self.record.bounds)
        self._parts = pa.Table.from_batches([bounds]).append_column("number", pa.array(range(bounds.num_rows), pa.int64()))
        self.database.register("parts", self._parts)

    def rows_with_a_key(self, rows: Iterator[pa.RecordBatch]) -> Found:
        """Return the rows whose key one of the keys is. `rows`: k0, k1, ... and pos, which rises."""
        at = [self._numbers(f"SELECT pos FROM rows SEMI JOIN keys USING ({self._by})", "pos") for _ in self._joined(rows)]
        return Found(_sorted(at))

    def rows_that_do_not_count(self, rows: Iterator[pa.RecordBatch], file: int) -> Found:
        """Return the rows of a staged file whose key another row counts for."""
        query = f"SELECT r.pos FROM rows r JOIN keys k USING ({self._by}) WHERE k.file != {file} OR k.pos != r.pos"
        return Found(_sorted([self._numbers(query, "pos") for _ in self._joined(rows)]))

    def staged_rows_with_a_key(self, rows: Iterator[pa.RecordBatch]) -> Found:
        """Return the staged rows whose key one of these rows has, each once, by the first of these."""
        query = f"SELECT min(r.pos) AS at, k.file, k.pos FROM rows r JOIN keys k USING ({self._by}) GROUP BY k.file, k.pos"
        tables = [self.database.execute(query).to_arrow_table() for _ in self._joined(rows)]
        if not tables:
            return Found(_sorted([]), np.empty(0, np.int32), np.empty(0, np.int64))
        table = pa.concat_tables(tables).sort_by("at")
        return Found(*(table.column(name).to_numpy() for name in ("at", "file", "pos")))

    @property
    def _by(self) -> str:
        return ", ".join(column_of(number) for number in range(len(self.record.keys)))

    def _numbers(self, query: str, column: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        found: np.ndarray[Any, np.dtype[np.int64]] = self.database.execute(query).to_arrow_table().column(column).to_numpy()
        return found

    def _joined(self, rows: Iterator[pa.RecordBatch]) -> Iterator[None]:
        """Hold the rows, and one group of the keys that they may have after the other."""
        if not fill(self.database, "rows", self.schema, rows):
            return
        near = self.database.execute(
            f"SELECT number FROM parts, (SELECT min({column_of(0)}) AS low, max({column_of(0)}) AS high FROM rows) "
            "WHERE lower <= high AND upper >= low ORDER BY number"
        ).fetchall()
        try:
            for group in _groups([number for (number,) in near], [part.rows for part in self.record.parts]):
                self._hold(group)
                yield
        finally:
            self.database.execute("DROP TABLE rows")

    def _hold(self, group: tuple[int, ...]) -> None:
        if group != self._held:
            loaded = [pq.read_table(io.BytesIO(self.load(self.record.parts[number]))) for number in group]
            self.database.register("keys", pa.concat_tables(loaded))
            self._held = group


@contextmanager
def open_matcher(record: MergeKeysRecord, load: LoadPart, kinds: Sequence[pa.DataType]) -> Iterator[Matcher]:
    """Give a matcher for the files of one task. `kinds`: the types of the key columns."""
    columns = [pa.field(column_of(number), kind) for number, kind in enumerate(kinds)]
    with open_database(_MEMORY_BYTES) as database:
        yield Matcher(record, load, database, pa.schema([*columns, pa.field("pos", pa.int64())]))


def _groups(numbers: Sequence[int], rows: Sequence[int]) -> Iterator[tuple[int, ...]]:
    group: list[int] = []
    count = 0
    for number in numbers:
        if group and count + rows[number] > _MOST_ROWS:
            yield tuple(group)
            group, count = [], 0
        group.append(number)
        count += rows[number]
    if group:
        yield tuple(group)


def _sorted(parts: Sequence[np.ndarray[Any, np.dtype[np.int64]]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    if not parts:
        return np.empty(0, np.int64)
    together = np.concatenate(parts)
    together.sort()
    return together
