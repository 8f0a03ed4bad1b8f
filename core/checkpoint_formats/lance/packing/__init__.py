"""A Lance dataset whose fragments get files for some of their columns: see `column_files.py`. Imports no table library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from checkpoint_protocol.records import LancePackTarget

if TYPE_CHECKING:
    from checkpoint_formats.port import Stager
    from checkpoint_protocol.identity import EpochKey
    from checkpoint_protocol.places.storage import StorageSettings


def open_stager(target: LancePackTarget, _key: EpochKey, _label: str, _target_bytes: int, storage: StorageSettings) -> Stager:
    from checkpoint_formats.lance.packing.column_files import ColumnFileStager
    from checkpoint_formats.port import Placed

    return Placed(ColumnFileStager(target, storage), target.uri)


def columns_of(target: LancePackTarget) -> tuple[str, ...]:
    return target.columns
