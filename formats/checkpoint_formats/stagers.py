"""What staging has to know of the format of a target: the one place of the formats that lists those of sinks."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, assert_never

import pyarrow as pa

from checkpoint_formats.arrow_schema import decode_schema
from checkpoint_formats.port import Stager
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import Append, IcebergTarget, LanceTarget, NoTarget, Operation, StagedFile, Target
from checkpoint_protocol.storage import StorageSettings
from checkpoint_protocol.store import disk_full, translate_store_error

_REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, slots=True)
class Placed:
    """A stager, and where its files lie: what the disk there does not take is told with that place.

    What the steps raise is an error of ours already when it comes through here.
    """

    stager: Stager
    place: str

    @property
    def arrow_schema(self) -> pa.Schema | None:
        return self.stager.arrow_schema

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        try:
            return self.stager.stage(batches)
        except OSError as error:
            if (full := disk_full(error, self.place)) is not None:
                raise full from error
            if error.errno in _REFUSED:
                raise translate_store_error(error, self.place) from error
            raise


def stager_for(
    operation: Operation, target: Target, key: EpochKey, label: str, target_bytes: int, storage: StorageSettings
) -> Stager:
    """Return a stager for one task try; `label` (attempt and task) goes into file names for people."""
    match operation:
        case Append():
            return _stager_of_rows(target, key, label, target_bytes, storage)
        case _:
            assert_never(operation)


def _stager_of_rows(target: Target, key: EpochKey, label: str, target_bytes: int, storage: StorageSettings) -> Stager:
    match target:
        case IcebergTarget():
            from checkpoint_formats.iceberg.stager import IcebergStager

            return Placed(IcebergStager(target, key, label, target_bytes, storage), target.data_location)
        case LanceTarget():
            from checkpoint_formats.lance.stager import LanceStager

            return Placed(LanceStager(target, target_bytes, storage), target.uri)
        case NoTarget():
            from checkpoint_formats.none.stager import NoStager

            return NoStager()
        case _:
            assert_never(target)


def columns_of(target: Target) -> tuple[str, ...]:
    """Return the names of the columns of a table; none where there is no table."""
    match target:
        case IcebergTarget():
            return tuple(field["name"] for field in json.loads(target.table_schema_json)["fields"])
        case LanceTarget():
            return tuple(decode_schema(target.arrow_schema).names)
        case NoTarget():
            return ()
        case _:
            assert_never(target)
