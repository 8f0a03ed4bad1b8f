"""Lance datasets: read at a version, and staged for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checkpoint_formats.port import Stager
    from checkpoint_protocol.identity import EpochKey
    from checkpoint_protocol.places.storage import StorageSettings
    from checkpoint_protocol.records import LanceTarget


def open_stager(target: LanceTarget, _key: EpochKey, _label: str, target_bytes: int, storage: StorageSettings) -> Stager:
    from checkpoint_formats.lance.stager import LanceStager
    from checkpoint_formats.placed import Placed

    return Placed(LanceStager(target, target_bytes, storage), target.uri)


def columns_of(target: LanceTarget) -> tuple[str, ...]:
    from checkpoint_formats.arrow_schema import decode_schema

    return tuple(decode_schema(target.arrow_schema).names)
