"""What `validate` sees of a sink's table without changing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from checkpoint_commit.sinks.writable import why_not_writable
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.records import Output
from checkpoint_protocol.store.object_store import local_path


@dataclass(frozen=True, slots=True)
class TargetSeen:
    """The table as it is now.

    `exists` is None where that could not be told. `columns` has for each whether every row needs a value; None: not known.
    `file_size_bytes` is what the table says of the size of data files. `problems` and `notes` go by the field that they are
    about: spec.sink.iceberg.catalog.
    """

    title: str
    exists: bool | None
    columns: Mapping[str, bool] | None = None
    is_partitioned: bool = False
    file_size_bytes: int | None = None
    outputs: tuple[Output, ...] = ()
    problems: tuple[tuple[str, str | CheckpointError], ...] = ()
    notes: tuple[str, ...] = ()


def folder_problems(field: str, place: str | None) -> tuple[tuple[str, str], ...]:
    """Say why data files cannot be put at a place. A name, as some REST catalogs have for a warehouse, is no place."""
    folder = local_path(place) if place is not None and ("/" in place or ":" in place) else None
    if folder is None or (why := why_not_writable(folder)) is None:
        return ()
    return ((field, f"data files cannot be put into {place}: {why}"),)
