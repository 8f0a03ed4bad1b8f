"""The observation of a write: all that the rules go by is read here, from ledger, drivers and catalogs. Changes nothing.

Used alike by the controller of a cluster, by the runner of one machine and by the simulation; only the ports differ. Between
rounds it remembers when it saw progress last, which no safety depends on, and what it has read of records that never change.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from checkpoint_operator.core import pauses
from checkpoint_operator.core.actions import RecordAttempt
from checkpoint_operator.core.observation import Attempt, DriverObservation, DriverState, Failure, Observation
from checkpoint_operator.core.rules import in_vain_in_a_row
from checkpoint_operator.ports import Drivers, Sink, Write
from checkpoint_operator.row_errors import count_quarantined, limit_of
from checkpoint_operator.source_tables import PinSource
from checkpoint_operator.table_facts import observe_tables
from checkpoint_operator.tallies import Tallies
from checkpoint_operator.told_failures import failure_of
from checkpoint_protocol import writes
from checkpoint_protocol.advice import DriverProgress, Work, read_advice
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.listing import SealListing
from checkpoint_protocol.records import LaunchRecord
from checkpoint_protocol.store import ObjectStore

#: A driver that has sealed nothing for so long is asked whether it has executors.
_IDLE_BEFORE_STARVED_S: Final = 15.0
#: Tasks are asked what they have in hand where nothing was sealed for so long: it costs a request.
_IDLE_BEFORE_HEARD_S: Final = 60.0
#: Each attempt's pauses are longer by its own part of this share (shorter, before something outside is tried again), so that
#: what failed together is not tried again together.
_MOST_SPREAD: Final = 0.5


def _last_of(attempts: list[int]) -> int:
    return attempts[-1] if attempts else 0


@dataclass(slots=True)
class Observer:
    """Reads one write. `current_ledger` is that of the epoch at hand: at first the last one that was begun."""

    write: Write
    store: ObjectStore
    drivers: Drivers
    sink: Sink
    clock: Callable[[], float] = time.monotonic
    #: The machine that records attempts. The drivers of others cannot be seen from here.
    recorder: str = ""
    #: Describes a source table whose catalog only this process knows.
    pin_source: PinSource = tuple
    #: Returns what keeps all executors of a driver at work from running, if anything does: of which attempt, and has it planned.
    find_starvation: Callable[[EpochKey, int, bool], Failure | None] = lambda key, attempt, has_plan: None
    #: Returns how many writes come before this one, where its driver has to wait for a place; None if it has one.
    queue_for_a_place: Callable[[], int | None] = lambda: None
    #: Gives the write as it is now (its code may have been changed) where a new attempt may depend on that.
    renew: Callable[[Write], Write] = lambda write: write
    #: Returns the last attempt whose failure no longer counts, of those that an epoch has when it is first observed. A person who
    #: runs a write again asks for new tries by that.
    forgive: Callable[[list[int]], int] = _last_of
    #: Whether this epoch has taken longer than its manifest allows.
    is_past_deadline: Callable[[int], bool] = lambda epoch: False
    pause_after: Callable[[int], float] = lambda failures: 0.0
    #: The same where a service that the steps call is out, also on one machine.
    pause_in_outage: Callable[[int], float] = pauses.pause_after
    #: The same where the last attempt waits for something outside of the manifest; a person who runs a write again asks by that.
    retry_after: Callable[[int], float] = lambda failures: math.inf
    open_ledger: Callable[[ObjectStore, EpochKey], Ledger] = Ledger
    #: Epoch and attempt of the drivers that were started from here, and not seen to have ended. Another runner may close them.
    _started: set[tuple[int, int]] = field(default_factory=set)
    _closed_at: dict[tuple[int, int], float] = field(default_factory=dict)
    _ledger: Ledger | None = None
    _tallies: Tallies | None = None
    _progress: tuple[tuple[int, int, int], float] = field(default=((0, 0, 0), 0.0))
    #: What the tasks had in hand when that was last looked at.
    _in_hand: tuple[Work, ...] = ()
    _starved_since: float | None = None
    _first_counted: int | None = None

    @property
    def current_ledger(self) -> Ledger:
        if self._ledger is None:
            epochs = writes.list_epochs(self.store, self.write.uid)
            self._ledger = self.open_ledger(self.store, EpochKey(self.write.uid, epochs[-1] if epochs else 1))
        return self._ledger

    @property
    def current_tallies(self) -> Tallies:
        """The sums of the current epoch's seals; what was read for them in earlier rounds is kept."""
        ledger = self.current_ledger
        if self._tallies is None or self._tallies.ledger is not ledger:
            self._tallies = Tallies(ledger)
        return self._tallies

    def open_epoch(self, epoch: int) -> None:
        """Observe this epoch from now on."""
        self._ledger = self.open_ledger(self.store, EpochKey(self.write.uid, epoch))
        self._first_counted = None

    def expect_start(self, attempt: int) -> None:
        """Note that a driver is started from here: its time begins now."""
        self._progress = ((attempt, 0, 0), self.clock())
        self._starved_since = None
        self._started.add((self.current_ledger.key.epoch, attempt))

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
        )

    def observe(self) -> Observation:
        """Read what there is of the epoch, and ask for its drivers."""
        seen, ledger = self.observe_end(), self.current_ledger
        numbers = ledger.attempts.list_attempts()
        if self._first_counted is None or not numbers:
            self._first_counted = self.forgive(numbers) + 1
        attempts = tuple(self._attempt(ledger, number, number == numbers[-1], seen.is_committed) for number in numbers)
        row_errors = None if seen.is_committed else limit_of(self.current_tallies, self.write.spec, attempts)
        last = attempts[-1] if attempts else None
        if not seen.is_committed and (last is None or (last.is_closed and not last.is_complete)):
            # Not where all is sealed: the commit needs nobody's code.
            self.write = self.renew(self.write)
        is_to_be_started = last is not None and not last.is_closed and last.driver is DriverState.NOT_STARTED
        return replace(
            seen,
            attempts=attempts,
            code_digest=self.write.code_digest,
            first_counted_failure=self._first_counted,
            is_suspended=self.write.spec.suspend,
            is_past_deadline=self.is_past_deadline(ledger.key.epoch),
            pause_left_s=self._left_s(ledger.key, attempts, self.pause_after),
            outage_left_s=self._left_s(ledger.key, attempts, self.pause_in_outage),
            retry_left_s=self._left_s(ledger.key, attempts, self.retry_after, -_MOST_SPREAD),
            row_errors=row_errors,
            is_claimed=row_errors is not None and ledger.commits.read_claim(0) is not None,
            queued=self.queue_for_a_place() if is_to_be_started else None,
        )

    def observe_tables(self, seen: Observation, wanted: RecordAttempt) -> Observation:
        """Ask the catalogs as well, for an attempt that is to be recorded."""
        tables = observe_tables(self.current_ledger, self.write.spec, self.sink, self.pin_source, wanted)
        return replace(seen, tables=tables)

    def _left_s(
        self, key: EpochKey, attempts: Sequence[Attempt], pause_after: Callable[[int], float], most_spread: float = _MOST_SPREAD
    ) -> float:
        """Counted from when this process first saw the last attempt closed: no clock of anybody else is asked."""
        if not attempts or (closed_at := self._closed_at.get((key.epoch, attempts[-1].number))) is None:
            return 0.0
        in_vain = len(in_vain_in_a_row(attempts, self._first_counted or 1))
        spread = _spread(key, attempts[-1].number)
        return closed_at + pause_after(in_vain) * (1 + most_spread * spread) - self.clock()

    # --- one attempt ------------------------------------------------------------------------------------------------------

    def _attempt(self, ledger: Ledger, number: int, is_last: bool, is_committed: bool) -> Attempt:
        launch = ledger.attempts.read_launch(number)
        assert launch is not None
        closed = ledger.attempts.read_closed(number)
        failure = ledger.attempts.read_failure(number) if closed is not None and not closed.complete else None
        is_open = is_last and closed is None
        # The driver first: were it asked after the seals, one that sealed and ended in between would look idle and gone.
        place = (ledger.key.epoch, number)
        may_be_at_work = is_open or (closed is not None and not closed.complete and (is_last or place in self._started))
        observed = self._driver(ledger, launch) if may_be_at_work else DriverObservation(DriverState.GONE)
        if not is_last and observed.state is DriverState.GONE:
            self._started.discard(place)
        if is_last and closed is not None:
            self._closed_at.setdefault(place, self.clock())
        is_sealed = is_open and self._is_sealed(ledger, number)
        is_at_work = is_open and not is_sealed and observed.state is DriverState.RUNNING
        starved = self._starvation(ledger, number) if is_at_work else None
        source = self.write.spec.source
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
            awaits_table=is_open and self._awaits_table(ledger, launch),
            failure=failure_of(failure) if failure else None,
            idle_s=self.clock() - self._progress[1] if is_open else 0.0,
            counted=launch.counted,
            rows_quarantined=count_quarantined(self.current_tallies, launch, closed),
            # Whether it counts as failed is asked only while an attempt may follow: of what is committed no seal is read.
            has_sealed=closed is not None and not (closed.complete or is_committed) and self.current_tallies.covers_rows(number),
            starved=starved,
            starved_s=self.clock() - self._starved_since if starved is not None and self._starved_since is not None else 0.0,
            spread=_spread(ledger.key, number),
            holds_seals=any(closed.chain_lengths) if closed is not None else is_open and self._progress[0][1] > 0,
            input_since=launch.input_since,
            is_of_other_source=launch.source.identity != source.identity,
            is_read_otherwise=not launch.source.is_read_as(source),
        )

    def _starvation(self, ledger: Ledger, attempt: int) -> Failure | None:
        """Ask for the executors of a driver that seals nothing. While it has none it is not idle: it could not do anything."""
        if self._starved_since is None and self.clock() - self._progress[1] < _IDLE_BEFORE_STARVED_S:
            return None
        plan = ledger.plans.read_plan(attempt)
        in_driver = plan is not None and plan.in_driver
        starved = None if in_driver else self.find_starvation(ledger.key, attempt, plan is not None)
        if starved is None:
            self._starved_since = None
            return None
        if self._starved_since is None:
            self._starved_since = self._progress[1]
        self._progress = (self._progress[0], self.clock())
        return starved

    def _driver(self, ledger: Ledger, launch: LaunchRecord) -> DriverObservation:
        observed = self.drivers.observe(ledger.key, launch.attempt)
        if observed.state is DriverState.GONE and launch.recorded_by != self.recorder:
            return DriverObservation(DriverState.ELSEWHERE)
        if observed.state is DriverState.NOT_STARTED and ledger.plans.read_plan(launch.attempt) is not None:
            # Somebody has driven this attempt: another driver of it would end before any task.
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
        progress = (attempt, sum(listing.lengths().values()), int(plan is not None))
        if progress != self._progress[0]:
            self._progress = (progress, self.clock())
        elif self.clock() - self._progress[1] >= _IDLE_BEFORE_HEARD_S:
            self._hear(ledger, attempt)
        return plan is not None and self.current_tallies.shows_every_last(attempt, plan.task_count, listing)

    def _hear(self, ledger: Ledger, attempt: int) -> None:
        """Ask what the tasks have in hand. Where that has changed they are at work, though they have sealed nothing."""
        told = read_advice(ledger.store, ledger.at.progress(attempt), DriverProgress)
        if told is not None and told.work and told.work != self._in_hand:
            self._in_hand, self._progress = told.work, (self._progress[0], self.clock())

    def _awaits_table(self, ledger: Ledger, launch: LaunchRecord) -> bool:
        if launch.target is not None or ledger.plans.read_plan(launch.attempt) is not None:
            return False
        return ledger.attempts.read_output(launch.attempt) is not None and ledger.attempts.read_target(launch.attempt) is None


def _spread(key: EpochKey, attempt: int) -> float:
    """Return a number from 0 to 1 that is an attempt's own, and the same whoever asks."""
    digest = hashlib.sha256(f"{key}/{attempt}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32
