"""Which format a manifest's sink has: the one place that lists them, and what is asked of any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from checkpoint_operator.commit.presence import Presence
from checkpoint_operator.ports import Sink
from checkpoint_operator.sink_formats.iceberg import IcebergFormat
from checkpoint_operator.sink_formats.lance import LanceFormat
from checkpoint_operator.sink_formats.none import NoFormat
from checkpoint_operator.sink_formats.port import SinkFormat
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.sink import IcebergSink, LanceSink, NoSink
from checkpoint_protocol.sink import Sink as SinkSpec

if TYPE_CHECKING:
    from checkpoint_operator.catalogs import CatalogBook


def format_of(spec: SinkSpec) -> SinkFormat:
    match spec.named:
        case IcebergSink() as named:
            return IcebergFormat(spec, named)
        case LanceSink() as named:
            return LanceFormat(spec, named)
        case NoSink():
            return NoFormat()
        case other:
            assert_never(other)


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
