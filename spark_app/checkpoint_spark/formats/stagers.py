"""Which stager belongs to a target."""

from __future__ import annotations

from typing import assert_never

from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import IcebergTarget, LanceTarget, NoTarget, Target
from checkpoint_protocol.storage import StorageSettings
from checkpoint_spark.staging import Stager


def stager_for(target: Target, key: EpochKey, label: str, target_bytes: int, storage: StorageSettings) -> Stager:
    """Return a stager for one task try; `label` (attempt and task) goes into file names for people."""
    match target:
        case IcebergTarget():
            from checkpoint_spark.formats.iceberg import IcebergStager

            return IcebergStager(target, key, label, target_bytes, storage)
        case LanceTarget():
            from checkpoint_spark.formats.lance import LanceStager

            return LanceStager(target, target_bytes, storage)
        case NoTarget():
            from checkpoint_spark.formats.nothing import NoStager

            return NoStager()
        case _:
            assert_never(target)
