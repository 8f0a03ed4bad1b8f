"""How far the write of a manifest is, told from its checkpoint store alone: one word, and what it rests on.

The store does not know whether a driver lives: an attempt that is not closed may be at work or may have been cut off. Called
by the commands `status` and `validate`; no rule rests on it.
"""

from __future__ import annotations

import contextlib
from typing import Final, Literal

from pydantic import Field

from checkpoint_operator.activity import describe
from checkpoint_operator.commit.presence import Presence
from checkpoint_operator.inspected import Shown, ShownAttempt, ShownCommit, ShownEpoch, ShownError, ShownFailure, ShownSums
from checkpoint_operator.inspection import Inspector
from checkpoint_operator.progress import measure
from checkpoint_operator.registration import changed_parts
from checkpoint_operator.tallies import Tallies
from checkpoint_protocol import writes
from checkpoint_protocol.errors import CheckpointError, Corrupt
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import CheckpointedWrite
from checkpoint_protocol.store import ObjectStore

Phase = Literal["NotStarted", "Open", "Incomplete", "Failed", "Sealed", "Committed", "Deleted", "Unknown"]

_MEANINGS: Final[dict[Phase, str]] = {
    "NotStarted": "no attempt was recorded",
    "Open": "an attempt is not closed: it is at work, or was interrupted; the store cannot tell which",
    "Incomplete": "the last attempt ended before all was sealed; the next one goes on from there",
    "Failed": "the last attempt ended with something that a person has to change",
    "Sealed": "all rows are sealed, and the commit is still to be made or to be marked; a run does so",
    "Committed": "the commit was seen in the table",
    "Deleted": "nothing of it is committed any more; checkpointed-write forget ends what was begun with that",
    "Unknown": "a record cannot be read",
}


class Status(Shown):
    """One write in its current epoch."""

    name: str
    namespace: str
    uid: str | None = Field(description="Null before its first run.")
    checkpoint: str
    phase: Phase
    meaning: str
    epoch: int
    new_epoch_wanted: bool = Field(description="The manifest's runNonce is not that of the last epoch that was begun.")
    identity_changed: tuple[str, ...] = Field(description="Of source, sink and checkpoint, what is not as the write began.")
    attempt: int | None
    tasks: int | None
    tasks_done: int
    way: Literal["splits", "dataframes"] = Field(description="Whether rows are known by position, or by keys.")
    why_this_way: str
    activity: str | None = Field(
        description="What the driver of an open attempt has told last: what it is at, and how far. Null: nothing is known."
    )
    input_files: int | None
    input_bytes: int | None
    input_table: str | None = Field(description="The source table at its snapshot or version; null where the source is files.")
    input_files_done: int | None = Field(description="Whole input files that the last attempt does not open: they are sealed.")
    sealed: ShownSums
    claims: int
    failure: ShownFailure | None = Field(description="The last that a driver of this epoch has told.")
    committed_epoch: int | None = Field(description="The epoch of `commit`: this one, or the one before.")
    commit: ShownCommit | None
    table: Presence | None = Field(default=None, description="Whether the commit is still in the table; null: not looked at.")
    errors: tuple[ShownError, ...]


def read_status(manifest: CheckpointedWrite, store: ObjectStore | None) -> Status:
    """Return the status of a manifest's write. None for a store that does not exist: then nothing was begun.

    Raises Corrupt if even the write's name or epochs cannot be read.
    """
    uid = None
    if store is not None:
        uid = writes.look_up_name(store, manifest.metadata.namespace, manifest.metadata.name)
    if store is None or uid is None:
        return _status(manifest, None, _empty_epoch(1), None, False, (), ())
    inspector = Inspector(store)
    write = writes.read_write(store, uid)
    changed: tuple[str, ...] = ()
    if write is not None:
        with contextlib.suppress(Corrupt):  # the record at fault is named among the epoch's
            changed = changed_parts(store, write, manifest.spec)
    epochs = writes.list_epochs(store, uid)
    current = inspector.read_epoch(EpochKey(uid, epochs[-1])) if epochs else _empty_epoch(1)
    is_wanted = current.run_nonce is not None and current.run_nonce != manifest.spec.run_nonce
    committed = (current.epoch, current.commit) if current.commit else None
    if committed is None and current.epoch > 1:
        commit = inspector.read_commit(EpochKey(uid, current.epoch - 1))
        committed = (current.epoch - 1, commit) if commit else None
    if current.is_committed and is_wanted:
        current = _empty_epoch(current.epoch + 1)
    status = _status(manifest, uid, current, committed, is_wanted, changed, inspector.errors)
    if status.phase != "Unknown" and writes.read_deleted(store, uid) is not None:
        return status.model_copy(update={"phase": "Deleted", "meaning": _MEANINGS["Deleted"]})
    return status.model_copy(update={"activity": _activity(store, uid, current)}) if status.phase == "Open" else status


def _activity(store: ObjectStore, uid: str, epoch: ShownEpoch) -> str | None:
    try:
        progress = measure(Tallies(Ledger(store, EpochKey(uid, epoch.epoch))))
    except CheckpointError:
        return None
    return describe(progress) if progress.phase is not None else None


def _status(
    manifest: CheckpointedWrite,
    uid: str | None,
    current: ShownEpoch,
    committed: tuple[int, ShownCommit] | None,
    new_epoch_wanted: bool,
    identity_changed: tuple[str, ...],
    errors: tuple[ShownError, ...],
) -> Status:
    last = current.attempts[-1] if current.attempts else None
    failures = [attempt.failure for attempt in current.attempts if attempt.failure is not None]
    phase: Phase = "Unknown" if errors else phase_of(current)
    return Status(
        name=manifest.metadata.name,
        namespace=manifest.metadata.namespace,
        uid=uid,
        checkpoint=manifest.spec.checkpoint.uri,
        phase=phase,
        meaning=_MEANINGS[phase],
        epoch=current.epoch,
        new_epoch_wanted=new_epoch_wanted,
        identity_changed=identity_changed,
        attempt=last.attempt if last else None,
        tasks=last.tasks if last else None,
        tasks_done=last.tasks_done if last else 0,
        way="dataframes" if manifest.spec.source.is_dataframe else "splits",
        why_this_way=manifest.spec.source.why_this_way,
        activity=None,
        input_files=current.input_files,
        input_bytes=current.input_bytes,
        input_table=current.input_table,
        input_files_done=last.input_files_done if last else None,
        sealed=current.sealed,
        claims=len(current.claims),
        failure=failures[-1] if failures else None,
        committed_epoch=committed[0] if committed else None,
        commit=committed[1] if committed else None,
        errors=errors,
    )


def phase_of(epoch: ShownEpoch) -> Phase:
    """Return the phase of an epoch all of whose records could be read. The first that applies wins."""
    if epoch.is_committed:
        return "Committed"
    if not epoch.attempts:
        return "NotStarted"
    last = epoch.attempts[-1]
    if last.complete or (not last.closed and _is_sealed(last)):
        return "Sealed"
    if last.failure is not None and last.failure.family != "Retryable":
        return "Failed"
    return "Incomplete" if last.closed or last.failure is not None else "Open"


def _is_sealed(attempt: ShownAttempt) -> bool:
    return attempt.tasks is not None and attempt.tasks_done == attempt.tasks


def _empty_epoch(number: int) -> ShownEpoch:
    return ShownEpoch(
        epoch=number,
        run_nonce=None,
        input_files=None,
        input_bytes=None,
        input_table=None,
        attempts=(),
        sealed=ShownSums(),
        claims=(),
        is_committed=False,
        commit=None,
    )
