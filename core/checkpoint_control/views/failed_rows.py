"""The rows of a write that failed, with columns of theirs that are read from the source, where it still is as it was.

Called by the command `failed` and by `Write.failed`. Puts nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice
from typing import Any, Final, TypeVar

import pyarrow as pa

from checkpoint_control.pipelines.decisions import named, title_of
from checkpoint_control.views.epoch_inspection import shown_row
from checkpoint_control.views.inspected import ShownRowError
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import LaunchRecord, QuarantinedRow, RowPosition
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.rows.quarantine import key_text
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_protocol.store.parts import Input
from checkpoint_work.inputs.reading import reader_of_input, schema_of_input

#: What is known of each row, whatever columns are asked for.
SCHEMA: Final = pa.schema(
    [
        ("epoch", pa.int64()),
        *((name, pa.string()) for name in ("stage", "place", "key", "step", "error", "message", "traceback")),
    ]
)
_AT_ONCE: Final = 1_000
#: Rows of a file that are so near, in rows or bytes, are read together with what is between them.
_NEAR: Final = 1 << 16

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row that failed. `values`: of the columns that were asked for; None where they cannot be read any more."""

    epoch: int
    stage: str | None
    error: ShownRowError
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FailedRows:
    """The rows of one epoch that failed, which are read while they are taken, once. `epoch`: None where no row has failed.

    `columns`: those that were asked for, with their types. `notes`: why values are None, as far as rows were taken.
    """

    epoch: int | None
    columns: pa.Schema
    rows: Iterator[FailedRow]
    notes: Mapping[str, None]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*SCHEMA, *self.columns])

    def batches(self) -> Iterator[pa.RecordBatch]:
        for rows in _in_parts(self.rows):
            yield pa.RecordBatch.from_pylist([_flat(row) for row in rows], self.schema)


def failed_rows(
    manifest: CheckpointedWrite,
    store: ObjectStore | None,
    storage: StorageSettings,
    epoch: int | None = None,
    columns: Sequence[str] = (),
) -> FailedRows:
    """Return the rows that failed in an epoch, of all its stages; by default of the last epoch in which any did.

    `store`: None where there is none yet. NeedsChange if there is no such epoch, or a column that no row has.
    """
    metadata = manifest.metadata
    uid = writes.look_up_name(store, metadata.namespace, metadata.name) if store is not None else None
    last = writes.last_epoch(store, uid) if store is not None and uid is not None else 0
    if epoch is not None and epoch > last:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"--epoch {epoch}: the last epoch of the write is {last}")
    for number in range(last, 0, -1) if epoch is None else (epoch,):
        assert store is not None
        assert uid is not None
        inputs = list(_inputs(Ledger(store, EpochKey(uid, number))))
        if any(next(one.rows(), None) is not None for one in inputs):
            asked, notes = _types(inputs, columns), dict[str, None]()
            rows = chain.from_iterable(_read(one, asked, storage, notes) for one in inputs)
            return FailedRows(number, asked, rows, notes)
    return FailedRows(None, pa.schema([(name, pa.null()) for name in columns]), iter(()), {})


@dataclass(frozen=True, slots=True)
class _Input:
    """What an epoch, or a stage of it, reads."""

    ledger: Ledger
    launch: LaunchRecord
    record: Input
    known: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", pa.schema([]) if self.why_unread else schema_of_input(self.launch, self.record))

    @property
    def stage(self) -> str | None:
        return self.launch.stage.name if self.launch.stage is not None else title_of(self.ledger.key.stage) or None

    @property
    def why_unread(self) -> str:
        """Why no columns of its rows are read; empty where they are."""
        if self.launch.stage is not None and self.launch.stage.groups is not None:
            return f"a row of the stage {self.stage} is known by its key, which is listed"
        source = self.launch.source
        if self.launch.reads_stage or source.files or source.iceberg or source.lance or source.union:
            return ""
        return "columns are read of files, Iceberg and Lance sources; of other sources, the key or the offset is listed"

    def rows(self) -> Iterator[QuarantinedRow]:
        for seal in self.ledger.chains.seals_so_far((*self.launch.counted, self.launch.attempt)):
            yield from self.ledger.quarantine.quarantined_rows(seal)


def _inputs(epoch: Ledger) -> Iterator[_Input]:
    """Give what counts of an epoch: the stages that its last attempt builds on, or all there are, and the epoch itself."""
    found: list[_Input] = []
    ledger: Ledger | None = epoch
    while ledger is not None and (one := _input(ledger)) is not None:
        found.insert(0, one)
        reads = one.launch.reads_stage
        ledger = replace(epoch, key=epoch.key.of_stage(reads)) if reads else None
    if found:
        yield from found
        return
    for key in writes.list_stages(epoch.store, epoch.key):
        if named(key.stage) is not None and (one := _input(replace(epoch, key=key))) is not None:
            yield one


