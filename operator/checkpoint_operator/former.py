"""A write of which its checkpoint store knows nothing, and its table does: it was begun under another store, or that was removed.

Then a run does everything again, and appends all rows once more. Said before it, by `run` and `validate`; it stops nothing, as
it may be what is wanted.
"""

from __future__ import annotations

from checkpoint_operator.sink_formats.registry import format_of
from checkpoint_protocol import writes
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest import CheckpointedWrite
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.store import ObjectStore


def title_of(manifest: CheckpointedWrite) -> str:
    """Return the name under which a table shows the commits of a write."""
    return f"{manifest.metadata.namespace}/{manifest.metadata.name}"


def warn_of_former(manifest: CheckpointedWrite, store: ObjectStore | None, settings: Settings) -> str | None:
    """Return what is to be said before the first attempt of a write. None also where it cannot be told: a run will say why."""
    metadata, spec = manifest.metadata, manifest.spec
    try:
        uid = None if store is None else writes.look_up_name(store, metadata.namespace, metadata.name)
        if store is not None and uid is not None and writes.last_epoch(store, uid):
            return None
        former = format_of(spec.sink).find_former(settings, title_of(manifest), uid)
    except CheckpointError:
        return None
    if former is None:
        return None
    return (
        f"{former.target} has rows of a former write named {title_of(manifest)} (key {former.key}), of which "
        f"{spec.checkpoint.uri} knows nothing: it was removed, is another one, or the write was forgotten. A run does everything "
        "again, and appends all rows once more; drop the table, or bring the former store back, if that is not meant"
    )
