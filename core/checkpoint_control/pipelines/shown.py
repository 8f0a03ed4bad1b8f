"""What a run would do with the stages of a write, for people: `checkpointed-write plan`. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from pydantic import Field

from checkpoint_control.decision.triggers import next_epoch
from checkpoint_control.pipelines.decisions import Cause, Decision, What, decide_stages
from checkpoint_control.pipelines.inherited import Parent
from checkpoint_control.pipelines.inherited import foresee as foresee_inherited
from checkpoint_control.pipelines.results import DigestOf, foresee, see_stages, wanted_stages
from checkpoint_control.progress.epoch_progress import measure
from checkpoint_control.progress.tallies import Tallies
from checkpoint_control.views.inspected import Shown
from checkpoint_protocol import writes
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.pipelines import parts_of
from checkpoint_protocol.manifest.spec import CheckpointedWrite, Spec
from checkpoint_protocol.records import HASH_ALGORITHM, InheritedRecord
from checkpoint_protocol.store.object_store import ObjectStore

#: Of a write that is not begun.
_NOBODY: Final = "0" * 16


@dataclass(frozen=True, slots=True)
class Pace:
    """How many rows were read in how many seconds, by all tasks together."""

    rows: int
    seconds: float

    def seconds_for(self, rows: int) -> int:
        return round(rows * self.seconds / self.rows)


def pace_of(ledger: Ledger) -> Pace | None:
    """Return the pace of a stage: of each attempt, the time from its plan to its last seal, by the store's clock.

    None where no row is sealed, or the store does not say when objects were put. The first part of an attempt, before its plan,
    and what was not sealed are left out. One listing for each attempt.
    """
    seconds = 0.0
    for number in ledger.attempts.list_attempts():
        plan, folder = ledger.at.plan(number), ledger.at.seals(number)
        put = {stored.path: stored.modified for stored in ledger.store.list(plan.rpartition("/")[0] + "/") if stored.modified}
        sealed = [at for path, at in put.items() if path.startswith(folder)]
        if plan in put and sealed:
            seconds += max(0.0, (max(sealed) - put[plan]).total_seconds())
    rows = measure(Tallies(ledger)).rows_read
    return Pace(rows, seconds) if rows and seconds else None


class ShownStage(Shown):
    """What becomes of one stage, with those that are done together with it."""

    name: str
    what: What | Literal["inherit"] = Field(
        description="keep: it is done. continue: its rows that are left. begin: all of them. redo: all, once more. inherit: what "
        "another write has of it (spec.inherit), and then its rows that are left."
    )
    because: tuple[Cause, ...] = Field(description="What has changed, where it is done once more.")
    rows_done: int | None = Field(description="Rows that it has been through, of those that it reads; null where none counts.")
    rows_left: int | None = Field(description="Null where that is not known yet: the stage before is not done.")
    seconds_left: int | None = Field(
        description="About how long these take at the pace at which rows of the stage were done before, without the start of a "
        "driver; null where none were, or rowsLeft is not known."
    )
    code_versions: int | None = Field(
        description="With how many versions of its code these rows were made (onCodeChange: Continue); null where it is not done."
    )


class ShownCode(Shown):
    """What the code of one stage is. Paths are relative to the folder, or the archive."""

    stage: str = Field(description="Empty for a write without stages.")
    files: tuple[str, ...] = Field(description="Empty where the code is in an image, or in installed packages.")
    by_size: tuple[str, ...] = Field(description="Those of them that count with their names and sizes only.")
    not_followed: tuple[str, ...] = Field(description="Imports that only running the code would tell.")


class ShownPlan(Shown):
    """What a run would do."""

    namespace: str
    name: str
    epoch: int
    is_committed: bool = Field(description="The epoch is committed, and no other is asked for: a run does nothing.")
    stages: tuple[ShownStage, ...] = Field(description="Of a write without stages it is one, with the name of the write.")
    code: tuple[ShownCode, ...] = ()


def plan_stages(
    manifest: CheckpointedWrite, store: ObjectStore | None, digest_of: DigestOf, parent: Parent | None = None
) -> ShownPlan:
    """Return the plan. `store`: None where there is none yet. Raises CheckpointError where records cannot be read.

    `parent`: the write whose results are taken over.
    """
    metadata, spec = manifest.metadata, manifest.spec
    ledger, is_committed = _current(store, manifest) if store is not None else (None, False)
    if not spec.stages:
        decisions: Sequence[Decision] = (_decide(ledger, manifest, digest_of),)
    elif ledger is None:
        decisions = decide_stages(wanted_stages(spec, parts_of(spec.stages, spec.reset), digest_of), {}, HASH_ALGORITHM)
    else:
        decisions = foresee(ledger, spec, digest_of)
    stages = _all_shown(ledger, spec, decisions) if not is_committed else ()
    epoch = ledger.key.epoch if ledger is not None else 1
    if parent is not None and store is not None and not is_committed:
        here = ledger or Ledger(store, EpochKey(_NOBODY, epoch))
        inherited = foresee_inherited(here, spec, decisions, digest_of, parent)
        stages = tuple(_as_inherited(here, one, inherited.get(one.name)) for one in stages)
    return ShownPlan(namespace=metadata.namespace, name=metadata.name, epoch=epoch, is_committed=is_committed, stages=stages)


def _as_inherited(epoch: Ledger, stage: ShownStage, inherited: InheritedRecord | None) -> ShownStage:
    if inherited is None:
        return stage
    theirs = replace(epoch, key=EpochKey(inherited.uid, 1, inherited.stage))
    counted = (one.attempt for one in inherited.attempts if any(one.chain_lengths))
    rows = sum(seal.rows_read for seal in theirs.chains.seals_so_far(counted))
    left = 0 if inherited.is_done else _rows_left(theirs, rows)
    return stage.model_copy(update={"what": "inherit", "rows_done": rows, "rows_left": left})


def _decide(ledger: Ledger | None, manifest: CheckpointedWrite, digest_of: DigestOf) -> Decision:
    """Return what becomes of a write without stages, as if it were one."""
    name, spec = manifest.metadata.name, manifest.spec
    numbers = ledger.attempts.list_attempts() if ledger is not None else []
    launch = ledger.attempts.read_launch(numbers[-1]) if ledger is not None and numbers else None
    if launch is None:
        return Decision(name, "begin", "", HASH_ALGORITHM, "")
    if launch.reset_nonce != spec.reset_nonce:
        return Decision(name, "redo", "", HASH_ALGORITHM, "", ("reset",))
    is_changed = launch.code_digest != digest_of(spec)
    what: What = "redo" if is_changed and spec.on_code_change == "Restart" else "continue"
    return Decision(name, what, "", HASH_ALGORITHM, "", ("code",) if is_changed else ())


def plan_from_here(manifest: CheckpointedWrite, store: ObjectStore | None, digest_of: DigestOf) -> tuple[ShownStage, ...]:
    """Return what a run on this machine would do with the stages; nothing where that cannot be told.

    In a cluster the image is a part of the code, so that a comparison from here would have all of it changed.
    """
    spec = manifest.spec
    if not spec.stages or spec.code.config_map is not None:
        return ()
    try:
        return () if is_of_a_cluster(manifest, store) else plan_stages(manifest, store, digest_of).stages
    except CheckpointError:
        return ()


def is_of_a_cluster(manifest: CheckpointedWrite, store: ObjectStore | None) -> bool:
    """Whether attempts of the epoch that a run would be at are recorded by no machine's name."""
    epoch = _current(store, manifest)[0] if store is not None else None
    if epoch is None:
        return False
    ledgers = [epoch, *(replace(epoch, key=key) for key in writes.list_stages(epoch.store, epoch.key))]
    launches = (ledger.attempts.read_launch(1) for ledger in ledgers)
    return any(launch is not None and not launch.recorded_by for launch in launches)


