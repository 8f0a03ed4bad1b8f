"""The keys of staged rows: each once, sorted, in parts that tasks read by need. Over Arrow and DuckDB; knows no store.

Called once for each epoch, by the driver of its first merge.
"""

from __future__ import annotations

import base64
import datetime
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint_formats.merging.database import fill, open_database
from checkpoint_formats.rows.where import Filter
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.where import parse_where
from checkpoint_protocol.records import Merge, MergeKeysPart
from checkpoint_protocol.tables import OnDuplicate, WhenMatched

#: Of a part. It is read as a whole.
_MOST_ROWS: Final = 1 << 19
_MOST_BYTES: Final = 32 << 20
_MEMORY_BYTES: Final = 640 << 20
_BATCH_ROWS: Final = 1 << 16
#: Keys that are told, for people, where several rows have one.
_EXAMPLES: Final = 3
#: Of a column with so few values each is told; of others the first and the last.
_MOST_VALUES: Final = 100
_MOST_TEXT: Final = 256

#: Stores some of the keys: how many they are, and the bytes.
PutPart = Callable[[int, bytes], MergeKeysPart]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an upsert asks for. `order_by`: the column by whose largest value one of several rows counts."""

    keys: tuple[str, ...]
    when_matched: WhenMatched
    on_duplicate: OnDuplicate
    order_by: str | None

    @classmethod
    def of(cls, merge: Merge) -> Wanted:
        return cls(merge.keys, merge.when_matched, merge.on_duplicate, merge.order_by)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of staged rows that are read."""
        return tuple(dict.fromkeys((*self.keys, *((self.order_by,) if self.order_by is not None else ()))))

    @property
    def places_are_asked_for(self) -> bool:
        """Whether rows that were staged may be deleted again, by where they lie."""
        return self.when_matched == "Ignore" or self.on_duplicate == "Last"


@dataclass(frozen=True, slots=True)
class Placed:
    """Staged rows: their columns, and where they lie: a batch for each run of rows of one file, with their numbers in it."""

    rows: pa.RecordBatch
    file: int
    positions: pa.Array


@dataclass(frozen=True, slots=True)
class Keys:
    """What was made of them: see MergeKeysRecord."""

    rows: int
    parts: tuple[MergeKeysPart, ...]
    bounds: str
    where: str | None
    repeated: int


def column_of(number: int) -> str:
    """Return the name of the n-th key column where the user's names play no part."""
    return f"k{number}"


def make_keys(wanted: Wanted, schema: pa.Schema, staged: Iterator[Placed], put: PutPart) -> Keys:
    """Put the keys of the staged rows. NeedsChange(KeysNotUnique) names one that several rows have, where that is not to be."""
    names = [column_of(number) for number in range(len(wanted.keys))]
    by_keys = ", ".join(names)
    kinds = [schema.field(name).type for name in wanted.keys]
    ordered = [] if wanted.order_by is None else [pa.field("o", schema.field(wanted.order_by).type)]
    given = pa.schema([*map(pa.field, names, kinds), *ordered, pa.field("file", pa.int32()), pa.field("pos", pa.int64())])
    with open_database(_MEMORY_BYTES, threads=2) as database:
        count = fill(database, "staged", given, (_plain(placed, wanted, given) for placed in staged))
        if wanted.on_duplicate == "Fail" and wanted.when_matched != "Delete":
            _refuse_repeated(database, by_keys, wanted)
        rows, parts, lower, upper = _put_all(database.execute(_selected(wanted, by_keys)), put)
        bounds = pa.record_batch({"lower": _joined(lower, kinds[0]), "upper": _joined(upper, kinds[0])})
        where = _where(database, wanted.keys, schema)
    return Keys(rows, tuple(parts), _encoded(bounds), where, count - rows)


def _plain(placed: Placed, wanted: Wanted, given: pa.Schema) -> pa.RecordBatch:
    columns = [placed.rows.column(name) for name in wanted.keys]
    if wanted.order_by is not None:
        columns.append(placed.rows.column(wanted.order_by))
    numbers = pa.array([placed.file], pa.int32()).take(pa.array([0] * placed.rows.num_rows, pa.int32()))
    return pa.RecordBatch.from_arrays([*columns, numbers, placed.positions.cast(pa.int64())], schema=given)


