"""Drivers that wait for the next stage or epoch: which of them does an attempt that no pod or process was made for.

All of this is advice. A driver that waits goes on with the first attempt of what comes next when it finds its launch record;
whoever does not see that starts another driver, and of two drivers of an attempt one ends before any task. What is known of them
is read from the store, so that another operator knows it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from checkpoint_control.decision.observation import DriverObservation, DriverState
from checkpoint_control.ports import Drivers
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.progress_reports import DriverProgress, read_report
from checkpoint_protocol.records import LaunchRecord
from checkpoint_protocol.writes import list_stages

#: A driver that waits takes a launch up within so many seconds, or another one is started.
_TAKE_UP_S: Final = 10.0

#: The attempt that a driver was started for, by which processes and pods are known.
Place = tuple[EpochKey, int]


@dataclass(slots=True)
class KeptDrivers:
    """Those of one write, or stage. `digest`: of what drivers are started with now; None: none is to wait.

    `for_epochs`: they wait for the next epoch, too.
    """

    drivers: Drivers
    digest: str | None
    clock: Callable[[], float]
    for_epochs: bool
    _takers: dict[Place, Place] = field(default_factory=dict)
    _first_seen: tuple[EpochKey, float] | None = None

    def observe(self, ledger: Ledger, launch: LaunchRecord, own: DriverObservation) -> DriverObservation:
        """Return what is known of an attempt's driver. `own`: of the one that was started for it, which there may not be."""
        if launch.driver_digest is None or launch.attempt != 1 or own.state in (DriverState.STARTING, DriverState.RUNNING):
            return own
        for place in self._find(ledger, launch, is_started=own.state is not DriverState.NOT_STARTED):
            found = self.drivers.observe(*place)
            if found.state is DriverState.RUNNING:
                return DriverObservation(DriverState.RUNNING, is_edited=found.is_edited)
            # Before it has planned, its loss costs nothing: another driver does the same attempt.
            own = replace(own, problem=found.problem)
        return own

    def place_of(self, key: EpochKey, attempt: int) -> Place:
        """Return what the driver of an attempt was started for, as far as was seen."""
        return self._takers.get((key, attempt), (key, attempt))

    def places(self, ledger: Ledger, launch: LaunchRecord) -> Iterator[Place]:
        """Yield what the driver of an attempt may have been started for: the attempt, or one before it whose driver goes on."""
        yield ledger.key, launch.attempt
        if launch.driver_digest is not None and launch.attempt == 1:
            yield from self._find(ledger, launch, is_started=False)

    def unwanted(self, ledger: Ledger, *, is_suspended: bool) -> Place | None:
        """Return the driver that waits behind this epoch and is not to: the write is suspended, or drivers start otherwise."""
        kept = _kept_behind(ledger) if self.for_epochs else None
        if kept is None or (kept.digest == self.digest and not is_suspended):
            return None
        return kept.place if self.drivers.observe(*kept.place).state is DriverState.RUNNING else None

    def _find(self, ledger: Ledger, launch: LaunchRecord, is_started: bool) -> Iterator[Place]:
        """Yield the driver that says that it does the attempt; or, for a while, those that may wait for it.

        `is_started`: one was started for the attempt itself, or may have been where that cannot be seen.
        """
        key, attempt = ledger.key, launch.attempt
        if (key, attempt) not in self._takers:
            told = read_report(ledger.store, ledger.at.progress(attempt), DriverProgress)
            if told is not None and (place := _started_as(ledger, told)) is not None:
                self._takers = {(key, attempt): place}
        if (known := self._takers.get((key, attempt))) is not None:
            yield known
            return
        if self._first_seen is None or self._first_seen[0] != key:
            self._first_seen = (key, self.clock())
        if is_started or self.clock() - self._first_seen[1] > _TAKE_UP_S:
            return
        for before in self._before(ledger, launch):
            kept = _kept_behind(replace(ledger, key=before))
            if kept is not None and (kept.digest, kept.code) == (launch.driver_digest, launch.session_code):
                yield kept.place

    def _before(self, ledger: Ledger, launch: LaunchRecord) -> Iterator[EpochKey]:
        """Yield what has ended before this began: the one of its epoch that it follows, or the epoch before."""
        key, epoch = ledger.key, ledger.key.of_stage("")
        if launch.stage is not None and launch.reads_stage:
            yield key.of_stage(launch.reads_stage)
        elif key.stage and launch.stage is None:
            # The steps, but where another stage that the commit needs has followed them already.
            yield epoch
            yield from (other for other in list_stages(ledger.store, epoch) if other != key)
        elif self.for_epochs and key.epoch > 1:
            yield EpochKey(key.uid, key.epoch - 1)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The driver that has done a stage, or an epoch, and was told to wait for the next one. It may not be there any more."""

    digest: str
    code: str | None
    place: Place


def _kept_behind(ledger: Ledger) -> _Kept | None:
    commit = ledger.commits.read_commit()
    # Where the commit needs a stage first, the last attempt is the one that is complete.
    number = commit.attempts if commit is not None else max(ledger.attempts.list_attempts(), default=None)
    launch = ledger.attempts.read_launch(number) if number is not None else None
    if launch is None or launch.driver_digest is None:
        return None
    told = read_report(ledger.store, ledger.at.progress(launch.attempt), DriverProgress)
    place = _started_as(ledger, told) if told is not None else None
    return _Kept(launch.driver_digest, launch.session_code, place or (ledger.key, launch.attempt))


def _started_as(ledger: Ledger, told: DriverProgress) -> Place | None:
    if told.started_as is None:
        return None
    return EpochKey(ledger.key.uid, told.started_as.epoch, told.started_as.stage), told.started_as.attempt
