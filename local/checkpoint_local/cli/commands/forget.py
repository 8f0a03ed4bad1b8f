"""`checkpointed-write forget`: remove what the store holds of a write, so that its name can begin anew."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from checkpoint_commit.outcomes import Presence
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.views.inspection import open_existing
from checkpoint_control.views.stored_status import StoredStatus, read_status
from checkpoint_control.writes.deletion import Kept
from checkpoint_control.writes.former import by_its_mode
from checkpoint_local.cli import committed, exits
from checkpoint_local.cli.exits import read_files, say_error
from checkpoint_local.cli.printing import answers, messages
from checkpoint_local.forgetting import forget
from checkpoint_protocol import writes
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.store.object_store import ObjectStore


def forget_command(file: Path, settings_file: Path | None, yes: bool, force: bool) -> int:
    """Ask, forget, and return the exit code."""
    console = messages()
    if (files := read_files(file, settings_file, console)) is None:
        return exits.MANIFEST_WRONG
    manifest, settings = files
    try:
        return _forget(manifest, settings, console, yes, force)
    except CheckpointError as error:
        say_error(error, console)
        return exits.code_of(error)


def _forget(manifest: CheckpointedWrite, settings: Settings, console: Console, yes: bool, force: bool) -> int:
    metadata, spec = manifest.metadata, manifest.spec
    title = f"{metadata.namespace}/{metadata.name}"
    store = open_existing(spec.checkpoint.uri, settings)
    status = read_status(manifest, store)
    if store is None or status.uid is None or _is_blank(store, status):
        answers().print(f"{spec.checkpoint.uri} knows nothing of {title}: there is nothing to forget", markup=False)
        return exits.DONE
    for line in _lines(status, manifest, settings, console):
        console.print(line, markup=False)
    if not yes and not click.confirm(f"Forget {title}?", err=True):
        console.print("nothing was removed", markup=False)
        return exits.FAILED
    answers().print(_removed(store, manifest, status.uid, settings, force), markup=False)
    return exits.DONE


def forget_write(manifest: CheckpointedWrite, settings: Settings, force: bool) -> str:
    """Forget a write without asking, and return what was removed."""
    store = open_existing(manifest.spec.checkpoint.uri, settings)
    status = read_status(manifest, store)
    if store is None or status.uid is None or _is_blank(store, status):
        return f"there is nothing to forget in {manifest.spec.checkpoint.uri}"
    return _removed(store, manifest, status.uid, settings, force)


def _removed(store: ObjectStore, manifest: CheckpointedWrite, uid: str, settings: Settings, force: bool) -> str:
    title = f"{manifest.metadata.namespace}/{manifest.metadata.name}"
    ended = forget(store, manifest.metadata, uid, lambda sink: open_sink(sink, settings), manifest.spec.sink, force=force)
    if isinstance(ended, Kept):
        raise NeedsChange(ended.reason, f"{ended.message}; {title} is not forgotten, and the same command goes on")
    removed = f"{counted(ended.removed.objects, 'object')} of the store and {counted(ended.removed.data_files, 'staged file')}"
    return f"forgotten: {title} was {ended.uid}; {removed} are gone, and the next run starts over"


def _is_blank(store: ObjectStore, status: StoredStatus) -> bool:
    """Whether nothing was begun under the uid that the name has: it was forgotten just now."""
    assert status.uid is not None
    return status.is_new and status.epoch == 1 and writes.read_write(store, status.uid) is None


def _lines(status: StoredStatus, manifest: CheckpointedWrite, settings: Settings, console: Console) -> list[str]:
    """Say what is lost, and what a run would do twice."""
    title = f"{status.namespace}/{status.name} in {status.checkpoint} (uid {status.uid})"
    lines = [f"{title}: {status.phase}, {status.place}, {counted(status.sealed.rows_read, 'row')} sealed"]
    commit = committed.commit_of(status)
    if commit is None or commit.commit_id is None:
        return lines
    if not status.identity_changed:
        presence = committed.find_presence(commit, manifest.spec.sink, settings, console)
        if presence in (Presence.GONE, Presence.REPLACED):
            return lines
    if manifest.spec.sink.mode == "Append":
        again = "append them once more, unless the table is dropped before"
    else:
        again = f"do everything again, {by_its_mode(manifest.spec.sink)}"
    rows = counted(commit.rows_written, "row")
    lines.append(f"warning: {commit.target} has {rows} of {commit.key}, which stay there: a run would {again}")
    return lines
