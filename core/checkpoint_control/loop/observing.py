"""The observation of a write: all that the rules go by is read here, from ledger, drivers and catalogs. Changes nothing.

Used alike by the controller of a cluster, by the runner of one machine and by the simulation; only the ports differ. Between
rounds it remembers when it saw progress last, which no safety depends on, and what it has read of records that never change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from checkpoint_commit.ports import NO_CODE, PinSource, Stage, Staging, spec_of_stage
from checkpoint_control.decision import attempt_clock
from checkpoint_control.decision.actions import RecordAttempt
from checkpoint_control.decision.attempt_clock import AttemptClock
from checkpoint_control.decision.code_changes import Approval
from checkpoint_control.decision.observation import Attempt, Change, DriverObservation, DriverState, Failure, Observation
from checkpoint_control.decision.rules import in_vain_in_a_row
from checkpoint_control.decision.triggers import Between, News
from checkpoint_control.loop.drivers import KeptDrivers, Place, code_of_session, failure_of, keeps_for_epochs
from checkpoint_control.loop.looks import Looks
from checkpoint_control.loop.table_facts import observe_tables
from checkpoint_control.pipelines.decisions import IN_WORDS
from checkpoint_control.pipelines.inherited import Parent
from checkpoint_control.pipelines.next_stage import NextStage
from checkpoint_control.pipelines.results import digest_to_approve, redone_by_an_edit
from checkpoint_control.ports import Drivers, Host, Write
from checkpoint_control.progress.epoch_progress import measure
from checkpoint_control.progress.tallies import Tallies, count_quarantined, limit_of
from checkpoint_protocol import writes
from checkpoint_protocol.deadlines import least_progress_deadline_s
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_records import SealListing
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.progress_reports import DriverProgress, read_report
from checkpoint_protocol.records import Began, ClosedRecord, CommitRecord, LaunchRecord, Merge, Operation, StageIdentity
from checkpoint_protocol.store.object_store import ObjectStore

#: A driver that has sealed nothing for so long is asked whether it has executors.
_IDLE_BEFORE_STARVED_S: Final = 15.0
#: Tasks are asked what they have in hand where nothing was sealed for so long: it costs a request.
_IDLE_BEFORE_HEARD_S: Final = 60.0
#: Each attempt's pauses are longer by its own part of this share (shorter, before something outside is tried again), so that
#: what failed together is not tried again together.
_MOST_SPREAD: Final = 0.5


def driver_of(key: EpochKey, launch: LaunchRecord) -> tuple[EpochKey, int]:
    """Return for which attempt the driver was started that does this one: itself, but where a stream's driver goes on with it."""
    by = launch.driven_by
    return (key, launch.attempt) if by is None else (EpochKey(key.uid, by.epoch), by.attempt)