def _refuse_repeated(database: Any, by_keys: str, wanted: Wanted) -> None:
    found = database.execute(
        f"SELECT {by_keys}, count(*) FROM staged GROUP BY {by_keys} HAVING count(*) > 1 ORDER BY ALL LIMIT {_EXAMPLES}"
    ).fetchall()
    if found:
        examples = "; ".join(
            ", ".join(f"{name} = {value!r:.200}" for name, value in zip(wanted.keys, row, strict=False)) + f" ({row[-1]} rows)"
            for row in found
        )
        take_one = "set sink.onDuplicate: Last with sink.orderBy to take the one with the largest value of a column, or "
        raise NeedsChange(
            reasons.OUTPUT_KEY_REPEATED,
            f"several rows of the output have one key: {examples}; which of them is to be in the table cannot be told: "
            f"{take_one}leave the others out (source.where, or a step) in a new write: "
            "the rows of this one are sealed, and stay as they are",
        )


def _selected(wanted: Wanted, by_keys: str) -> str:
    """Return the query for each key once, with where the row lies that counts."""
    if wanted.on_duplicate == "Last":
        return (
            f"SELECT {by_keys}, file, pos FROM staged QUALIFY row_number() OVER "
            f"(PARTITION BY {by_keys} ORDER BY o DESC NULLS LAST, file DESC, pos DESC) = 1 ORDER BY {by_keys}"
        )
    if wanted.when_matched == "Delete":
        return f"SELECT DISTINCT {by_keys}, 0::INTEGER AS file, 0::BIGINT AS pos FROM staged ORDER BY {by_keys}"
    return f"SELECT {by_keys}, file, pos FROM staged ORDER BY {by_keys}"


def _put_all(found: Any, put: PutPart) -> tuple[int, list[MergeKeysPart], list[pa.ChunkedArray], list[pa.ChunkedArray]]:
    rows, parts, lower, upper = 0, [], [], []
    held: list[pa.RecordBatch] = []

    def flush() -> None:
        table = pa.Table.from_batches(held)
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd", use_dictionary=["file"], write_statistics=False)
        parts.append(put(table.num_rows, buffer.getvalue()))
        first = table.column(column_of(0))
        # Not as Python values: Python has no year 10000.
        lower.append(first.slice(0, 1))
        upper.append(first.slice(len(first) - 1))
        held.clear()

    for batch in found.to_arrow_reader(_BATCH_ROWS):
        if not batch.num_rows:
            continue
        rows += batch.num_rows
        held.append(batch)
        if sum(each.num_rows for each in held) >= _MOST_ROWS or sum(each.nbytes for each in held) >= _MOST_BYTES:
            flush()
    if held:
        flush()
    return rows, parts, lower, upper


def _joined(values: list[pa.ChunkedArray], kind: pa.DataType) -> pa.Array:
    chunks = [chunk for each in values for chunk in each.cast(kind).chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], kind)


def _encoded(batch: pa.RecordBatch) -> str:
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return base64.b64encode(stream.getvalue()).decode()


def read_bounds(bounds: str) -> pa.RecordBatch:
    """Return what was encoded of the parts' bounds."""
    with pa.ipc.open_stream(base64.b64decode(bounds)) as stream:
        return stream.read_next_batch()


# --- which files may have such rows -----------------------------------------------------------------------------------------


def _where(database: Any, keys: Sequence[str], schema: pa.Schema) -> str | None:
    """Return a condition that is true for each of the keys; None where none can be said."""
    parts = [part for number, name in enumerate(keys) if (part := _about(database, column_of(number), name, schema)) is not None]
    return " and ".join(parts) or None


def _about(database: Any, column: str, name: str, schema: pa.Schema) -> str | None:
    low, high, values = database.execute(
        f"SELECT min({column}), max({column}), approx_count_distinct({column}) FROM staged"
    ).fetchone()
    if low is None:
        return None
    quoted = f'"{name}"'
    said: str | None = None
    if values <= _MOST_VALUES // 2:
        each = [row[0] for row in database.execute(f"SELECT DISTINCT {column} FROM staged ORDER BY 1").fetchall()]
        literals = [_literal(value) for value in each]
        if len(each) <= _MOST_VALUES and None not in literals:
            said = f"{quoted} in ({', '.join(str(literal) for literal in literals)})"
    if said is None:
        first, last = _literal(low), _literal(high)
        if first is None or last is None:
            return None
        said = f"{quoted} >= {first} and {quoted} <= {last}"
    try:
        Filter(parse_where(said), schema)
    except NeedsChange:  # a name or a value that a row filter cannot have
        return None
    return said


def _literal(value: Any) -> str | None:
    match value:
        case bool():
            return str(value).lower()
        case int() | Decimal():
            return str(value) if not isinstance(value, Decimal) else f"{value:f}"
        case str() if len(value) <= _MOST_TEXT:
            return "'" + value.replace("'", "''") + "'"
        case datetime.datetime():
            return f"'{value.isoformat()}'"
        case datetime.date():
            return f"'{value.isoformat()}'"
    return None
