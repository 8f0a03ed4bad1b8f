"""What the operator and `validate` ask of the format of a sink."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from checkpoint_commit.outcomes import Former, Presence
from checkpoint_commit.ports import Sink
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.sink import Sink as SinkSpec
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import Output
from checkpoint_protocol.store.object_store import local_path

if TYPE_CHECKING:
    import pyarrow as pa

    from checkpoint_commit.catalogs.named import CatalogBook


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


class SinkFormat(Protocol):
    """A sink as its manifest names it. To have one opens nothing; table libraries are imported where they are needed only."""

    @property
    def version_word(self) -> str:
        """What the format calls a version of a table, e.g. "snapshot"."""

    @property
    def output(self) -> Output | None:
        """Where data files go as far as the manifest says it; None where only the table knows."""

    @property
    def title(self) -> str:
        """Name the table, for people."""

    @property
    def field(self) -> str:
        """The field of the manifest that names the table."""

    @property
    def needs_settings(self) -> bool:
        """Whether the table can be found by the settings only."""

    def examine(self, settings: Settings) -> TargetSeen:
        """Return what is seen of the table without changing anything."""

    def notes_on(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return what is to be known of a table with these columns."""

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise NeedsChange if no table can be made of these columns."""

    def open(self, settings: Settings, catalogs: CatalogBook | None, written_by: str) -> Sink:
        """Return the port of the reconcile loop. `written_by`: namespace and name, said beside the key of a commit."""

    def find_committed(self, settings: Settings, key: EpochKey, identity: str, commit_id: int) -> Presence:
        """Return what the table shows of a commit that was recorded. Changes nothing, and makes no catalog.

        Raises Retryable where catalog or store do not answer, NeedsChange where they refuse.
        """

    def find_former(self, settings: Settings, name: str, uid: str | None) -> Former | None:
        """Return a commit of another write of that name (namespace/name) in the table, if the table still tells.

        Changes nothing, and raises as `find_committed` does.
        """

    def how_to_read(self, settings: Settings) -> str | None:
        """Return Python that shows the first rows, for a terminal; None where there is no table. It has no secret."""


class CommittingFormat(Protocol):
    """A module of this package, which a kind of sinks names. To import it imports no table library."""

    def format_of(self, spec: SinkSpec, named: Any, /) -> SinkFormat:
        """Return the format of a manifest's sink. `named`: what the manifest says of this kind."""


def why_not_writable(place: Path) -> str | None:
    """Say why nothing can be put at a file or into a folder, which may be yet to be made; None where it can.

    Nothing is written: a quota, or a security module, may still refuse.
    """
    place = place.absolute()
    if not place.exists():
        place = next(parent for parent in place.parents if parent.exists())
        if not place.is_dir():
            return f"{place} is a file"
    needed = os.W_OK | os.X_OK if place.is_dir() else os.W_OK
    if os.access(place, needed, effective_ids=os.access in os.supports_effective_ids):
        return None
    return f"{place} cannot be written to (its permissions, or a file system that is read-only)"