def _input(ledger: Ledger) -> _Input | None:
    commit = ledger.commits.read_commit()
    number = commit.attempts if commit is not None else max(ledger.attempts.list_attempts(), default=0)
    launch = ledger.attempts.read_launch(number) if number else None
    record = ledger.inputs.read_input(launch.input_since) if launch is not None else None
    return _Input(ledger, launch, record) if launch is not None and record is not None else None


def _types(inputs: Sequence[_Input], columns: Sequence[str]) -> pa.Schema:
    if taken := [name for name in columns if name in SCHEMA.names]:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"--columns {taken[0]}: the answer has a column of that name")
    asked = []
    for name in dict.fromkeys(columns):
        known = next((one.known for one in inputs if name in one.known.names), None)
        if known is None:
            names = ", ".join(dict.fromkeys(name for one in inputs for name in one.known.names))
            why = f"the write reads {names}" if names else inputs[0].why_unread
            raise NeedsChange(reasons.MANIFEST_INVALID, f"--columns {name}: {why}")
        asked.append(known.field(name))
    return pa.schema(asked)


def _read(one: _Input, asked: pa.Schema, storage: StorageSettings, notes: dict[str, None]) -> Iterator[FailedRow]:
    there = pa.schema([column for column in asked if column in list(one.known)])
    for left in (column.name for column in asked if column not in list(there)):
        of = f"rows of the stage {one.stage}" if one.stage else "some rows"
        notes[one.why_unread or f"{of} have no column {left} of that type"] = None
    for rows in _in_parts(one.rows()):
        values = _values(one, rows, there, storage, notes) if len(there) else {}
        for row in rows:
            where = row.row.range if isinstance(row.row, RowPosition) else None
            file = one.record.files[where.file] if where is not None else None
            given = values.get((where.file, where.start), {}) if where is not None else {}
            yield FailedRow(
                one.ledger.key.epoch,
                one.stage,
                shown_row(row, one.record, file),
                {name: given.get(name) for name in asked.names},
            )


def _values(
    one: _Input, rows: Iterable[QuarantinedRow], columns: pa.Schema, storage: StorageSettings, notes: dict[str, None]
) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the values of the rows that can be read, by file and position."""
    # What `where` takes is known, and a text whose other columns cannot be parsed may be read.
    source = one.launch.source.model_copy(update={"columns": tuple(columns.names), "where": None})
    launch = one.launch.model_copy(update={"source": source, "on_row_error": "Quarantine"})
    reader = reader_of_input(launch, storage, one.record)
    schema = one.known if launch.reads_stage else columns  # the result of a stage has all columns
    ranges = sorted((row.row.range for row in rows if isinstance(row.row, RowPosition)), key=lambda at: (at.file, at.start))
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for number, of_file in groupby(ranges, key=lambda at: at.file):
        file = one.record.files[number]
        try:
            for piece, starts in _pieces(of_file, math.inf if file.unit == "records" else _NEAR):
                for chunk in reader.read(file, piece, schema, BatchSizing(1.0, most_rows=_AT_ONCE)):
                    for at, (start, _) in enumerate(chunk.bounds()):
                        if start in starts and at < chunk.batch.num_rows:
                            found[number, start] = chunk.batch.slice(at, 1).select(columns.names).to_pylist()[0]
        except NeedsChange as error:
            notes[error.message] = None
    return found


def _pieces(ranges: Iterable[Range], near: float) -> Iterator[tuple[Range, set[int]]]:
    """Give what is to be read of a file for rows that are sorted: where from and to, and where the rows in it start."""
    piece: Range | None = None
    starts: set[int] = set()
    for at in ranges:
        if piece is not None and piece.end is not None and at.start - piece.end <= near:
            piece = replace(piece, end=at.end)
            starts.add(at.start)
            continue
        if piece is not None:
            yield piece, starts
        piece, starts = at, {at.start}
    if piece is not None:
        yield piece, starts


def _in_parts(rows: Iterator[_T]) -> Iterator[list[_T]]:
    return iter(lambda: list(islice(rows, _AT_ONCE)), [])


def _flat(row: FailedRow) -> dict[str, Any]:
    error = row.error
    return {
        "epoch": row.epoch,
        "stage": row.stage,
        "place": error.place if error.key is None else None,
        "key": None if error.key is None else key_text(error.key, error.source or 0),
        "step": error.step,
        "error": error.error,
        "message": error.message,
        "traceback": error.traceback,
        **row.values,
    }
