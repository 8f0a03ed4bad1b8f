"""How far the write of a manifest is, told from its checkpoint store alone: its phase, and what that rests on.

The store does not know whether a driver lives: an attempt that is not closed may be at work or may have been cut off. Called
by the commands `status`, `forget` and `validate`; no rule rests on it.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from pydantic import Field

from checkpoint_commit.outcomes import Presence
from checkpoint_control.decision.actions import Stall
from checkpoint_control.decision.observation import Observation
from checkpoint_control.decision.phases import MEANINGS, Phase, phase_of
from checkpoint_control.decision.rules import stop_over_the_limit_of_row_errors
from checkpoint_control.decision.triggers import next_epoch
from checkpoint_control.pipelines.decisions import named, title_of
from checkpoint_control.pipelines.shown import ShownStage
from checkpoint_control.progress.epoch_progress import describe, measure
from checkpoint_control.progress.tallies import Tallies, limit_of
from checkpoint_control.views.inspected import Shown, ShownAttempt, ShownCommit, ShownEpoch, ShownError, ShownFailure, ShownSums
from checkpoint_control.views.inspection import Inspector
from checkpoint_control.views.shown_records import observed, phase_in_store
from checkpoint_control.writes.registration import changed_parts
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import CheckpointError, Corrupt
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.pipelines import parts_of
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.store.object_store import ObjectStore


class StoredStatus(Shown):
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
    stage: str | None = Field(
        description="The stage that is at work, or was last: attempt, tasks, input and failure are of it, and so is sealed, if "
        "it is one of spec.stages. Null before the first attempt, after the commit, and where neither the manifest nor the "
        "commit needs a stage."
    )
    attempt: int | None
    tasks: int | None
    tasks_done: int
    row_identity: str = Field(description="By what a row is known from one attempt to the next: its position, or its key.")
    activity: str | None = Field(
        description="What the driver of an open attempt has told last: what it is at, and how far. Null: nothing is known."
    )
    input_files: int | None
    input_bytes: int | None
    input_table: str | None = Field(description="The source table at its snapshot or version; null where the source is files.")
    input_stage: str | None = Field(
        default=None, description="Of a pipeline, the stage whose result is read; null where the source is."
    )
    input_files_done: int | None = Field(description="Whole input files that the last attempt does not open: they are sealed.")
    sealed: ShownSums = Field(description="While a merge, an audit or the like is at work: the rows that wait for it.")
    rows_quarantined_before: int = Field(description="By the stages before, of a pipeline.")
    claims: int
    failure: ShownFailure | None = Field(description="The last that a driver of this epoch, or of the stage, has told.")
    committed_epoch: int | None = Field(description="The epoch of `commit`: this one, or the one before.")
    commit: ShownCommit | None
    table: Presence | None = Field(default=None, description="Whether the commit is still in the table; null: not read.")
    stages: tuple[ShownStage, ...] = Field(
        default=(),
        description="With spec.stages, until the commit: what a run here would do with each. Empty where that cannot be told: "
        "the code is not on this machine, or the write is one of a cluster.",
    )
    errors: tuple[ShownError, ...]

    @property
    def place(self) -> str:
        """The epoch, the stage and the attempt, as far as there are any."""
        parts = [
            f"epoch {self.epoch}",
            f"stage {self.stage}" if self.stage else "",
            f"attempt {self.attempt}" if self.attempt else "",
        ]
        return ", ".join(part for part in parts if part)

    @property
    def is_new(self) -> bool:
        """Whether nothing of the epoch was begun."""
        return self.phase == "Pending" and self.attempt is None


def read_status(manifest: CheckpointedWrite, store: ObjectStore | None, uid: str | None = None) -> StoredStatus:
    """Return the status of a manifest's write. None for a store that does not exist: then nothing was begun.

    `uid`: of the write, if known; otherwise its name on one machine is looked up. Raises Corrupt if even the write's name or
    epochs cannot be read.
    """
    if store is not None and uid is None:
        uid = writes.look_up_name(store, manifest.metadata.namespace, manifest.metadata.name)
    if store is None or uid is None:
        return _status(manifest, None, _empty_epoch(1), _empty_epoch(1), None, False, (), ())
    inspector = Inspector(store)
    write = writes.read_write(store, uid)
    changed: tuple[str, ...] = ()
    if write is not None:
        with contextlib.suppress(Corrupt):  # the record at fault is named among the epoch's
            changed = changed_parts(store, write, manifest.spec)
    last = writes.last_epoch(store, uid)
    current = inspector.read_epoch(EpochKey(uid, last)) if last else _empty_epoch(1)
    if current.epoch > 1 and current.attempts and _has_ended(current.attempts[-1]):
        # Nothing has come since: what is told is the epoch that is committed.
        current = inspector.read_epoch(EpochKey(uid, current.epoch - 1))
    at_work = _at_work(manifest, current)
    # With stages, the first one is asked for before the epoch has attempts of its own.
    began_with = current.run_nonce if current.attempts else at_work.run_nonce
    is_wanted = next_epoch(current.epoch, began_with, manifest.spec.run_nonce) is not None
    committed = (current.epoch, current.commit) if current.commit else None
    if committed is None and current.epoch > 1:
        commit = inspector.read_commit(EpochKey(uid, current.epoch - 1))
        committed = (current.epoch - 1, commit) if commit else None
    if current.is_committed and is_wanted:
        current = at_work = _empty_epoch(current.epoch + 1)
    is_deleted = not inspector.errors and writes.read_deleted(store, uid) is not None
    phase = phase_in_store(at_work, is_deleted=is_deleted, is_unreadable=bool(inspector.errors))
    at_work = at_work.model_copy(update={"phase": "Pending" if at_work.stage and phase == "Committed" else phase})
    status = _status(manifest, uid, current, at_work, committed, is_wanted, changed, inspector.errors)
    if phase == "Sealed" and at_work.stage is None and (refused := _over_the_limit(store, uid, manifest, current)) is not None:
        status = status.model_copy(update={"phase": "Stalled", "meaning": MEANINGS["Stalled"], "failure": refused})
    return status.model_copy(update={"activity": _activity(store, uid, at_work)}) if status.phase == "Running" else status


def _at_work(manifest: CheckpointedWrite, epoch: ShownEpoch) -> ShownEpoch:
    """Return the stage of an epoch that is at work or was last, or the epoch itself.

    A stage that was edited has several folders, and the store does not tell which is the newest: one with an open attempt goes
    before those that have none, and a later stage before an earlier one. An audit by another function than the manifest names is
    over.
    """
    if epoch.is_committed or epoch.was_deleted:
        return epoch
    spec = manifest.spec
    places = {part.name: place for place, part in enumerate(parts_of(spec.stages, spec.reset))} if spec.stages else {}
    pipeline = [(known, stage) for stage in epoch.stages if (known := named(stage.stage or "")) is not None]
    # A stage that the manifest does not have any more goes first.
    before = [stage for known, stage in sorted(pipeline, key=lambda one: (places.get(one[0].stage, -1), one[0].number))]
    after = [
        stage
        for stage in epoch.stages
        if named(stage.stage or "") is None and not stage.is_committed and stage.audit in (None, spec.sink.audit)
    ]
    begun = [stage for stage in (*before, epoch, *after) if stage.attempts]
    at_work = [stage for stage in begun if not stage.attempts[-1].closed and stage.attempts[-1].failure is None]
    return (at_work or begun or [epoch])[-1]


def _over_the_limit(store: ObjectStore, uid: str, manifest: CheckpointedWrite, epoch: ShownEpoch) -> ShownFailure | None:
    """Return why rows that are all sealed are not committed, if more of them failed than the manifest allows by now.

    No attempt has failed by that, so that none tells it: the rule of a round does.
    """
    ledger, last = Ledger(store, EpochKey(uid, epoch.epoch)), epoch.attempts[-1]
    try:
        launch = ledger.attempts.read_launch(last.attempt)
        since = launch.input_since if launch is not None else 1
        attempts = tuple(
            replace(observed(one), rows_quarantined=one.sealed.rows_quarantined, counted=one.counted, input_since=since)
            for one in epoch.attempts
        )
        seen = Observation(
            epoch=epoch.epoch,
            attempts=attempts,
            code_digest="",
            on_code_change=manifest.spec.on_code_change,
            backoff_limit=manifest.spec.backoff_limit,
            progress_deadline_s=manifest.spec.progress_deadline_s,
            row_errors=limit_of(Tallies(ledger), manifest.spec, attempts),
            is_claimed=bool(epoch.claims),
        )
        decided = stop_over_the_limit_of_row_errors(seen)
    except CheckpointError:
        return None  # a run says which record it cannot read
    if decided is None or not isinstance(stall := decided[-1], Stall):
        return None
    return ShownFailure(attempt=last.attempt, family="NeedsChange", reason=stall.reason, message=stall.message)


def _has_ended(attempt: ShownAttempt) -> bool:
    """Whether the attempt ended as its stream had no more rows."""
    return attempt.failure is not None and attempt.failure.reason == reasons.STREAM_ENDED


def _activity(store: ObjectStore, uid: str, at_work: ShownEpoch) -> str | None:
    try:
        progress = measure(Tallies(Ledger(store, EpochKey(uid, at_work.epoch, at_work.stage or ""))))
    except CheckpointError:
        return None
    return describe(progress) if progress.phase is not None else None


def _status(
    manifest: CheckpointedWrite,
    uid: str | None,
    current: ShownEpoch,
    at_work: ShownEpoch,
    committed: tuple[int, ShownCommit] | None,
    new_epoch_wanted: bool,
    identity_changed: tuple[str, ...],
    errors: tuple[ShownError, ...],
) -> StoredStatus:
    last = at_work.attempts[-1] if at_work.attempts else None
    failures = [attempt.failure for attempt in at_work.attempts if attempt.failure is not None and not _has_ended(attempt)]
    # What a merge seals are rows of the table; those that wait for it must not look lost.
    counting = current if named(at_work.stage or "") is None else at_work
    return StoredStatus(
        name=manifest.metadata.name,
        namespace=manifest.metadata.namespace,
        uid=uid,
        checkpoint=manifest.spec.checkpoint.uri,
        phase=at_work.phase,
        meaning=MEANINGS[at_work.phase],
        epoch=current.epoch,
        new_epoch_wanted=new_epoch_wanted,
        identity_changed=identity_changed,
        stage=_stage_of(manifest, at_work),
        attempt=last.attempt if last else None,
        tasks=last.tasks if last else None,
        tasks_done=last.tasks_done if last else 0,
        row_identity=manifest.spec.source.row_identity,
        activity=None,
        input_files=at_work.input_files,
        input_bytes=at_work.input_bytes,
        input_table=at_work.input_table,
        input_stage=at_work.input_stage,
        input_files_done=last.input_files_done if last else None,
        sealed=counting.sealed,
        rows_quarantined_before=counting.rows_quarantined_before,
        claims=len(current.claims),
        failure=failures[-1] if failures else None,
        committed_epoch=committed[0] if committed else None,
        commit=committed[1] if committed else None,
        errors=errors,
    )


def _stage_of(manifest: CheckpointedWrite, at_work: ShownEpoch) -> str | None:
    """Return what a stage is called: as in the manifest, where it is one of these. The last of them has the epoch's records."""
    if at_work.stage is None:
        is_last = bool(manifest.spec.stages and at_work.attempts) and not at_work.is_committed
        return manifest.spec.last_part.name if is_last else None
    return title_of(at_work.stage)


def _empty_epoch(number: int) -> ShownEpoch:
    return ShownEpoch(
        epoch=number,
        phase=phase_of(None, is_committed=False),
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
