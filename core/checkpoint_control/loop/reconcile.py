"""One write: observe, decide, act, again. The same loop in a cluster and on one machine; only the ports differ.

`observing.py` reads, `decision/rules.py` decides, and this carries the decision out. Each action is safe to do twice, and to be
cut off in: the next round begins from what is stored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import assert_never

from checkpoint_commit.changes import changes_nothing
from checkpoint_commit.outcomes import CommitOutcome, Committed, Final, Rejected, TryLater, Unknown
from checkpoint_commit.ports import NeedsStage, Stage, StageOutdated
from checkpoint_commit.results import Results, gather
from checkpoint_commit.sinks.registry import format_of
from checkpoint_control.decision.actions import (
    Action,
    BeginStage,
    Close,
    Commit,
    EndStage,
    Finish,
    MakeTable,
    OpenEpoch,
    RecordAttempt,
    Stall,
    StartDriver,
    StopDriver,
    StopKeptDriver,
    Wait,
)
from checkpoint_control.decision.observation import DriverState, Failure, Observation
from checkpoint_control.decision.rules import decide, why_nothing_may_be_at_work
from checkpoint_control.loop.keys_objects import compacting
from checkpoint_control.loop.observing import Observer, driver_of
from checkpoint_control.loop.table_facts import refuse_own_outputs
from checkpoint_control.pipelines.decisions import Decision
from checkpoint_control.pipelines.inherited import Heir, take_over
from checkpoint_control.pipelines.next_stage import NextStage, next_stage
from checkpoint_control.pipelines.results import at_work
from checkpoint_control.progress.tallies import Tallies
from checkpoint_formats.rows.plain_types import decode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import index_of
from checkpoint_protocol.records import (
    Base,
    CommitRecord,
    DrivenBy,
    GivenUp,
    LaunchRecord,
    Target,
    TargetRecord,
    base_of,
    operation_of,
)


@dataclass(frozen=True, slots=True)
class Round:
    """What a round observed, what it decided, and how that ended: where an action could not be done, a Stall stands in its place.
    A round of a stage has the stage's key, and its observation; that the stage is done is no end of the write.

    `is_decision`: nothing was carried out yet. For people such a round is told, too: whatever dies in it, its attempt is known.
    `stages`: with spec.stages, what becomes of each, as it was decided last; empty where it was not decided here.
    """

    key: EpochKey
    seen: Observation
    actions: tuple[Action, ...]
    is_decision: bool = False
    stages: tuple[Decision, ...] = ()
    #: On the table that was made, for people.
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Finish | Stall | None:
        """How the write ended, or None if there are more rounds to come."""
        last = self.actions[-1]
        return last if isinstance(last, Finish | Stall) else None

    @property
    def commit(self) -> CommitRecord | None:
        """The record of the epoch's commit, once it was seen in the table."""
        return self.seen.commit

    @property
    def last_commit(self) -> tuple[EpochKey, CommitRecord] | None:
        """The last commit of the write: the epoch's own, or that of the one before, which a stream has ended after."""
        if self.seen.commit is not None:
            return self.key, self.seen.commit
        return None if self.seen.before is None else (EpochKey(self.key.uid, self.key.epoch - 1), self.seen.before)