def _current(store: ObjectStore, manifest: CheckpointedWrite) -> tuple[Ledger | None, bool]:
    """Return the ledger of the epoch that a run would be at, and whether that is committed."""
    uid = writes.look_up_name(store, manifest.metadata.namespace, manifest.metadata.name)
    last = writes.last_epoch(store, uid) if uid is not None else None
    if uid is None or not last:
        return None, False
    ledger = Ledger(store, EpochKey(uid, last))
    commit = ledger.commits.read_commit()
    if commit is None:
        return ledger, False
    following = next_epoch(last, _asked_by(ledger), manifest.spec.run_nonce, was_deleted=commit.was_deleted)
    return (ledger, True) if following is None else (replace(ledger, key=EpochKey(uid, following.number)), False)


def _asked_by(ledger: Ledger) -> str | None:
    first = ledger.attempts.read_launch(1)
    return first.run_nonce if first is not None else None


def _all_shown(epoch: Ledger | None, spec: Spec, decisions: Sequence[Decision]) -> tuple[ShownStage, ...]:
    seen = see_stages(epoch, parts_of(spec.stages, spec.reset)) if epoch is not None and spec.stages else {}
    shown: list[ShownStage] = []
    given: int | None = None
    for decision in decisions:
        folders = [found.folder for found in seen.get(decision.name, ())]
        if not spec.stages and decision.what != "begin":
            folders = [decision.folder]
        one, given = _shown(epoch, decision, given, folders)
        shown.append(one)
    return tuple(shown)


def _shown(epoch: Ledger | None, decision: Decision, given: int | None, folders: Sequence[str]) -> tuple[ShownStage, int | None]:
    """Return a stage, and how many rows it gives to the next one: None where that is not known.

    `given`: how many it is given. `folders`: what there is of it, the latest last.
    """
    done = versions = gives = seconds = None
    left = given
    if epoch is not None and decision.what in ("keep", "continue"):
        ledger = _stage_of(epoch, decision.folder)
        commit = ledger.commits.read_commit()
        if commit is not None:
            done, left, versions, gives = commit.rows_read, 0, len(commit.code_digests), commit.rows_written
        elif decision.what == "continue":
            done = measure(Tallies(ledger)).rows_read
            left = _rows_left(ledger, done)
    if epoch is not None and decision.what == "redo" and left is None and not {"input", "upstream"} & {*decision.because}:
        left = _rows_left(_stage_of(epoch, folders[-1]), 0)
    if epoch is not None and left and folders:
        pace = pace_of(_stage_of(epoch, folders[-1]))
        seconds = pace.seconds_for(left) if pace is not None else None
    return ShownStage(
        name=decision.name,
        what=decision.what,
        because=decision.because,
        rows_done=done,
        rows_left=left,
        seconds_left=seconds,
        code_versions=versions,
    ), gives


def _stage_of(epoch: Ledger, folder: str) -> Ledger:
    return replace(epoch, key=epoch.key.of_stage(folder)) if folder else epoch


def _rows_left(ledger: Ledger, done: int) -> int | None:
    numbers = ledger.attempts.list_attempts()
    launch = ledger.attempts.read_launch(numbers[-1]) if numbers else None
    given = ledger.inputs.read_input(launch.input_since) if launch is not None else None
    rows = given.totals.rows if given is not None else None
    return None if rows is None else max(0, rows - done)
