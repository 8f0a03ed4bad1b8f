"""The result of a stage: Arrow IPC files in the checkpoint store, which have every type exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from checkpoint_formats.rows.plain_types import decode_schema

if TYPE_CHECKING:
    from checkpoint_formats.port import Stager
    from checkpoint_protocol.identity import EpochKey
    from checkpoint_protocol.places.storage import StorageSettings
    from checkpoint_protocol.records import StageTarget


def open_stager(target: StageTarget, _key: EpochKey, label: str, target_bytes: int, storage: StorageSettings) -> Stager:
    from checkpoint_formats.stage_results.stager import StageResultStager

    return StageResultStager(target, label, target_bytes, storage)


def columns_of(target: StageTarget) -> tuple[str, ...]:
    return tuple(decode_schema(target.arrow_schema).names)
