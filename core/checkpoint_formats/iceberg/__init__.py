"""Iceberg tables: read at a snapshot, and staged for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checkpoint_formats.port import Stager
    from checkpoint_protocol.identity import EpochKey
    from checkpoint_protocol.places.storage import StorageSettings
    from checkpoint_protocol.records import IcebergTarget


def open_stager(target: IcebergTarget, key: EpochKey, label: str, target_bytes: int, storage: StorageSettings) -> Stager:
    from checkpoint_formats.iceberg.stager import IcebergStager
    from checkpoint_formats.port import Placed

    return Placed(IcebergStager(target, key, label, target_bytes, storage), target.data_location)


def columns_of(target: IcebergTarget) -> tuple[str, ...]:
    return tuple(field["name"] for field in json.loads(target.table_schema_json)["fields"])
