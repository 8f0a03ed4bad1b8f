"""What is said of a committed write whose table has changed since: gone, another one, or rolled back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from rich.console import Console

from checkpoint_commit.outcomes import Presence
from checkpoint_commit.sinks.registry import find_committed
from checkpoint_control.views.inspection import open_existing
from checkpoint_control.views.stored_status import StoredStatus
from checkpoint_control.writes.former import warn_of_former
from checkpoint_local.cli.printing import say_problem
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import CommitRecord


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that is recorded: what both its record and `status` know of it."""

    key: EpochKey
    target: str
    table_identity: str | None
    commit_id: int | None
    rows_written: int


def say_former(manifest: CheckpointedWrite, settings: Settings, console: Console) -> None:
    """Say, before a run, that its table has rows of a former write of its name."""
    try:
        store = open_existing(manifest.spec.checkpoint.uri, settings)
    except CheckpointError:
        return  # the run says it
    if (warning := warn_of_former(manifest, store, settings)) is not None:
        console.print(f"warning: {warning}", style="yellow", markup=False)


def recorded(key: EpochKey, commit_record: CommitRecord) -> Commit:
    return Commit(key, commit_record.target, commit_record.table_identity, commit_record.commit_id, commit_record.rows_written)


def commit_of(status: StoredStatus) -> Commit | None:
    """Return the commit that a status shows, if there is one."""
    if status.commit is None or status.committed_epoch is None or status.uid is None:
        return None
    shown = status.commit
    key = EpochKey(status.uid, status.committed_epoch)
    return Commit(key, shown.target, shown.table_identity, shown.commit_id, shown.rows_written)


def find_presence(commit: Commit, sink: Sink, settings: Settings, console: Console) -> Presence | None:
    """Return whether the commit is still in the table; None, having said why, if that could not be read."""
    try:
        return find_committed(sink, settings, commit.key, commit.table_identity, commit.commit_id)
    except CheckpointError as error:
        console.print(f"{commit.target} could not be read: {error.message}", style="yellow", markup=False)
        return None


def say(presence: Presence | None, commit: Commit, file: Path | str, console: Console) -> bool:
    """Say what is not as it was committed; return whether the rows are lost with their table."""
    if (lost := loss(presence, commit, file)) is not None:
        say_problem(console, f"error: {lost.reason}: {lost.message}")
    elif (warning := warn(presence, commit, file)) is not None:
        console.print(f"warning: {warning}", style="yellow", markup=False)
    return lost is not None


def warn(presence: Presence | None, commit: Commit, file: Path | str) -> str | None:
    """Return what is said of rows that the table has, and its current state has not; None of others."""
    if presence is Presence.ROLLED_BACK:
        before = f"since then the table was rolled back to before {commit.commit_id}"
        what = f"{before}, so that its rows are not in the current state"
        return f"{_was(commit)}; {what}. A run adds nothing. Roll the table forward, or, {_anew(file)}"
    if presence is Presence.BRANCH_DROPPED:
        what = "since then the branch was dropped, and main does not have its rows"
        again = f"Make the branch again from snapshot {commit.commit_id}"
        return f"{_was(commit)}; {what}. A run adds nothing. {again}, or, {_anew(file)}"
    return None


def loss(presence: Presence | None, commit: Commit, file: Path | str) -> NeedsChange | None:
    """Return what is said of rows that are lost with their table; None where they are not. `file` is the manifest."""
    match presence:
        case Presence.GONE:
            what = "the table is gone since"
            return NeedsChange(reasons.TABLE_MISSING, f"{_was(commit)}; {what}; {_anew(file)}")
        case Presence.REPLACED:
            what = "since then it was dropped and made again, or restored to before this write, so that its rows are not in it"
            return NeedsChange(reasons.TABLE_REPLACED, f"{_was(commit)}; {what}; {_anew(file)}")
        case None | Presence.HERE | Presence.ROLLED_BACK | Presence.BRANCH_DROPPED:
            return None
        case other:
            assert_never(other)


def _was(commit: Commit) -> str:
    return f"the write was committed to {commit.target} ({counted(commit.rows_written, 'row')} of {commit.key})"


def _anew(file: Path | str) -> str:
    return f"to write everything again: checkpointed-write forget {file}, and then run it"
