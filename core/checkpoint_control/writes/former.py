"""A write of which its checkpoint store knows nothing, and its table does: it was begun under another store, or that was removed.

Then a run does everything again, and an append adds all rows once more. On one machine that is said before it, by `run` and
`validate`; it stops nothing, as it may be what is wanted. In a cluster, where nobody may be looking, it is refused until the
manifest says so.
"""

from __future__ import annotations

from collections.abc import Callable

from checkpoint_commit.outcomes import Former
from checkpoint_commit.sinks.registry import format_of
from checkpoint_control.views.inspection import is_uid
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.manifest.spec import CheckpointedWrite, Spec
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.printable import printable
from checkpoint_protocol.store.object_store import ObjectStore


def title_of(manifest: CheckpointedWrite) -> str:
    """Return the name under which a table shows the commits of a write."""
    return f"{manifest.metadata.namespace}/{manifest.metadata.name}"


def title_in_cluster(cluster: str | None, namespace: str, name: str) -> str:
    """Return the same of an object. `cluster`: its name, where it was given one.

    Not the one that keys of records have, which is another once their Secret was emptied.
    """
    return f"{cluster}/{namespace}/{name}" if cluster is not None else f"{namespace}/{name}"


def refuse_former(store: ObjectStore, spec: Spec, uid: str, title: str, find: Callable[[], Former | None]) -> None:
    """NeedsChange if a write of which nothing was begun is to append what another of its name has committed.

    Not if the manifest asks for it, or if the store has the note that the former one was deleted: then its name is free.
    `find` asks the table, and is called for nothing else.
    """
    if spec.on_recreate == "New" or spec.sink.mode != "Append" or writes.last_epoch(store, uid):
        return
    former = find()
    if former is None or _is_deleted(store, former.key.partition("/")[0]):
        return
    raise NeedsChange(
        reasons.FORMER_WRITE_FOUND,
        f"{former.target} has rows of a former write named {title} (key {printable(former.key)[:100]}), of which "
        f"{spec.checkpoint.uri} knows nothing: checkpoint.uri is another one, the records were removed, or the operator's keys "
        "for them were. All rows would be appended once more. Bring the former store and keys back; or, if that is meant, or "
        "another cluster has written them, set spec.onRecreate to New or take another metadata.name",
    )


def _is_deleted(store: ObjectStore, uid: str) -> bool:
    try:
        return is_uid(uid) and writes.read_deleted(store, uid) is not None
    except Corrupt:  # signed with keys that are gone: whoever has put it
        return False


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
    if spec.sink.mode == "Append":
        again = "and appends all rows once more; drop the table, or bring the former store back, if that is not meant"
    else:
        again = f"{by_its_mode(spec.sink)}; bring the former store back, if that is not meant"
    return (
        f"{former.target} has rows of a former write named {title_of(manifest)} (key {former.key}), of which "
        f"{spec.checkpoint.uri} knows nothing: it was removed, is another one, or the write was forgotten. A run does everything "
        f"again, {again}"
    )


def by_its_mode(sink: Sink) -> str:
    """Say what is done again where nothing is appended: the table may have rows of others, and is not to be dropped for that."""
    return f"by sink.mode {sink.mode} with the table as it is"
