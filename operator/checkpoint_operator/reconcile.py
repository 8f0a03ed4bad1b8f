"""One write: observe, decide, act, again. The same loop in a cluster and on one machine; only the ports differ.

Nothing is remembered between rounds but when progress was last seen, which no safety depends on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never

from checkpoint_operator.commit.outcomes import BurialOutcome, CommitOutcome, Committed, Rejected, TryLater, Unknown
from checkpoint_operator.commit.results import Files, Results, gather
from checkpoint_operator.core.actions import (
    Action,
    Close,
    Commit,
    Finish,
    MakeTable,
    RecordAttempt,
    Stall,
    StartDriver,
    StopDriver,
    Wait,
)
from checkpoint_operator.core.observation import Attempt, DriverSight, DriverState, Failure, Observation
from checkpoint_operator.core.rules import decide, in_vain_in_a_row
from checkpoint_operator.replaced_tables import attempts_with_seals, sealed_for_another_table
from checkpoint_operator.row_errors import count_quarantined, limit_of
from checkpoint_operator.tallies import Tallies
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.listing import SealListing
from checkpoint_protocol.manifest import Source, Spec
from checkpoint_protocol.outputs import Output, find_path_into, is_one_place, outputs_of, refuse
from checkpoint_protocol.records import (
    FailureRecord,
    IcebergTarget,
    LanceTarget,
    LaunchRecord,
    MarkRecord,
    NoTarget,
    PinnedIceberg,
    StagedFile,
    Target,
    TargetRecord,
)
from checkpoint_protocol.store import ObjectStore

#: A driver that has sealed nothing for so long is asked whether it has executors.
_IDLE_BEFORE_STARVED_S: Final = 15.0
#: Each attempt's pauses are longer by its own part of this share (shorter, before something outside is looked at again), so that
#: what failed together is not tried again together.
_MOST_SPREAD: Final = 0.5


class Drivers(Protocol):
    """What starts and ends drivers: processes or pods."""

    def look(self, key: EpochKey, attempt: int) -> DriverSight:
        """Return what is known of an attempt's driver. A driver that may still run but is not ours is GONE."""

    def expect(self, key: EpochKey, attempt: int) -> None:
        """Note that this process has recorded the attempt, so that its driver is yet to be started."""

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        """Start the driver of a recorded attempt. Starting a second one is harmless: it ends before any task."""

    def stop(self, key: EpochKey, attempt: int) -> None:
        """Ask the driver to end, and do not wait for it. It may go on as a zombie."""


