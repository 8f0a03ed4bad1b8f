"""Staging of Parquet files in a folder, under names that no reader takes for data: they begin with an underscore."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from checkpoint_protocol.records.formats.plain import PlainFile, PlainTarget

from checkpoint_formats.port import Stager
from checkpoint_formats.rows.plain_types import decode_schema
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.places.storage import StorageSettings


def open_stager(target: PlainTarget, key: EpochKey, label: str, target_bytes: int, storage: StorageSettings) -> Stager:
    return PlainStager(target)


def columns_of(target: PlainTarget) -> tuple[str, ...]:
    return tuple(decode_schema(target.arrow_schema).names)


class PlainStager:
    def __init__(self, target: PlainTarget) -> None:
        self._folder = Path(target.uri)
        self._schema = decode_schema(target.arrow_schema)

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._schema

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[PlainFile, ...]:
        table = pa.Table.from_batches(list(batches), self._schema)
        if not table.num_rows:
            return ()
        path = self._folder / f"_{uuid.uuid4().hex}.parquet"
        pq.write_table(table, path)
        return (PlainFile(path=str(path), size_bytes=path.stat().st_size, rows=table.num_rows),)
