"""Results of stages that another write of the namespace has made, taken over instead of made again (`spec.inherit`).

They are copied, the records under this write's own keys: nothing of the other write is held, and whatever becomes of it takes
nothing away from this one. A stage has to agree in what it reads, in its steps with their arguments, and in its code.

    inherited.json                   put first, in the stage's folder: which attempts of whose stage, and which of their seals
    rows, quarantine, input, seals   as they are there; of paths, the folder is this stage's
    launch, target, closed           by attempt; the last one's `closed` tells that all is there
    done.json                        if the stage was done

Whoever dies in between is followed by one that goes by the first record. No attempt of this write's own is recorded in the folder
before all is copied, and those have the numbers after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from checkpoint_commit.ports import FoundItem
from checkpoint_commit.results import target_of
from checkpoint_control.pipelines.decisions import Decision, hash_out_of, named
from checkpoint_control.pipelines.results import DigestOf, spec_up_to
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.pipelines import parts_of
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import (
    ClosedRecord,
    CommitRecord,
    InheritedAttempt,
    InheritedRecord,
    InputRecord,
    LaunchRecord,
    QuarantineRecord,
    Seal,
    StageIdentity,
    StageTarget,
    Target,
    TargetRecord,
)
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.object_store import ObjectStore, copy_object
from checkpoint_protocol.store.parts import Input

#: Only the epoch that both writes began with has all of what its source held.
_EPOCH: Final = 1
#: Seals are held in memory by so many.
_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True)
class Parent:
    """The write whose results are taken over.

    `uid`: None if no write has that name. `count_others` returns how many files the source holds beside those of an input, None
    if one of these is not there as it was. `copy` copies an object of the checkpoint store to another path there.
    """

    name: str
    uid: str | None
    count_others: Callable[[Input], int | None]
    copy: Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Heir:
    """A stage that is to begin. `ledger` is its own, `code_digest` of its code as it is now.

    `before`: what the stage that it reads takes over, where that is foreseen and not done yet.
    """

    ledger: Ledger
    identity: StageIdentity
    spec: Spec
    code_digest: str
    before: InheritedRecord | None = None

    @property
    def read_digest(self) -> str | None:
        return self.spec.source.read_digest if not self.identity.reads else None


def take_over(heir: Heir, parent: Parent) -> bool:
    """Take over what the other write has of this stage; return whether there was anything to do.

    Idempotent: what was begun is done to its end. NeedsChange if the other write is gone before that.
    """
    ledger = heir.ledger
    record = ledger.attempts.read_inherited()
    if record is None:
        if (found := find(heir, parent)) is None:
            return False
        record = ledger.attempts.put_inherited(found)
    elif _is_whole(ledger, record):
        return False
    _Copy(heir, parent, record).run()
    return True


def find(heir: Heir, parent: Parent) -> InheritedRecord | None:
    """Return what there is to take over: a result that is done, else what was sealed of one. Changes nothing."""
    ledger = heir.ledger
    if parent.uid is None or parent.uid == ledger.key.uid or ledger.key.epoch != _EPOCH or ledger.attempts.list_attempts():
        return None
    if writes.read_deleted(ledger.store, parent.uid) is not None:
        return None
    found = [
        one
        for key in writes.list_stages(ledger.store, EpochKey(parent.uid, _EPOCH))
        if named(key.stage) is not None and (one := _what_counts(heir, replace(ledger, key=key), parent)) is not None
    ]
    return next((one for one in found if one.is_done), found[0] if found else None)


def foresee(
    ledger: Ledger, spec: Spec, decisions: Sequence[Decision], digest_of: DigestOf, parent: Parent
) -> dict[str, InheritedRecord]:
    """Return what stages that are to begin will take over, by their names. `ledger` is the epoch's. Changes nothing."""
    found: dict[str, InheritedRecord] = {}
    before: InheritedRecord | None = None
    reads = ""
    for part, decision in zip(parts_of(spec.stages, spec.reset)[:-1], decisions, strict=False):
        own = spec_up_to(spec, part)
        identity = StageIdentity(name=part.name, reads=reads, hash_in=decision.hash_in, algorithm=decision.algorithm)
        reads = decision.folder
        if decision.what == "keep":
            continue
        stage = replace(ledger, key=ledger.key.of_stage(decision.folder))
        before = find(Heir(stage, identity, own, digest_of(own), before), parent) if decision.what == "begin" else None
        if before is None:
            break
        found[part.name] = before
        if not before.is_done:
            break
    return found