@dataclass(slots=True)
class Reconciler:
    """The loop's body."""

    observer: Observer
    #: Entered around reading what is committed and committing it. Raises Retryable if it is not this write's turn.
    commit_turn: Callable[[], AbstractContextManager[object]] = nullcontext
    #: Called with each round between its decision and its actions.
    announce: Callable[[Round], None] = lambda decided: None
    #: Records who the write is, or raises NeedsChange if that is another than it was. Called before an attempt is recorded.
    register: Callable[[], None] = lambda: None
    #: The stage that the current epoch waits for, as far as is known here: what the epoch's own round would find out again.
    _stage: Reconciler | None = None
    #: What becomes of the stages of the current epoch, as was decided last.
    _decisions: tuple[Decision, ...] = ()
    _notes: tuple[str, ...] = ()
    #: What was taken over from another write, and not told yet.
    _taken_over: list[str] = field(default_factory=list)
    #: Of a stage: whether it still is what comes next, whatever was edited since it began.
    is_next: Callable[[], bool] = lambda: True

    def current_ledger(self) -> Ledger:
        return self.observer.current_ledger

    def current_tallies(self) -> Tallies:
        """The sums of what is at work: the stage that the epoch waits for, or the epoch itself."""
        return self.observer.current_tallies if self._stage is None else self._stage.current_tallies()

    def step(self) -> Round:
        """Do one round. Raises CheckpointError where a port does; the next round begins from what is stored."""
        return dataclasses.replace(self._step(), stages=self._decisions)

    def _step(self) -> Round:
        if self._stage is not None:
            return self._step_stage(self._stage)
        seen = self.observer.observe()
        actions = decide(seen)
        *stops, last = actions
        if not isinstance(last, RecordAttempt):
            if (why := why_nothing_may_be_at_work(seen)) is not None:
                self._end_stages(why)
            return self._carry_out(Round(self.current_ledger().key, seen, actions))
        # What no catalog has a say in comes first: it may not answer.
        for action in stops:
            self._act(seen, action)
        try:
            seen = self.observer.observe_tables(seen, last)
        except StageOutdated:
            key = self.current_ledger().key
            return Round(key, seen, (*stops, EndStage(key.stage)))
        rest = decide(seen)[len(stops) :]
        if isinstance(rest[-1], RecordAttempt):
            if not self.is_next():
                rest = (EndStage(self.current_ledger().key.stage),)
            else:
                wanted = self._next_stage()
                while wanted is not None and self._take_over(wanted):
                    wanted = self._next_stage()
                if wanted is not None and wanted.stage is None and wanted.identity != self.observer.write.stage:
                    self.observer.write = dataclasses.replace(self.observer.write, stage=wanted.identity)
                    return self._step()
                seen = self.observer.observe_change(seen, wanted)
                rest = decide(seen)[len(stops) :]
                if wanted is not None and isinstance(rest[-1], RecordAttempt):
                    self._leave_behind(wanted)
                    if wanted.stage is not None:
                        rest = (dataclasses.replace(self.begin_stage(wanted.stage), is_before=True),)
        done = self._carry_out(Round(self.current_ledger().key, seen, rest))
        taken_over, self._taken_over = (*self._taken_over,), []
        return dataclasses.replace(done, actions=(*stops, *done.actions), notes=(*taken_over, *done.notes))

    def begin_stage(self, stage: Stage) -> BeginStage:
        """Do the rounds of this stage from now on, until it is done."""
        self._stage = Reconciler(
            self.observer.of_stage(stage),
            self.commit_turn,
            self.announce,
            self.register,
            is_next=lambda: stage.identity is None or self._is_next(stage),
        )
        return BeginStage(stage.name)

    def _next_stage(self) -> NextStage | None:
        """Return the stage that comes next as manifest and code are now; None for a write without stages, or for a stage."""
        observer, ledger = self.observer, self.current_ledger()
        if not observer.write.spec.stages or ledger.key.stage:
            return None
        wanted = next_stage(ledger, observer.write.spec, observer.digest_of, observer.pin_source)
        self._decisions = wanted.decisions
        return wanted

    def _take_over(self, wanted: NextStage) -> bool:
        """Take over what another write has of the next stage; return whether it had anything."""
        observer, stage = self.observer, wanted.stage
        if observer.parent is None or stage is None or stage.identity is None:
            return False
        self.register()
        of_stage = observer.of_stage(stage)
        heir = Heir(of_stage.current_ledger, stage.identity, of_stage.write.spec, of_stage.write.code_digest)
        if not take_over(heir, observer.parent):
            return False
        self._taken_over.append(f"the stage {stage.identity.name} is taken over from {observer.parent.name}")
        return True

    def _leave_behind(self, wanted: NextStage) -> None:
        """End what is at work on stages that are not to be done now. What it has sealed stays, should the edit be taken back."""
        folder = wanted.stage.name if wanted.stage is not None else ""
        for ledger, attempt in at_work(self.current_ledger(), folder):
            ledger.chains.close(attempt)
            self.observer.stop_driver_of_stage(ledger, attempt)

    def _end_stages(self, why: Failure) -> None:
        """End what is at work on stages of the manifest."""
        is_pipeline = bool(self.observer.write.spec.stages) and not self.current_ledger().key.stage
        for stage, attempt in at_work(self.current_ledger()) if is_pipeline else ():
            self._close(stage, attempt, why)
            self.observer.stop_driver_of_stage(stage, attempt)

    def _is_next(self, stage: Stage) -> bool:
        wanted = self._next_stage()
        return wanted is not None and wanted.stage is not None and wanted.stage.name == stage.name

    def _step_stage(self, stage: Reconciler) -> Round:
        """Do one round of the stage. How it ends is no end of the write, unless a person must act."""
        done = stage.step()
        if not isinstance(done.outcome, Finish):
            if isinstance(done.actions[-1], EndStage):
                self._stage = None
            return done
        self._stage = None
        seen = dataclasses.replace(done.seen, commit=None)
        return dataclasses.replace(done, seen=seen, actions=(*done.actions[:-1], EndStage(done.key.stage)))

    def watch(self) -> Round:
        """Observe whether the write has come to its end by the work of another, and carry out nothing that changes the store."""
        seen = self.observer.observe_end()
        key, actions = self.current_ledger().key, decide(seen)
        if isinstance(actions[-1], OpenEpoch):
            self._act(seen, actions[-1])
        return Round(key, seen, actions, is_decision=True)

    def _carry_out(self, decided: Round) -> Round:
        done: list[Action] = []
        is_commit = any(isinstance(action, Commit) for action in decided.actions)
        with self.commit_turn() if is_commit else nullcontext():
            self.announce(dataclasses.replace(decided, is_decision=True))
            self._notes = ()
            for action in decided.actions:
                ended = self._act(decided.seen, action)
                done.append(ended or action)
                if ended is not None:
                    break
        return dataclasses.replace(decided, actions=tuple(done), notes=self._notes)

    def _act(self, seen: Observation, action: Action) -> Stall | BeginStage | None:
        """Carry out one action; return Stall if it shows that a person must act, BeginStage if a stage must be done before."""
        ledger = self.current_ledger()
        match action:
            case Commit(attempt):
                return self._commit(ledger, attempt)
            case Close(attempt, _, failure):
                self._close(ledger, attempt, failure)
            case StopDriver(attempt):
                launch = ledger.attempts.read_launch(attempt)
                assert launch is not None
                self.observer.stop_driver(*driver_of(ledger.key, launch))
            case StopKeptDriver():
                self.observer.stop_kept_driver()
            case MakeTable(attempt):
                return self._make_table(ledger, attempt)
            case StartDriver(attempt):
                launch = ledger.attempts.read_launch(attempt)
                assert launch is not None
                self.observer.expect_start(attempt)
                self.observer.drivers.start(ledger.key, launch)
            case RecordAttempt():
                self._record(ledger, seen, action)
            case OpenEpoch(epoch, _, news):
                self.observer.open_epoch(epoch, news)
            case Finish() | Wait() | BeginStage() | EndStage() | Stall():
                pass
            case _:
                assert_never(action)
        return None

    def _close(self, ledger: Ledger, attempt: int, failure: Failure | None) -> None:
        given_up = None
        if failure is not None and ledger.attempts.read_failure(attempt) is None:
            given_up = GivenUp.model_validate(dataclasses.asdict(failure))
        ledger.chains.close(attempt, given_up)

    def _record(self, ledger: Ledger, seen: Observation, action: RecordAttempt) -> None:
        assert seen.tables is not None
        self.register()
        write, spec, target = self.observer.write, self.observer.write.spec, seen.tables.target
        reads_source = write.stage is not None and not write.stage.reads
        if action.attempt == 1 and (reads_source or not ledger.key.stage):
            # What the driver goes by, made before anything says that this epoch has begun.
            index_of(ledger, compacting(ledger.store, write.uid)).ensure(ledger.key.epoch - 1)
        driven_by = self._driver_that_goes_on(ledger) if self.observer.is_of_stream and action.attempt == 1 else None
        launch = LaunchRecord(
            token=new_token(),
            attempt=action.attempt,
            run_nonce=write.stage.run_nonce if write.stage is not None else spec.run_nonce,
            source=spec.source,
            steps=spec.last_part.steps,
            code_digest=write.code_digest,
            target=target,
            sink_format=spec.sink.format,
            target_file_size_bytes=spec.sink.file_size_bytes(target.target_file_size_bytes if target is not None else None),
            interval_s=spec.checkpoint.interval,
            minimum_bytes=spec.checkpoint.minimum_bytes,
            maximum_rows=spec.checkpoint.maximum_rows,
            counted=action.counted,
            recorded_by=self.observer.host.recorder,
            code=write.code,
            on_replaced=spec.on_replaced,
            # What of a group failed nobody can tell, and half of one is another group.
            on_row_error="Fail" if write.stage is not None and write.stage.groups is not None else spec.on_row_error,
            quarantine=spec.quarantine,
            source_tables=seen.tables.source_tables,
            input_since=action.input_since,
            audit=write.audit,
            began=self.observer.began() if action.attempt == 1 else None,
            at_most=spec.trigger.at_most if spec.trigger is not None else None,
            operation=self.observer.operation or operation_of(spec.sink, self._base(ledger, action.attempt, seen.tables.target)),
            stage=write.stage,
            driver_digest=self.observer.host.driver_digest,
            session_code=self.observer.session_code() if self.observer.host.driver_digest is not None else None,
            driven_by=driven_by,
            row_keys=write.row_keys,
            reset_nonce=spec.reset_nonce if not ledger.key.stage else "",
        )
        if ledger.attempts.put_launch(launch).token == launch.token:
            self.observer.drivers.expect(ledger.key, action.attempt)

    def _driver_that_goes_on(self, ledger: Ledger) -> DrivenBy | None:
        """Return whose driver goes on with this epoch of a stream: that of the epoch before, if it is at work.

        Or with this stage, which the commit of an epoch needs: that of the epoch.
        """
        key = ledger.key
        if key.stage:
            before = self.observer.open_ledger(ledger.store, key.of_stage(""))
            # The last attempt is the one that is complete.
            number = max(before.attempts.list_attempts(), default=None)
        elif key.epoch > 1:
            before = self.observer.open_ledger(ledger.store, EpochKey(key.uid, key.epoch - 1))
            commit = before.commits.read_commit()
            number = commit.attempts if commit is not None else None
        else:
            return None
        launch = before.attempts.read_launch(number) if number is not None else None
        if launch is None:
            return None
        key, attempt = driver_of(before.key, launch)
        is_at_work = self.observer.drivers.observe(key, attempt).state is DriverState.RUNNING
        return DrivenBy(epoch=key.epoch, attempt=attempt) if is_at_work else None

    def _base(self, ledger: Ledger, attempt: int, target: Target | None) -> Base | None:
        """Return the table as the epoch's first attempt found it; None if there was none."""
        now = target.base if target is not None else None
        before = ledger.attempts.read_launch(attempt - 1) if attempt > 1 else None
        return now if before is None else base_of(before.operation, now)

    def _make_table(self, ledger: Ledger, attempt: int) -> Stall | None:
        output = ledger.attempts.read_output(attempt)
        assert output is not None
        sink = self.observer.sink
        try:
            target = sink.create(output.arrow_schema)
            refuse_own_outputs(sink, self.observer.write.spec, target, ledger.store.uri)
        except NeedsChange as error:
            # Closed first: an attempt that is open would be started again, and end here again.
            self._close(ledger, attempt, Failure("NeedsChange", error.reason, error.message))
            self.observer.stop_driver(ledger.key, attempt)
            return Stall(error.reason, error.message)
        ledger.attempts.put_target(attempt, TargetRecord(token=new_token(), target=target))
        if not ledger.key.stage:
            self._notes = format_of(self.observer.write.spec.sink).notes_on(decode_schema(output.arrow_schema))
        return None

    def _commit(self, ledger: Ledger, attempt: int) -> Stall | BeginStage | None:
        sink = self.observer.sink
        results = gather(ledger, attempt, sink.pack)
        is_done = changes_nothing(results.change, has_table=bool(results.targets))
        outcome: CommitOutcome | NeedsStage | None = None if is_done else sink.commit(ledger, results)
        match outcome:
            case NeedsStage(stage):
                return self.begin_stage(stage)
            case Committed(identity, commit_id, _, is_current):
                self._put_commit(ledger, results, identity, commit_id, was_rolled_back=not is_current)
            case Final() | None:
                self._put_commit(ledger, results, None, None)
            case Rejected(reason, message):
                return Stall(reason, message)
            case Unknown(message):
                return Stall(reasons.COMMIT_OUTCOME_UNKNOWN, message)
            case TryLater(reason, message):
                raise Retryable(reason, message)
            case _:
                assert_never(outcome)
        return None

    def _put_commit(
        self, ledger: Ledger, results: Results, identity: str | None, commit_id: int | None, was_rolled_back: bool = False
    ) -> None:
        ledger.commits.put_commit(
            CommitRecord(
                token=new_token(),
                key=str(ledger.key),
                target=self.observer.sink.title,
                table_identity=identity,
                commit_id=commit_id,
                rows_read=results.rows_read,
                rows_written=results.rows_written,
                files=len(results.change),
                attempts=results.attempts,
                code_digests=results.code_digests,
                rows_quarantined=results.rows_quarantined,
                rows_quarantined_before=results.rows_quarantined_before,
                was_rolled_back=was_rolled_back,
                read_digests=results.read_digests,
                input_since=results.input_since,
                offsets=results.offsets,
            )
        )
        if any(step.memo for step in self.observer.write.spec.last_part.steps):
            ledger.attempts.remove_memos(results.attempts)
