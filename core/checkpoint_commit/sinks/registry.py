"""The format of a manifest's sink, and what is asked of any of them. Each kind names its module, so that none is listed here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from checkpoint_commit.outcomes import Presence
from checkpoint_commit.ports import Sink
from checkpoint_commit.sinks.port import CommittingFormat, SinkFormat
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.sink import Sink as SinkSpec
from checkpoint_protocol.places.settings import Settings

if TYPE_CHECKING:
    from checkpoint_commit.catalogs.named import CatalogBook


def format_of(spec: SinkSpec) -> SinkFormat:
    named = spec.named
    return cast(CommittingFormat, importlib.import_module(named.committed_by)).format_of(spec, named)


def open_sink(spec: SinkSpec, settings: Settings, catalogs: CatalogBook | None = None, written_by: str = "") -> Sink:
    """Return the sink that a manifest names.

    `catalogs`: shared by all sinks of a process that has many. `written_by`: namespace and name, said beside the key of a commit.
    """
    return format_of(spec).open(settings, catalogs, written_by)


def find_committed(spec: SinkSpec, settings: Settings, key: EpochKey, identity: str | None, commit_id: int | None) -> Presence:
    """Return what the table shows of a commit that was recorded: HERE where there was nothing to commit. Changes nothing.

    Raises Retryable where catalog or store do not answer, NeedsChange where they refuse.
    """
    if identity is None or commit_id is None:
        return Presence.HERE
    return format_of(spec).find_committed(settings, key, identity, commit_id)
