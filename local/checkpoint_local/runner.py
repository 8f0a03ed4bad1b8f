"""Runs one write on this machine to its end: the loop, its host, and drivers as processes."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from checkpoint_commit.catalogs.source_tables import open_source
from checkpoint_commit.catalogs.vended import with_keys_of_tables
from checkpoint_commit.lance.namespaces import located
from checkpoint_commit.ports import Sink
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.code.archive import put_archive
from checkpoint_control.decision.actions import Finish, Wait
from checkpoint_control.decision.attempt_clock import Noted
from checkpoint_control.decision.code_changes import Approval, Choice
from checkpoint_control.decision.observation import Failure
from checkpoint_control.decision.triggers import check_schedule
from checkpoint_control.loop.drivers import digest_of_kept
from checkpoint_control.loop.looks import Looks, listing_of, open_news
from checkpoint_control.loop.observing import Observer
from checkpoint_control.loop.reconcile import Reconciler, Round
from checkpoint_control.loop.table_facts import refuse_own_outputs
from checkpoint_control.pipelines.inherited import parent_of
from checkpoint_control.pipelines.results import DigestOf, at_work
from checkpoint_control.ports import Write
from checkpoint_control.progress.epoch_progress import Progress, measure
from checkpoint_control.progress.tallies import Tallies
from checkpoint_control.validation.fields import refusals
from checkpoint_control.writes.former import title_of
from checkpoint_control.writes.registration import check_identity, registering
from checkpoint_local.code import code_archive, digests_with
from checkpoint_local.lock import Holder, RunnerLock
from checkpoint_local.other_processes import State, state_of
from checkpoint_local.processes import DriverProcesses
from checkpoint_local.since_commit import SinceCommit, has_more, since_commit
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token, new_uid
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite, Spec
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.store.object_store import ObjectStore, local_path, open_store, probe


@dataclass(frozen=True, slots=True)
class LocalHost:
    """Implements Host for one run. A person waits for it: nothing is queued, or put off, and each run is a new try.

    `digest_of`: of the code of a manifest, as it is now; None: a run has the code that it began with.
    """

    recorder: str = ""
    driver_digest: str | None = None
    digest_of: Callable[[Spec], str] | None = None
    clock: Callable[[], float] = time.monotonic

    def renew(self, write: Write) -> Write:
        return write if self.digest_of is None else replace(write, code_digest=self.digest_of(write.spec))

    def forgive(self, attempts: list[int]) -> int:
        return attempts[-1] if attempts else 0

    def noted(self, key: EpochKey, attempt: int) -> Noted:
        return Noted()

    def is_past_deadline(self, epoch: int) -> bool:
        return False

    def pause_after(self, failures: int) -> float:
        return 0.0

    def retry_after(self, failures: int) -> float:
        return math.inf

    def queue_for_a_place(self) -> int | None:
        return None

    def count_starved(self) -> int:
        return 0

    def find_starvation(self, key: EpochKey, attempt: int, has_plan: bool) -> Failure | None:
        return None


_POLL_S: Final = 0.1
#: A round costs work too, with many seals seconds of it: rounds take a tenth of the time at the most.
_WORK_SHARE: Final = 10
#: How soon the end of a driver is noticed: to ask takes a system call, and no request.
_TICK_S: Final = 0.02
#: A round at an object store costs some requests, which are paid for.
_REMOTE_POLL_S: Final = 2.0
_MOST_ERRORS: Final = 5
_ERROR_PAUSE_S: Final = 2.0
#: How often a runner that waits for new input makes sure that no other has passed it over.
_LOCK_LOOK_S: Final = 5.0
#: A runner that has been stopped for so long is passed over. It may be a moment's Ctrl-Z, whose driver goes on meanwhile.
_PASS_OVER_AFTER_S: Final = 10.0


def state_folder() -> Path:
    """Return where this machine keeps logs and locks. Nothing in it is needed to resume."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "checkpointed-writes"


def machine_id() -> str:
    """Return the name by which this machine knows its own drivers: random, made at the first run, kept in the state folder."""
    path = state_folder() / "machine-id"
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f"machine-id.{new_token()}")
    made.write_text(new_token())
    with contextlib.suppress(FileExistsError):
        os.link(made, path)
    made.unlink()
    return path.read_text()


