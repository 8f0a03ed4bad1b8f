"""Merges of upserts: what checkpoint_work.tasks.merge and the readers of formats do, on the rows of the simulation.

The records are the production ones (keys, inputs, seals); the join is a look at each row.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from checkpoint_formats.merging.reading import DELETED_ROWS
from checkpoint_formats.port import Chunk
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import (
    IcebergDeletes,
    InputRecord,
    LanceDeletes,
    LaunchRecord,
    Merge,
    MergeKeysRecord,
    StagedFile,
)
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.parts import Input
from tests.simulation.scheduler import Scheduler
from tests.simulation.tables import DataFiles, SimulatedTable

KEY_SCHEMA: Final = pa.schema([("id", pa.int64())])


def fix_merge_input(table: SimulatedTable, ledger: Ledger, epoch: Ledger, launch: LaunchRecord, merge: Merge) -> Input:
    """As checkpoint_work.tasks.merge.fix_merge_input."""
    recorded = ledger.inputs.read_input(launch.input_since)
    if recorded is not None:
        return recorded
    staged = [file for seal in epoch.chains.counted_seals(merge.attempts) for file in seal.files]
    if epoch.merges.read_keys() is None:
        _put_keys(table.files, epoch, merge, staged)
    files = table.files_to_merge(launch, merge)
    found = InputRecord(token=new_token(), files=files, arrow_schema=encode_schema(KEY_SCHEMA))
    return ledger.inputs.put_input(found, launch.input_since)


def _put_keys(files: DataFiles, epoch: Ledger, merge: Merge, staged: Sequence[StagedFile]) -> None:
    numbers = sorted({number for file in staged for number, _ in files.rows_in(file.paths)})
    part = epoch.merges.put_part(new_token(), len(numbers), json.dumps(numbers).encode())
    record = MergeKeysRecord(token=new_token(), keys=merge.keys, rows=len(numbers), parts=(part,), bounds="", where=None)
    epoch.merges.put_keys(record)


@dataclass(slots=True)
class SimulatedMergeReader:
    """Gives where rows lie whose key a staged row has. Implements Reader. `epoch`: its ledger, which has the keys."""

    scheduler: Scheduler
    files: DataFiles
    epoch: Ledger
    _keys: frozenset[int] | None = None

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        assert file.end is not None
        return file.end

    def check_unchanged(self, file: SourceFile) -> None:
        pass

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        keys = self._known()
        rows = self.scheduler.at("read-keys", file.path, lambda _: self.files.rows[file.path])
        at = [position for position, row in enumerate(rows) if row[0] in keys]
        batch = pa.record_batch([[file.path] * len(at), at], schema=DELETED_ROWS)
        yield Chunk(batch, piece.start, piece.end, kept=pa.array([position - piece.start for position in at], pa.int64()))

    def _known(self) -> frozenset[int]:
        if self._keys is None:
            record = self.epoch.merges.read_keys()
            if record is None:
                raise Corrupt(reasons.RECORD_UNREADABLE, "the keys are gone; was the write deleted?")
            self._keys = frozenset(number for part in record.parts for number in json.loads(self.epoch.merges.read_part(part)))
        return self._keys


@dataclass(slots=True)
class SimulatedDeletesStager:
    """Stages one file for each data file that rows are deleted of. Implements Stager."""

    scheduler: Scheduler
    files: DataFiles
    make: type[IcebergDeletes] | type[LanceDeletes]
    layout: int
    label: str
    arrow_schema: pa.Schema = field(default=DELETED_ROWS)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        held: dict[str, set[int]] = defaultdict(set)
        for batch in batches:
            for row in batch.to_pylist():
                held[row["file_path"]].add(row["pos"])
        return tuple(self._stage(path, frozenset(held[path])) for path in sorted(held))

    def _stage(self, data_file: str, positions: frozenset[int]) -> StagedFile:
        def effect(_: object) -> str:
            path = f"{self.files.new_name(self.label)}.lance"
            self.files.put_deletes(path, data_file, positions, self.layout)
            return path

        path = self.scheduler.at("stage", f"deletes of {data_file}", effect)
        size_bytes, rows = self.files.size_of(path), len(positions)
        if self.make is IcebergDeletes:
            return IcebergDeletes(path=path, size_bytes=size_bytes, rows=rows, data_file=data_file)
        return LanceDeletes(path=path, size_bytes=size_bytes, rows=rows, source=data_file)


def epoch_of(key: EpochKey) -> EpochKey:
    """Return the epoch of a stage."""
    return EpochKey(key.uid, key.epoch)
