"""Lance datasets: read at a version, and staged for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checkpoint_formats.port import Reader, Stager
    from checkpoint_protocol.identity import EpochKey
    from checkpoint_protocol.places.storage import StorageSettings
    from checkpoint_protocol.records import LanceTarget
    from checkpoint_protocol.records.formats.lance import PinnedLance


def open_reader(table: PinnedLance, storage: StorageSettings) -> Reader:
    if table.packed is not None:
        from checkpoint_formats.lance.packing.reader import PackReader

        return PackReader(table, table.packed, storage)
    from checkpoint_formats.lance.reader import LanceReader

    return LanceReader(table, storage)


def open_stager(target: LanceTarget, _key: EpochKey, _label: str, target_bytes: int, storage: StorageSettings) -> Stager:
    from checkpoint_formats.lance.stager import LanceStager
    from checkpoint_formats.port import Placed

    return Placed(LanceStager(target, target_bytes, storage), target.uri)


def columns_of(target: LanceTarget) -> tuple[str, ...]:
    from checkpoint_formats.rows.plain_types import decode_schema

    return tuple(decode_schema(target.arrow_schema).names)