def _is_whole(ledger: Ledger, record: InheritedRecord) -> bool:
    last = ledger.attempts.read_closed(record.attempts[-1].attempt)
    return last is not None and (not record.is_done or ledger.commits.read_commit() is not None)


def _what_counts(heir: Heir, theirs: Ledger, parent: Parent) -> InheritedRecord | None:
    """Return what of a stage of the other write can be taken over; None if nothing can."""
    commit, identity = theirs.commits.read_commit(), heir.identity
    number = commit.attempts if commit is not None else max(theirs.attempts.list_attempts(), default=None)
    launch = theirs.attempts.read_launch(number) if number is not None else None
    if launch is None or launch.stage is None or theirs.commits.read_cleaned() is not None:
        return None
    if (launch.stage.hash_in, launch.stage.algorithm) != (identity.hash_in, identity.algorithm):
        return None
    if not _reads_the_same(heir, theirs, launch, parent) or not _treats_rows_alike(heir, launch, commit):
        return None
    counted = {*launch.counted, launch.attempt}
    attempts = []
    for one in range(1, launch.attempt + 1):
        made = theirs.attempts.read_launch(one)
        is_ours = made is not None and (commit is not None or made.code_digest == heir.code_digest)
        attempts.append(_sealed_in(theirs, one) if is_ours and one in counted else _nothing_of(one))
    if commit is None and not any(any(one.chain_lengths) for one in attempts):
        return None
    return InheritedRecord(
        token=new_token(), uid=theirs.key.uid, stage=theirs.key.stage, attempts=tuple(attempts), is_done=commit is not None
    )


def _treats_rows_alike(heir: Heir, launch: LaunchRecord, commit: CommitRecord | None) -> bool:
    identity = heir.identity
    read = launch.source.read_digest if not launch.reads_stage else None
    made = hash_out_of(identity.hash_in, launch.code_digest, read, identity.algorithm)
    wanted = hash_out_of(identity.hash_in, heir.code_digest, heir.read_digest, identity.algorithm)
    if commit is not None and made != wanted:
        return False
    # Rows that were set aside there would be missing here without a word. An attempt with Fail follows none that has some.
    return read == heir.read_digest and (launch.on_row_error == "Fail" or heir.spec.on_row_error == "Quarantine")


def _reads_the_same(heir: Heir, theirs: Ledger, launch: LaunchRecord, parent: Parent) -> bool:
    """Whether the input is that of this stage: the same files of the source, or the result that was taken over from there.

    Results that agree in how they were made may be of other rows, as a source changes.
    """
    if heir.identity.reads:
        read_here = replace(heir.ledger, key=heir.ledger.key.of_stage(heir.identity.reads))
        before = heir.before or read_here.attempts.read_inherited()
        return before is not None and before.is_done and (before.uid, before.stage) == (theirs.key.uid, launch.reads_stage)
    read = theirs.inputs.read_input(launch.input_since)
    return not launch.reads_stage and read is not None and parent.count_others(read) is not None


def _nothing_of(attempt: int) -> InheritedAttempt:
    return InheritedAttempt(attempt=attempt, plan_token=None, chain_lengths=())


def _sealed_in(ledger: Ledger, attempt: int) -> InheritedAttempt:
    """Return how many seals of each task count, or would if the attempt was closed now."""
    closed = ledger.attempts.read_closed(attempt)
    if closed is not None:
        return InheritedAttempt(attempt=attempt, plan_token=closed.plan_token, chain_lengths=closed.chain_lengths)
    plan = ledger.plans.read_plan(attempt)
    if plan is None:
        return _nothing_of(attempt)
    lengths = {task: length for task, length in ledger.seals.list_seals(attempt).lengths().items() if task < plan.task_count}
    chains = tuple(lengths.get(task, 0) for task in range(max(lengths, default=-1) + 1))
    return InheritedAttempt(attempt=attempt, plan_token=plan.token, chain_lengths=chains)