class Sink(Protocol):
    """The write's target: what staging must know of it, the commit, and what deletion undoes of both."""

    @property
    def title(self) -> str:
        """Name the target, for people."""

    @property
    def output(self) -> Output | None:
        """Where data files go, also before the target exists; None where only the target knows."""

    def describe(self) -> Target | None:
        """Return the target as it is now; None if it does not exist."""

    def create(self, arrow_schema: str) -> Target:
        """Make the target for this output; return it, also if it is there already."""

    def pack(self, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Files:
        """Take all the files of an epoch in, one at a time, in the form in which `commit` takes them. Changes nothing."""

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        """Put the results into the target, once."""

    def bury(self, ledger: Ledger) -> BurialOutcome:
        """See to it that nothing of a claimed epoch lands any more. Called by deletion only, after its note was put."""

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        """Remove data files that can never be committed; return how many.

        Only those that are surely this epoch's own, by their names below the targets' locations; all others are passed over.
        Idempotent: those that are not there count too.
        """


@dataclass(frozen=True, slots=True)
class Write:
    """Who is written, as the manifest says now."""

    uid: str
    spec: Spec
    code_digest: str
    #: The digest of the archive in the store that the next attempt is recorded with; None: there is none.
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """What a round saw, what it decided, and how the last action ended."""

    key: EpochKey
    seen: Observation
    actions: tuple[Action, ...]
    mark: MarkRecord | None = None

    @property
    def outcome(self) -> Finish | Stall | None:
        """How the write ended, or None if there are more rounds to come."""
        last = self.actions[-1]
        return last if isinstance(last, Finish | Stall) else None


@dataclass(slots=True)
class Reconciler:
    """The loop's body."""

    write: Write
    store: ObjectStore
    drivers: Drivers
    sink: Sink
    clock: Callable[[], float] = time.monotonic
    recorder: str = ""
    #: Looks at a source table whose catalog only this process knows.
    look_at_source: Callable[[], PinnedIceberg | None] = lambda: None
    #: Returns what keeps all executors of a driver at work from running, if anything does: of which attempt, and has it planned.
    look_at_executors: Callable[[EpochKey, int, bool], Failure | None] = lambda key, attempt, has_plan: None
    #: Returns how many writes come before this one, where its driver has to wait for a place; None if it has one.
    ask_for_a_place: Callable[[], int | None] = lambda: None
    #: Gives the write as it is now (its code may have been changed) where a new attempt may depend on that.
    renew: Callable[[Write], Write] = lambda write: write
    first_counted_failure: int | None = None
    is_past_deadline: bool = False
    pause_after: Callable[[int], float] = lambda failures: 0.0
    #: The same where the last attempt waits for something outside of the manifest; a person who runs a write again asks by that.
    look_again_after: Callable[[int], float] = lambda failures: math.inf
    #: Entered around reading what is committed and committing it. Raises Retryable if it is not this write's turn.
    commit_turn: Callable[[], AbstractContextManager[object]] = nullcontext
    #: Epoch and attempt of the drivers that were started from here, and not seen to have ended. Another runner may close them.
    _started: set[tuple[int, int]] = field(default_factory=set)
    _closed_at: dict[tuple[int, int], float] = field(default_factory=dict)
    _ledger: Ledger | None = None
    _tallies: Tallies | None = None
    _progress: tuple[tuple[int, int, int], float] = field(default=((0, 0, 0), 0.0))
    _starved_since: float | None = None

    def step(self) -> Round:
        """Do one round. Raises CheckpointError where a port does; the next round begins from what is stored."""
        ledger = self.current_ledger()
        seen = self.observe(ledger)
        actions = decide(seen)
        done: list[Action] = []
        mark = ledger.read_mark() if seen.is_marked else None
        for action in actions:
            ended = self._act(ledger, seen, action)
            done.append(ended or action)
            if ended is not None:
                break
        return Round(ledger.key, seen, tuple(done), mark)

    # --- observe --------------------------------------------------------------------------------------------------------------

    def current_ledger(self) -> Ledger:
        """Return the ledger of the current epoch: the latest, or the next if that is marked and runNonce has changed."""
        if self._ledger is None:
            epochs = writes.list_epochs(self.store, self.write.uid)
            self._ledger = Ledger(self.store, EpochKey(self.write.uid, epochs[-1] if epochs else 1))
        key = self._ledger.key
        if self._ledger.read_mark() is not None:
            first = self._ledger.read_launch(1)
            if first is not None and first.run_nonce != self.write.spec.run_nonce:
                self._ledger = Ledger(self.store, EpochKey(key.uid, key.epoch + 1))
        return self._ledger

    def current_tallies(self) -> Tallies:
        """Return the sums of the current epoch's seals; what was read for them in earlier rounds is kept."""
        return self._tallies_of(self.current_ledger())

    def _tallies_of(self, ledger: Ledger) -> Tallies:
        if self._tallies is None or self._tallies.ledger is not ledger:
            self._tallies = Tallies(ledger)
        return self._tallies

    def observe(self, ledger: Ledger) -> Observation:
        """Read the store and ask for the drivers."""
        numbers = ledger.list_attempts()
        if self.first_counted_failure is None or not numbers:
            self.first_counted_failure = (numbers[-1] if numbers else 0) + 1
        is_marked = ledger.read_mark() is not None
        attempts = tuple(self._observe_attempt(ledger, number, number == numbers[-1], is_marked) for number in numbers)
        row_errors = None if is_marked else limit_of(self._tallies_of(ledger), self.write.spec, attempts)
        if not is_marked and (not attempts or (attempts[-1].is_closed and not attempts[-1].is_complete)):
            # Not where all is sealed: the commit needs nobody's code.
            self.write = self.renew(self.write)
        return Observation(
            epoch=ledger.key.epoch,
            is_marked=is_marked,
            attempts=attempts,
            code_digest=self.write.code_digest,
            on_code_change=self.write.spec.on_code_change,
            backoff_limit=self.write.spec.backoff_limit,
            progress_deadline_s=self.write.spec.progress_deadline_s,
            first_counted_failure=self.first_counted_failure,
            is_suspended=self.write.spec.suspend,
            is_past_deadline=self.is_past_deadline,
            pause_left_s=self._left_s(ledger.key.epoch, attempts, self.pause_after),
            look_again_left_s=self._left_s(ledger.key.epoch, attempts, self.look_again_after, -_MOST_SPREAD),
            row_errors=row_errors,
            is_claimed=row_errors is not None and ledger.read_claim(0) is not None,
            queued=self.ask_for_a_place() if self._is_to_be_started(attempts) else None,
        )

    def _is_to_be_started(self, attempts: Sequence[Attempt]) -> bool:
        last = attempts[-1] if attempts else None
        return last is not None and not last.is_closed and last.driver is DriverState.NOT_STARTED

    def _left_s(
        self, epoch: int, attempts: Sequence[Attempt], pause_after: Callable[[int], float], most_spread: float = _MOST_SPREAD
    ) -> float:
        """Counted from when this process first saw the last attempt closed: no clock of anybody else is asked."""
        if not attempts or (closed_at := self._closed_at.get((epoch, attempts[-1].number))) is None:
            return 0.0
        in_vain = len(in_vain_in_a_row(attempts, self.first_counted_failure or 1))
        spread = _spread(EpochKey(self.write.uid, epoch), attempts[-1].number)
        return closed_at + pause_after(in_vain) * (1 + most_spread * spread) - self.clock()

    def _observe_attempt(self, ledger: Ledger, number: int, is_last: bool, is_marked: bool) -> Attempt:
        launch = ledger.read_launch(number)
        assert launch is not None
        closed = ledger.read_closed(number)
        failure = ledger.read_failure(number) if closed is not None and not closed.complete else None
        is_open = is_last and closed is None
        # The driver first: were it asked after the seals, one that sealed and ended in between would look idle and gone.
        place = (ledger.key.epoch, number)
        may_be_at_work = is_open or (closed is not None and not closed.complete and (is_last or place in self._started))
        sight = self._look(ledger, launch) if may_be_at_work else DriverSight(DriverState.GONE)
        if not is_last and sight.state is DriverState.GONE:
            self._started.discard(place)
        if is_last and closed is not None:
            self._closed_at.setdefault((ledger.key.epoch, number), self.clock())
        is_sealed = is_open and self._is_sealed(ledger, number)
        is_at_work = is_open and not is_sealed and sight.state is DriverState.RUNNING
        starved = self._look_at_executors(ledger, number) if is_at_work else None
        source = self.write.spec.source
        return Attempt(
            number=number,
            code_digest=launch.code_digest,
            driver=sight.state,
            trouble=sight.trouble,
            is_outdated=sight.is_outdated,
            is_edited=sight.is_edited,
            is_sealed=is_sealed,
            is_closed=closed is not None,
            is_complete=closed is not None and closed.complete,
            awaits_table=is_open and self._awaits_table(ledger, launch),
            failure=Failure(failure.family, failure.reason, failure.message) if failure else None,
            idle_s=self.clock() - self._progress[1] if is_open else 0.0,
            counted=launch.counted,
            rows_quarantined=count_quarantined(self._tallies_of(ledger), launch, closed),
            # Whether it counts as failed is asked only while an attempt may follow: of what is marked no seal is read.
            has_sealed=closed is not None and not (closed.complete or is_marked) and self._tallies_of(ledger).covers_rows(number),
            starved=starved,
            starved_s=self.clock() - self._starved_since if starved is not None and self._starved_since is not None else 0.0,
            spread=_spread(ledger.key, number),
            holds_seals=any(closed.chain_lengths) if closed is not None else is_open and self._progress[0][1] > 0,
            input_since=launch.input_since,
            is_of_other_source=launch.source.identity != source.identity,
            is_read_otherwise=not launch.source.is_read_as(source),
        )

    def _look_at_executors(self, ledger: Ledger, attempt: int) -> Failure | None:
        """Ask for the executors of a driver that seals nothing. While it has none it is not idle: it could not do anything."""
        if self._starved_since is None and self.clock() - self._progress[1] < _IDLE_BEFORE_STARVED_S:
            return None
        plan = ledger.read_plan(attempt)
        in_driver = plan is not None and plan.in_driver
        starved = None if in_driver else self.look_at_executors(ledger.key, attempt, plan is not None)
        if starved is None:
            self._starved_since = None
            return None
        if self._starved_since is None:
            self._starved_since = self._progress[1]
        self._progress = (self._progress[0], self.clock())
        return starved

    def _look(self, ledger: Ledger, launch: LaunchRecord) -> DriverSight:
        sight = self.drivers.look(ledger.key, launch.attempt)
        if sight.state is DriverState.GONE and launch.recorded_by != self.recorder:
            return DriverSight(DriverState.ELSEWHERE)
        if sight.state is DriverState.NOT_STARTED and ledger.read_plan(launch.attempt) is not None:
            # Somebody has driven this attempt: another driver of it would end before any task.
            return DriverSight(DriverState.GONE, sight.trouble)
        return sight

    def _is_sealed(self, ledger: Ledger, attempt: int) -> bool:
        """Whether every task of the plan shows its last seal. Only a reason to close: closing looks for itself.

        Progress is each new link here, also that of a task without rows: it ends once in an attempt, so that this bounds itself.
        Over attempts only rows count (`has_sealed`).
        """
        plan = ledger.read_plan(attempt)
        listing = ledger.list_seals(attempt) if plan else SealListing()
        progress = (attempt, sum(listing.lengths().values()), int(plan is not None))
        if progress != self._progress[0]:
            self._progress = (progress, self.clock())
        return plan is not None and self._tallies_of(ledger).shows_every_last(attempt, plan.task_count, listing)

    def _awaits_table(self, ledger: Ledger, launch: LaunchRecord) -> bool:
        if launch.target is not None or ledger.read_plan(launch.attempt) is not None:
            return False
        return ledger.read_output(launch.attempt) is not None and ledger.read_target(launch.attempt) is None

    # --- act ------------------------------------------------------------------------------------------------------------------

    def _act(self, ledger: Ledger, seen: Observation, action: Action) -> Stall | None:
        """Carry out one action; return Stall if it shows that a person must act."""
        match action:
            case Commit(attempt):
                return self._commit(ledger, attempt)
            case Close(attempt, _, failure):
                self._close(ledger, attempt, failure)
            case StopDriver(attempt):
                self.drivers.stop(ledger.key, attempt)
            case MakeTable(attempt):
                return self._make_table(ledger, attempt)
            case StartDriver(attempt):
                launch = ledger.read_launch(attempt)
                assert launch is not None
                self._progress = ((attempt, 0, 0), self.clock())
                self._starved_since = None
                self._started.add((ledger.key.epoch, attempt))
                self.drivers.start(ledger.key, launch)
            case RecordAttempt(attempt, counted, input_since):
                return self._record(ledger, attempt, counted, input_since)
            case Finish() | Wait() | Stall():
                pass
            case _:
                assert_never(action)
        return None

    def _close(self, ledger: Ledger, attempt: int, failure: Failure | None) -> None:
        if failure is not None and ledger.read_failure(attempt) is None:
            ledger.put_failure(
                FailureRecord.model_validate({"token": new_token(), "attempt": attempt, **dataclasses.asdict(failure)})
            )
        ledger.close(attempt)

    def _record(self, ledger: Ledger, attempt: int, counted: tuple[int, ...], input_since: int) -> Stall | None:
        spec = self.write.spec
        if ledger.is_deleted():
            return Stall(reasons.WRITE_DELETED, f"the write {ledger.key.uid} was deleted; give a new write a new name")
        try:
            target = self.sink.describe()
            # What the input is has been fixed by an attempt before: the table may have moved since, or be gone.
            source_table = None
            if ledger.read_input(input_since) is None:
                self._refuse_own_outputs(target)
                source_table = self.look_at_source()
        except NeedsChange as error:
            return Stall(error.reason, error.message)
        if _is_source(target, spec.source, source_table):
            return Stall(
                reasons.MANIFEST_INVALID,
                f"source and sink are one table ({self.sink.title}): what a run appends would be the next one's input; write to "
                "another table",
            )
        if target is None and not spec.sink.create:
            return Stall(
                reasons.TABLE_MISSING,
                f"{self.sink.title} does not exist; make it, or set sink.create: true to have it made from the steps' output",
            )
        counted = attempts_with_seals(ledger, counted)
        if (other := sealed_for_another_table(ledger, counted, target)) is not None:
            fate = "was dropped" if target is None else "was dropped and made again"
            return Stall(
                reasons.TABLE_REPLACED,
                f"{self.sink.title} {fate} after attempt {other} had sealed results for it, whose files belong to the old table: "
                "restore that one, or give the write a new name to compute all again",
            )
        launch = LaunchRecord(
            token=new_token(),
            attempt=attempt,
            run_nonce=spec.run_nonce,
            source=spec.source,
            steps=spec.steps,
            code_digest=self.write.code_digest,
            target=target,
            sink_format=spec.sink.format,
            target_file_size_bytes=spec.sink.target_file_size,
            interval_s=spec.checkpoint.interval,
            minimum_bytes=spec.checkpoint.minimum_bytes,
            counted=counted,
            recorded_by=self.recorder,
            code=self.write.code,
            on_replaced=spec.on_replaced,
            on_row_error=spec.on_row_error,
            quarantine=spec.quarantine,
            source_table=source_table,
            input_since=input_since,
        )
        if ledger.put_launch(launch).token == launch.token:
            self.drivers.expect(ledger.key, attempt)
        return None

    def _refuse_own_outputs(self, target: Target | None) -> None:
        """Raise NeedsChange if the paths of the source lead to where the write puts its files. What lies there nobody lists."""
        spec = self.write.spec
        outputs = outputs_of(target, self.store.uri)
        if target is None and self.sink.output is not None:
            outputs = (self.sink.output, *outputs)
        refuse(find_path_into(outputs, spec.source.all_paths))

    def _make_table(self, ledger: Ledger, attempt: int) -> Stall | None:
        output = ledger.read_output(attempt)
        assert output is not None
        try:
            target = self.sink.create(output.arrow_schema)
            self._refuse_own_outputs(target)
        except NeedsChange as error:
            # Closed first: an attempt that is open would be started again, and end here again.
            self._close(ledger, attempt, Failure("NeedsChange", error.reason, error.message))
            self.drivers.stop(ledger.key, attempt)
            return Stall(error.reason, error.message)
        ledger.put_target(attempt, TargetRecord(token=new_token(), target=target))
        return None

    def _commit(self, ledger: Ledger, attempt: int) -> Stall | None:
        with self.commit_turn():
            results = gather(ledger, attempt, self.sink.pack)
            outcome: CommitOutcome | None = self.sink.commit(ledger, results) if len(results.files) else None
        match outcome:
            case Committed(identity, commit_id, _, is_current):
                self._mark(ledger, results, identity, commit_id, was_rolled_back=not is_current)
            case None:  # no rows: nothing to commit, no version is made, and the epoch is done all the same
                self._mark(ledger, results, None, None)
            case Rejected(reason, message):
                return Stall(reason, message)
            case Unknown(message):
                return Stall(reasons.COMMIT_OUTCOME_UNKNOWN, message)
            case TryLater(reason, message):
                raise Retryable(reason, message)
            case _:
                assert_never(outcome)
        return None

    def _mark(
        self, ledger: Ledger, results: Results, identity: str | None, commit_id: int | None, was_rolled_back: bool = False
    ) -> None:
        ledger.put_mark(
            MarkRecord(
                token=new_token(),
                key=str(ledger.key),
                target=self.sink.title,
                table_identity=identity,
                commit_id=commit_id,
                rows_read=results.rows_read,
                rows_written=results.rows_written,
                files=len(results.files),
                attempts=results.attempts,
                code_digests=results.code_digests,
                rows_quarantined=results.rows_quarantined,
                was_rolled_back=was_rolled_back,
                read_digests=results.read_digests,
                input_since=results.input_since,
            )
        )


def _spread(key: EpochKey, attempt: int) -> float:
    """Return a number from 0 to 1 that is an attempt's own, and the same whoever asks."""
    digest = hashlib.sha256(f"{key}/{attempt}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


def _is_source(target: Target | None, source: Source, source_table: PinnedIceberg | None) -> bool:
    """Whether a table would be read and written by one write, under whatever name."""
    match target:
        case IcebergTarget(table_uuid=uuid):
            return source_table is not None and source_table.table_uuid == uuid
        case LanceTarget(uri=uri):
            return source.lance is not None and is_one_place(source.lance.uri, uri)
        case NoTarget() | None:
            return False
        case other:
            assert_never(other)