@dataclass(slots=True)
class Observer:
    """Reads one write. `current_ledger` is that of the epoch at hand: at first the last one that was begun."""

    write: Write
    store: ObjectStore
    drivers: Drivers
    sink: Staging
    host: Host
    #: Describes a source table whose catalog only this process knows.
    pin_source: PinSource = tuple
    open_ledger: Callable[[ObjectStore, EpochKey], Ledger] = Ledger
    #: Of a write whose trigger is followed here. None: what is committed is finished.
    looks: Looks | None = None
    #: A person asks for one more epoch, after this one, whatever is new.
    once_more_after: int | None = None
    #: What a person has decided, where the manifest says onCodeChange: Ask.
    approval: Approval | None = None
    #: Whose results of stages are taken over, where the manifest names a write.
    parent: Parent | None = None
    #: The stage that is observed, and who observes its epoch; None: an epoch itself is.
    _stage: Stage | None = None
    _epoch: Observer | None = None
    #: Why the epoch was opened that has no attempt yet.
    _began: Began | None = None
    #: The drivers that were started from here, and not seen to have ended. Another runner may close their attempts.
    _started: set[tuple[EpochKey, int]] = field(default_factory=set)
    _closed_at: dict[tuple[EpochKey, int], float] = field(default_factory=dict)
    _ledger: Ledger | None = None
    _tallies: Tallies | None = None
    _clock: AttemptClock = field(init=False)
    _first_counted: int | None = None
    #: Of a stream, the commit of the epoch before this one.
    _before: tuple[int, CommitRecord | None] | None = None
    _kept: KeptDrivers = field(init=False)
    #: Behind which epoch it was asked for a driver that is not to wait any more.
    _asked_behind: EpochKey | None = None

    def __post_init__(self) -> None:
        self._clock = AttemptClock(self.host.clock)
        self._kept = KeptDrivers(self.drivers, self.host.driver_digest, self.host.clock, keeps_for_epochs(self.write.spec))

    @property
    def current_ledger(self) -> Ledger:
        if self._ledger is None:
            last = writes.last_epoch(self.store, self.write.uid)
            self._ledger = self.open_ledger(self.store, EpochKey(self.write.uid, max(last, 1)))
        return self._ledger

    @property
    def current_tallies(self) -> Tallies:
        """The sums of the current epoch's seals; what was read for them in earlier rounds is kept."""
        ledger = self.current_ledger
        if self._tallies is None or self._tallies.ledger is not ledger:
            self._tallies = Tallies(ledger)
        return self._tallies

    def open_epoch(self, epoch: int, news: News | None = None) -> None:
        """Observe this epoch from now on. `news`: for which a trigger begins it."""
        found = News() if news is None else news
        self._began = self._began_by("RunNonce" if news is None else "Trigger", found)
        self._ledger = self.open_ledger(self.store, EpochKey(self.write.uid, epoch))
        self._first_counted = None

    def began(self) -> Began | None:
        """Return why the current epoch begins, for the record of the first attempt that reads the source.

        None for attempts that read something else, and where no trigger goes by that.
        """
        epoch, stage = self._epoch or self, self.write.stage
        is_of_commit = self._stage is not None and stage is None
        if epoch.looks is None or is_of_commit or (stage is not None and stage.reads):
            return None
        recorded = epoch._recorded_began() if epoch._began is None and stage is not None else None
        return epoch._began or recorded or epoch._began_by("First", News())

    def _recorded_began(self) -> Began | None:
        """Return why the epoch began, as a stage has it that was begun before this one and is not to be done any more."""
        for key in writes.list_stages(self.store, self.current_ledger.key):
            launch = self.open_ledger(self.store, key).attempts.read_launch(1)
            if launch is not None and launch.began is not None:
                return launch.began
        return None

    def _began_by(self, why: Literal["First", "RunNonce", "Trigger"], news: News) -> Began | None:
        if self.looks is None:
            return None
        return Began(why=why, at=self.looks.now().isoformat(), files=news.files, size_bytes=news.size_bytes)

    @property
    def operation(self) -> Operation | None:
        """What attempts do with rows, where the sink of the manifest does not say it."""
        return self._stage.operation if self._stage is not None else None

    @property
    def is_of_stream(self) -> bool:
        """Whether the epoch is a micro-batch of a stream, whose driver waits for the commit, and does a stage meanwhile."""
        return (self._epoch or self).write.spec.source.stream is not None

    def of_stage(self, stage: Stage) -> Observer:
        """Return who observes a stage of the current epoch, on the same host and with the same drivers."""
        write = self.write if stage.runs_code else replace(self.write, code_digest=NO_CODE, code=None)
        spec = spec_of_stage(stage.derive(self.write.spec))
        if stage.identity is not None:
            # Its own part of the code, and of the steps.
            write = self.renew(replace(write, spec=spec, stage=stage.identity))
        else:
            # What the commit needs is no stage of the manifest's.
            policy = "Continue" if spec.on_code_change == "Ask" else spec.on_code_change
            plain = {"stages": (), "reset": None, "on_code_change": policy}
            write, spec = replace(write, stage=None), spec.model_copy(update=plain)
        key = self.current_ledger.key.of_stage(stage.name)
        return Observer(
            replace(write, spec=spec, audit=stage.audit),
            self.store,
            self.drivers,
            stage.sink,
            self.host,
            pin_source=stage.pin_source,
            open_ledger=self.open_ledger,
            approval=self.approval,
            _stage=stage,
            _epoch=self,
            _ledger=self.open_ledger(self.store, key),
        )

    def renew(self, write: Write) -> Write:
        """Return a write with its code as it is now. A stage that only the commit needs has the code of its epoch, or none."""
        epoch, stage = self._epoch, self._stage
        if epoch is None or stage is None or stage.identity is not None:
            return self.host.renew(write)
        now = epoch.renew(epoch.write) if stage.runs_code else write
        return replace(write, code_digest=now.code_digest, code=now.code)

    def session_code(self) -> str | None:
        """Return the digest of the code of all stages, as it is now; None where no driver goes on from stage to stage."""
        epoch = self._epoch or self
        return code_of_session(epoch.write, epoch.renew)

    def digest_to_approve(self) -> str:
        """Return what says which code, of all stages, reads which source now: an approval counts for that only."""
        epoch = self._epoch or self
        return digest_to_approve(epoch.write.spec, epoch.digest_of)

    def digest_of(self, spec: Spec) -> str:
        """Return the digest of the code of a manifest, or of a stage's, as the code is now."""
        return self.renew(replace(self.write, spec=spec)).code_digest

    def expect_start(self, attempt: int) -> None:
        """Note that a driver is started from here: its time begins now."""
        self._clock.start(attempt)
        self._started.add((self.current_ledger.key, attempt))

    def stop_driver(self, key: EpochKey, attempt: int) -> None:
        """Ask the driver of an attempt to end, also where it was started for another epoch's."""
        self.drivers.stop(key, attempt)
        if (place := self._kept.place_of(key, attempt)) != (key, attempt):
            self.drivers.stop(*place)

    def stop_driver_of_stage(self, ledger: Ledger, attempt: int) -> None:
        """Ask the driver to end that does an attempt of a stage, which is not what is observed here."""
        launch = ledger.attempts.read_launch(attempt)
        for place in self._kept.places(ledger, launch) if launch is not None else ():
            self.drivers.stop(*place)

    def stop_kept_driver(self) -> None:
        """Ask the driver to end that waits behind the current epoch, and is not to."""
        if (place := self._kept.unwanted(self.current_ledger, is_suspended=self.write.spec.suspend)) is not None:
            self.drivers.stop(*place)

    def _keeps_in_vain(self, seen: Observation) -> bool:
        """Whether a driver waits that is not to. Asked once behind each epoch, as the manifest is now; again while suspended."""
        ledger = self.current_ledger
        if not seen.is_committed or ledger.key.stage or (ledger.key == self._asked_behind and not seen.is_suspended):
            return False
        self._asked_behind = ledger.key
        return self._kept.unwanted(ledger, is_suspended=seen.is_suspended) is not None

    # --- the whole --------------------------------------------------------------------------------------------------------

    def observe_end(self) -> Observation:
        """Read only whether the epoch has ended, and whether another is asked for: for who watches the work of others."""
        ledger, spec = self.current_ledger, self.write.spec
        commit = ledger.commits.read_commit()
        first = ledger.attempts.read_launch(1)
        return Observation(
            epoch=ledger.key.epoch,
            attempts=(),
            commit=commit,
            began_with=first.run_nonce if first is not None else None,
            run_nonce=spec.run_nonce,
            code_digest=self.write.code_digest,
            on_code_change=spec.on_code_change,
            backoff_limit=spec.backoff_limit,
            progress_deadline_s=spec.progress_deadline_s,
            is_suspended=spec.suspend,
            keeps_drivers=self.host.driver_digest is not None,
            goes_on=self.looks is not None and not self.looks.is_asked,
            is_stream=spec.source.stream is not None and not ledger.key.stage,
        )

    def observe(self) -> Observation:
        """Read what there is of the epoch, and ask for its drivers."""
        ledger = self.current_ledger
        seen, numbers = ledger.read_both(self.observe_end, ledger.attempts.list_attempts)
        if self._first_counted is None or not numbers:
            self._first_counted = self.host.forgive(numbers) + 1
        attempts = tuple(self._attempt(ledger, number, number == numbers[-1], seen.is_committed) for number in numbers)
        row_errors = None if seen.is_committed else limit_of(self.current_tallies, self.write.spec, attempts)
        last = attempts[-1] if attempts else None
        between: Between | None = None
        if seen.is_committed and ledger.key.epoch == self.once_more_after:
            between = Between(0.0, News(counted=False), begins=True)
        elif seen.is_committed and self.looks is not None and not seen.is_suspended:
            between = self.looks.between(ledger)
        on_code_change = seen.on_code_change
        if not seen.is_committed and (last is None or (last.is_closed and not last.is_complete)):
            # Not where all is sealed: the commit needs nobody's code.
            self.write = self.renew(self.write)
            on_code_change = self._policy(seen)
        before = self._commit_before(ledger) if seen.is_stream and not seen.is_committed else None
        is_to_be_started = last is not None and not last.is_closed and last.driver is DriverState.NOT_STARTED
        return replace(
            seen,
            attempts=attempts,
            code_digest=self.write.code_digest,
            on_code_change=on_code_change,
            first_counted_failure=self._first_counted,
            keeps_in_vain=self._keeps_in_vain(seen),
            between=between,
            before=before,
            is_past_deadline=self.host.is_past_deadline(ledger.key.epoch),
            pause_left_s=self._left_s(ledger.key, attempts, self.host.pause_after),
            outage_left_s=self._left_s(ledger.key, attempts, attempt_clock.pause_after),
            retry_left_s=self._left_s(ledger.key, attempts, self.host.retry_after, -_MOST_SPREAD),
            row_errors=row_errors,
            is_claimed=row_errors is not None and ledger.commits.read_claim(0) is not None,
            queued=self.host.queue_for_a_place() if is_to_be_started else None,
        )

    def _commit_before(self, ledger: Ledger) -> CommitRecord | None:
        if ledger.key.epoch == 1:
            return None
        if self._before is None or self._before[0] != ledger.key.epoch:
            before = self.open_ledger(self.store, EpochKey(ledger.key.uid, ledger.key.epoch - 1))
            self._before = (ledger.key.epoch, before.commits.read_commit())
        return self._before[1]

    def observe_tables(self, seen: Observation, wanted: RecordAttempt) -> Observation:
        """Ask the catalogs as well, for an attempt that is to be recorded."""
        stage = self.write.stage
        # Of the source, the first stage has fixed all that counts: it may have moved since, or be gone.
        pin_source = tuple if stage is not None and stage.reads else self.pin_source
        reads_sink = isinstance(self.operation, Merge)
        tables = observe_tables(self.current_ledger, self.write.spec, self.sink, pin_source, wanted, reads_sink=reads_sink)
        return replace(seen, tables=tables)

    def observe_change(self, seen: Observation, wanted: NextStage | None) -> Observation:
        """Tell what a person is to decide, for an attempt that is to be recorded, if it is asked of one.

        `wanted`: of a write with stages, what is next.
        """
        if seen.on_code_change != "Ask":
            return seen
        spec, stage = self.write.spec, self.write.stage
        decisions = wanted.decisions if wanted is not None else ()
        redone = redone_by_an_edit(self.current_ledger, spec, decisions)
        change = Change(
            digest=self.digest_to_approve(),
            stage=stage.name if stage is not None else "",
            rows_sealed=measure(self.current_tallies).rows_read,
            redone=tuple(f"{one.name} ({' and '.join(IN_WORDS[cause] for cause in one.because)})" for one in redone),
            kept=tuple(one.name for one in decisions if one.what == "keep"),
            is_of_stage_before=wanted is not None and wanted.stage is not None,
        )
        return replace(seen, change=change)

    def _policy(self, seen: Observation) -> str:
        """Return what becomes of results of other code: what a person has decided for the code of now, where one is asked."""
        if seen.on_code_change != "Ask" or self.approval is None:
            return seen.on_code_change
        return self.approval.choice if self.approval.digest == self.digest_to_approve() else "Ask"

    def _left_s(
        self, key: EpochKey, attempts: Sequence[Attempt], pause_after: Callable[[int], float], most_spread: float = _MOST_SPREAD
    ) -> float:
        """Counted from when this process first saw the last attempt closed: no clock of anybody else is asked."""
        if not attempts or (closed_at := self._closed_at.get((key, attempts[-1].number))) is None:
            return 0.0
        in_vain = len(in_vain_in_a_row(attempts, self._first_counted or 1))
        spread = _spread(key, attempts[-1].number)
        return closed_at + pause_after(in_vain) * (1 + most_spread * spread) - self.host.clock()

    # --- one attempt ------------------------------------------------------------------------------------------------------

    def _attempt(self, ledger: Ledger, number: int, is_last: bool, is_committed: bool) -> Attempt:
        launch = ledger.attempts.read_launch(number)
        assert launch is not None
        closed = self._read_closed(ledger, number, is_last)
        is_open = is_last and closed is None
        # The driver first: were it asked after the seals, one that sealed and ended in between would look idle and gone.
        place = (ledger.key, number)
        may_be_at_work = is_open or (closed is not None and not closed.complete and (is_last or place in self._started))
        observed = self._driver(ledger, launch) if may_be_at_work else DriverObservation(DriverState.GONE)
        # While it is open, only of a stream: that the query has ended is no failure, and is said so.
        of_stream = launch.source.stream is not None
        is_gone = of_stream and observed.state is DriverState.GONE
        is_over = not closed.complete if closed is not None else is_gone
        said = ledger.attempts.read_failure(number) if is_over else None
        if not is_last and observed.state is DriverState.GONE:
            self._started.discard(place)
        if is_last and closed is not None and place not in self._closed_at:
            self._closed_at[place] = self.host.clock() - self.host.noted(*place).closed_s
        awaits_table = is_open and self._awaits_table(ledger, launch)
        is_sealed = is_open and self._is_sealed(ledger, number)
        if awaits_table and observed.state is DriverState.RUNNING:
            self._clock.move()  # it is for us to make the table
        is_at_work = is_open and not is_sealed and observed.state is DriverState.RUNNING
        started_as = self._kept.place_of(*driver_of(ledger.key, launch))
        starved = self._starvation(ledger, number, started_as) if is_at_work else None
        # Attempts may be many, and a comparison costs a tenth of the two digests.
        source, is_same_source = self.write.spec.source, launch.source == self.write.spec.source
        return Attempt(
            number=number,
            code_digest=launch.code_digest,
            driver=observed.state,
            problem=observed.problem,
            is_outdated=observed.is_outdated,
            is_edited=observed.is_edited,
            is_sealed=is_sealed,
            is_closed=closed is not None,
            is_complete=closed is not None and closed.complete,
            awaits_table=awaits_table,
            failure=failure_of(closed if is_over else None, said, of_stream=of_stream),
            idle_s=self._clock.idle_s if is_open else 0.0,
            mark=self._clock.mark if is_open else None,
            least_deadline_s=least_progress_deadline_s(launch.interval_s, launch.minimum_bytes) if is_open else 0.0,
            counted=launch.counted,
            # Of what is committed no seal is read: it may be cleaned.
            rows_quarantined=0 if is_committed else count_quarantined(self.current_tallies, launch, closed),
            # Whether it counts as failed is asked only while an attempt may follow: of what is committed no seal is read.
            has_sealed=closed is not None and not (closed.complete or is_committed) and self.current_tallies.covers_rows(number),
            starved=starved,
            starved_s=self._clock.starved_s if starved is not None else 0.0,
            starved_beside=self.host.count_starved() if starved is not None else 0,
            spread=_spread(ledger.key, number),
            holds_seals=any(closed.chain_lengths) if closed is not None else is_open and self._clock.links > 0,
            input_since=launch.input_since,
            is_of_other_source=not is_same_source and launch.source.identity != source.identity,
            is_of_other_reset=not ledger.key.stage and launch.reset_nonce != self.write.spec.reset_nonce,
            is_read_otherwise=not is_same_source and not launch.reads_stage and not launch.source.is_read_as(source),
            place=None if started_as == place else started_as,
            is_of_other_stage=not self.write.awaits_stages and not _is_same_stage(launch.stage, self.write.stage),
        )

    def _read_closed(self, ledger: Ledger, number: int, is_last: bool) -> ClosedRecord | None:
        """Return how an attempt was closed. The plan, which the last one is asked for next, is read beside it, and kept."""
        if not is_last or ledger.plans.is_known(number):
            return ledger.attempts.read_closed(number)
        closed, _ = ledger.read_both(lambda: ledger.attempts.read_closed(number), lambda: ledger.plans.read_plan(number))
        return closed

    def _starvation(self, ledger: Ledger, attempt: int, place: Place) -> Failure | None:
        """Ask for the executors of a driver that seals nothing. While it has none it is not idle: it could not do anything.

        `place`: what the driver was started for.
        """
        if not self._clock.is_starved and self._clock.idle_s < _IDLE_BEFORE_STARVED_S:
            return None
        plan = ledger.plans.read_plan(attempt)
        in_driver = plan is not None and plan.in_driver
        starved = None if in_driver else self.host.find_starvation(*place, plan is not None)
        self._clock.starve(starved is not None)
        return starved

    def _driver(self, ledger: Ledger, launch: LaunchRecord) -> DriverObservation:
        observed = self._kept.observe(ledger, launch, self.drivers.observe(*driver_of(ledger.key, launch)))
        if observed.state is DriverState.GONE and launch.recorded_by != self.host.recorder:
            return DriverObservation(DriverState.ELSEWHERE)
        has_had_one = launch.driven_by is not None or ledger.plans.read_plan(launch.attempt) is not None
        if observed.state is DriverState.NOT_STARTED and has_had_one:
            # Somebody has driven this attempt, or was at work when it was recorded: another driver of it would be one too many.
            return DriverObservation(DriverState.GONE, observed.problem)
        return observed

    def _is_sealed(self, ledger: Ledger, attempt: int) -> bool:
        """Whether every task of the plan shows its last seal. Only a reason to close: closing reads for itself.

        Progress is each new link here, also that of a task without rows: it ends once in an attempt, so that this bounds itself.
        Over attempts only rows count (`has_sealed`). Rows that tasks say they have in hand, and calls that they have made, are
        progress too: a segment bounds these, as it is sealed when it is old.
        """
        plan = ledger.plans.read_plan(attempt)
        listing = ledger.seals.list_seals(attempt) if plan else SealListing()
        links = sum(listing.lengths().values())
        self._clock.see(attempt, links, plan is not None, lambda: self.host.noted(ledger.key, attempt))
        if self._clock.idle_s >= _IDLE_BEFORE_HEARD_S:
            self._hear(ledger, attempt)
        return plan is not None and self.current_tallies.shows_every_last(attempt, plan.task_count, listing)

    def _hear(self, ledger: Ledger, attempt: int) -> None:
        """Ask what the tasks have in hand. Where that has changed they are at work, though they have sealed nothing."""
        told = read_report(ledger.store, ledger.at.progress(attempt), DriverProgress)
        if told is not None and told.phase == "AwaitingRows":
            self._clock.move()  # of a stream: there is nothing to seal
        elif told is not None and told.work:
            self._clock.hear(hashlib.sha256(repr(told.work).encode()).hexdigest()[:16])

    def _awaits_table(self, ledger: Ledger, launch: LaunchRecord) -> bool:
        if launch.target is not None or ledger.plans.read_plan(launch.attempt) is not None:
            return False
        return ledger.attempts.read_output(launch.attempt) is not None and ledger.attempts.read_target(launch.attempt) is None


def _is_same_stage(one: StageIdentity | None, other: StageIdentity | None) -> bool:
    """Whether two attempts do the same to the same rows, whatever code they do it with."""
    if one is None or other is None:
        return one is other
    return (one.reads, one.algorithm, one.hash_in) == (other.reads, other.algorithm, other.hash_in)


def _spread(key: EpochKey, attempt: int) -> float:
    """Return a number from 0 to 1 that is an attempt's own, and the same whoever asks."""
    digest = hashlib.sha256(f"{key}/{attempt}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32