@dataclass(frozen=True, slots=True)
class _Copy:
    heir: Heir
    parent: Parent
    record: InheritedRecord

    @property
    def ours(self) -> Ledger:
        return self.heir.ledger

    @property
    def theirs(self) -> Ledger:
        return replace(self.ours, key=EpochKey(self.record.uid, _EPOCH, self.record.stage))

    def run(self) -> None:
        """Copy what the record names. The order is that of the module's first lines."""
        ours, theirs = self.ours, self.theirs
        if writes.read_deleted(ours.store, self.record.uid) is not None or theirs.commits.read_cleaned() is not None:
            raise self._gone()
        for one in self.record.attempts:
            launch = theirs.attempts.read_launch(one.attempt)
            if launch is None:
                raise self._gone()
            self._copy_input(launch)
            places = [(task, link) for task, length in enumerate(one.chain_lengths) for link in range(length)]
            seals = theirs.seals.read_links(one.attempt, places)
            while some := list(islice(seals, _AT_ONCE)):
                list(ours.map_all(self._copy_seal, some))
            self._copy_attempt(launch, one)
        if not self.record.is_done:
            return
        commit = theirs.commits.read_commit()
        if commit is None:
            raise self._gone()
        ours.commits.put_commit(commit.model_copy(update={"token": new_token(), "key": str(ours.key)}))

    def _copy_input(self, launch: LaunchRecord) -> None:
        given = self.theirs.inputs.read_input(launch.input_since)
        if given is None:
            return  # its driver died before
        files = tuple(given.files)
        left = given.totals.left
        if launch.reads_stage:
            theirs = self._rows_of(self.theirs, launch.reads_stage)
            ours = self._rows_of(self.ours, self.heir.identity.reads)
            files = tuple(replace(file, path=f"{ours}{file.path.removeprefix(theirs)}") for file in files)
        else:
            left = self.parent.count_others(given) or 0
        made = InputRecord(
            token=new_token(),
            files=files,
            arrow_schema=given.arrow_schema,
            tables=given.tables,
            left=left,
            file_columns=given.file_columns,
        )
        self.ours.inputs.put_input(made, launch.input_since)

    def _rows_of(self, ledger: Ledger, stage: str) -> str:
        return f"{ledger.store.uri}/{EpochLayout(ledger.key.of_stage(stage)).rows}"

    def _copy_seal(self, seal: Seal) -> None:
        ours, theirs = self.ours, self.theirs
        for file in seal.files:
            for path in file.paths:
                self.parent.copy(f"{theirs.at.rows}/{path}", f"{ours.at.rows}/{path}")
        for stored in seal.quarantined.objects if seal.quarantined is not None else ():
            rows = theirs.records.read(theirs.at.quarantine(seal.attempt, stored.token), QuarantineRecord)
            if rows is None:
                raise self._gone()
            ours.quarantine.put_quarantine(seal.attempt, rows)
        ours.seals.put_seal(seal)

    def _copy_attempt(self, launch: LaunchRecord, one: InheritedAttempt) -> None:
        ours, target = self.ours, target_of(self.theirs, launch.attempt)
        update = {
            "token": new_token(),
            "target": None if launch.target is None else self._own(launch.target),
            "stage": self.heir.identity,
            "run_nonce": self.heir.identity.run_nonce,
            "began": None,
            "driven_by": None,
            "code": None,
        }
        ours.attempts.put_launch(launch.model_copy(update=update))
        if launch.target is None and target is not None:
            ours.attempts.put_target(launch.attempt, TargetRecord(token=new_token(), target=self._own(target)))
        closed = self.theirs.attempts.read_closed(launch.attempt)
        ours.attempts.put_closed(
            ClosedRecord(
                token=new_token(),
                attempt=launch.attempt,
                plan_token=one.plan_token,
                chain_lengths=one.chain_lengths,
                complete=closed is not None and closed.complete and self.record.is_done,
            )
        )

    def _own(self, target: Target) -> Target:
        assert isinstance(target, StageTarget)
        return target.model_copy(update={"folder": f"{self.ours.store.uri}/{self.ours.at.rows}"})

    def _gone(self) -> NeedsChange:
        return NeedsChange(
            reasons.RECORD_UNREADABLE,
            f"the write {self.parent.name!r} in {self.ours.store.uri} was deleted or cleaned while its results were being taken "
            "over (spec.inherit): start a new write under another name, without it",
        )


def parent_of(
    spec: Spec, store: ObjectStore, scope: str, storage: StorageSettings, list_source: Callable[[], Iterable[FoundItem] | None]
) -> Parent | None:
    """Return the write that a manifest names. `scope`: of its name; `list_source` gives what the source has now."""
    if spec.inherit is None:
        return None

    def count_others(given: Input) -> int | None:
        there = {item.name: item.version for item in list_source() or ()}
        files = tuple(given.files)
        return len(there) - len(files) if all(there.get(file.path) == file.etag for file in files) else None

    def copy(path: str, other: str) -> None:
        copy_object(store.uri, storage, path, other)

    return Parent(spec.inherit, writes.look_up_name(store, scope, spec.inherit), count_others, copy)