def identify(store: ObjectStore, manifest: CheckpointedWrite) -> str:
    """Return the uid of the write, giving it one at its first run. NeedsChange if its identity is another than then."""
    metadata, spec = manifest.metadata, manifest.spec
    uid = writes.name_write(store, metadata.namespace, metadata.name, new_uid())
    if writes.read_deleted(store, uid) is not None:
        raise NeedsChange(
            reasons.WRITE_DELETED,
            f"the write {metadata.name!r} is being forgotten, or that was cut off: checkpointed-write forget ends it, and a run "
            "begins anew after that",
        )
    check_identity(store, uid, spec)
    return uid


@dataclass(frozen=True, slots=True)
class Rival:
    """The process that holds the write on this machine, and what it does. `passed_over_in_s`: None while it runs."""

    holder: Holder
    state: State
    passed_over_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What the runner tells after each round. `attached`: another runner is at work, and this one watches; `rival` is that one,
    where it can be told.
    """

    round: Round | None
    progress: Progress
    attached: bool = False
    problem: str | None = None
    rival: Rival | None = None


@dataclass(slots=True)
class Runner:
    """Everything one run needs. `report` is called after each round."""

    manifest: CheckpointedWrite
    settings: Settings
    cores: int
    report: Callable[[Report], None]
    store: ObjectStore | None = None
    sink: Sink | None = None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    master: str | None = None
    host: str = field(default_factory=socket.gethostname)
    #: Go by the trigger until interrupted; else a write with a trigger ends once nothing is new.
    watch: bool = False
    #: What a person decides of the code as it is when this begins, where the manifest says onCodeChange: Ask.
    approve: Choice | None = None
    #: Begin the next epoch if the last one is committed.
    again: bool = False
    now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)
    drivers: DriverProcesses = field(init=False)
    _idle: tuple[Holder, float] | None = None
    _watched: Tallies | None = None
    _digest_of: DigestOf | None = None
    _ledger: Callable[[], Ledger] | None = None

    def run(self) -> Round:
        """Drive the write to its end and return the last round, whose outcome is Finish or Stall.

        Raises CheckpointError where nothing can be done from here. Whatever ends this process, a later run resumes.
        """
        spec = self.manifest.spec
        for error in refusals(spec).values():
            raise error
        if spec.trigger is not None:
            check_schedule(spec.trigger)
        spec = located(spec, self.settings, begins=True)
        self.manifest = self.manifest.model_copy(update={"spec": spec})
        self.settings = with_keys_of_tables(spec, self.settings)
        sink = self.sink or open_sink(spec.sink, self.settings, written_by=title_of(self.manifest))
        pin_source = open_source(spec.source, self.settings)
        # Before a store is opened, which is a folder that is made: it may be the source's.
        refuse_own_outputs(sink, spec, None, spec.checkpoint.uri)
        archive = code_archive(spec, self.settings)
        store = self.store or open_store(spec.checkpoint.uri, self.settings)
        probe(store)
        uid = identify(store, self.manifest)
        if archive is not None:
            put_archive(store, uid, archive)
        code, digest_of = archive.digest if archive else None, digests_with(archive)
        folder = state_folder() / uid
        self.drivers = DriverProcesses(
            spec=spec, uri=store.uri, settings=self.settings, cores=self.cores, state_folder=folder, master=self.master
        )
        write = Write(uid=uid, spec=spec, code_digest=digest_of(spec), code=code, row_keys=self.manifest.row_keys)
        looks: Looks | None = None
        if spec.trigger is not None:
            looks = Looks(spec, open_news(spec, self.settings), self.now, is_asked=not self.watch)
        # Drivers of later epochs import the code as it is then, and each stage has code of its own.
        host = LocalHost(machine_id(), digest_of_kept(spec), digest_of if self.watch or spec.stages else None)
        parent = parent_of(spec, store, self.manifest.metadata.namespace, self.settings, listing_of(spec, self.settings))
        observer = Observer(write, store, self.drivers, sink, host, pin_source=pin_source, looks=looks, parent=parent)
        self._digest_of, self._ledger = digest_of, lambda: observer.current_ledger
        if self.again and spec.source.stream is None:
            # An epoch that is not committed is the one that was asked for: this run ends it, however often it is asked for.
            ledger = observer.current_ledger
            if ledger.commits.read_commit() is not None and has_more(ledger, spec, self.settings, self.now):
                observer.once_more_after = ledger.key.epoch
        if self.approve is not None:
            observer.approval = Approval(self.approve, observer.digest_to_approve())
        metadata = self.manifest.metadata
        reconciler = Reconciler(observer, register=registering(store, uid, metadata.namespace, metadata.name, spec))
        lock = RunnerLock(folder / "runner.lock")
        try:
            while True:
                if lock.take() and (ended := self._drive(reconciler, lock)) is not None:
                    return ended
                started = self.clock()
                if (ended := self._watch(reconciler, lock)) is not None:
                    return ended
                self.sleep(_patience_s(store, self.clock() - started))
        finally:
            lock.release()

    def since_commit(self) -> SinceCommit:
        """Return what has changed since the last epoch, which is committed. To be called when `run` has returned."""
        assert self._digest_of is not None
        assert self._ledger is not None
        return since_commit(self._ledger(), self.manifest.spec, self.settings, self._digest_of, self.now)

    def _drive(self, reconciler: Reconciler, lock: RunnerLock) -> Round | None:
        """Bring the write to its end; None if this process was stopped meanwhile, and another one has passed it over."""
        errors = 0
        try:
            while lock.is_held():
                started = self.clock()
                try:
                    done = reconciler.step()
                    errors = 0
                except Retryable as problem:
                    errors += 1
                    if errors >= _MOST_ERRORS:
                        raise
                    self.report(Report(None, Progress(0, None, 0, 0, 0, 0, 0), problem=problem.message))
                    self.sleep(_ERROR_PAUSE_S)
                    continue
                self.report(Report(done, measure(reconciler.current_tallies(), done.commit)))
                if done.outcome is not None:
                    return done
                if isinstance(done.actions[-1], Wait):
                    between = done.seen.between
                    if between is not None:
                        self._wait_until_due(lock, between.due_in_s)
                    else:
                        self._wait_for_a_change(reconciler.observer.store, self.clock() - started)
            return None
        finally:
            self.drivers.stop_all()

    def _wait_until_due(self, lock: RunnerLock, due_in_s: float) -> None:
        """Wait for the next look, and no longer than the lock is ours."""
        end = self.clock() + due_in_s
        while lock.is_held() and (left_s := end - self.clock()) > 0:
            self.sleep(min(left_s, _LOCK_LOOK_S))

    def _wait_for_a_change(self, store: ObjectStore, round_s: float) -> None:
        """Wait until a driver ends, or until the next round is due."""
        running = self.drivers.count_running()
        for _ in range(round(_patience_s(store, round_s) / _TICK_S)):
            self.sleep(_TICK_S)
            if self.drivers.count_running() != running:
                return

    def _watch(self, reconciler: Reconciler, lock: RunnerLock) -> Round | None:
        """Tell what the runner at work has sealed; return the end if it has come to one.

        Acts on nothing, unless that one does not run: then the lock is taken from it.
        """
        seen = reconciler.watch()
        rival = self._rival(lock)
        progress = measure(self._tallies_at_work(reconciler), seen.commit)
        self.report(Report(None, progress, attached=True, rival=rival))
        if rival is not None and rival.passed_over_in_s is not None and rival.passed_over_in_s <= 0:
            lock.pass_over(rival.holder)
        return seen if isinstance(seen.outcome, Finish) else None

    def _tallies_at_work(self, reconciler: Reconciler) -> Tallies:
        """Return what the runner at work seals: of a pipeline, the records of the stage that it is at."""
        ledgers = [ledger for ledger, _ in at_work(reconciler.current_ledger())] if self.manifest.spec.stages else []
        if not ledgers:
            return reconciler.current_tallies()
        if self._watched is None or self._watched.ledger.key != ledgers[-1].key:
            self._watched = Tallies(ledgers[-1])
        return self._watched

    def _rival(self, lock: RunnerLock) -> Rival | None:
        """Return who holds the lock. Of a process of another machine, which shares the folder, nothing is known."""
        holder = lock.holder()
        if holder is None:
            return None
        state = state_of(holder.pid, holder.started) if holder.host == self.host else "unknown"
        if state not in ("stopped", "gone"):
            self._idle = None
            return Rival(holder, state)
        if self._idle is None or self._idle[0] != holder:
            self._idle = (holder, self.clock())
        return Rival(holder, state, self._idle[1] + _PASS_OVER_AFTER_S - self.clock())


def _patience_s(store: ObjectStore, round_s: float) -> float:
    """Return for how long another round is not worth its requests, nor the time that it takes."""
    return max(_POLL_S if local_path(store.uri) is not None else _REMOTE_POLL_S, round_s * _WORK_SHARE)
