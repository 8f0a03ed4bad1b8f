"""Drivers that go on with the next stage or epoch, what they were started with, and why a driver has failed.

All of this is advice. A driver that waits goes on with the first attempt of what comes next when it finds its launch record;
whoever does not see that starts another driver, and of two drivers of an attempt one ends before any task. What is known of them
is read from the store, so that another operator knows it too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from checkpoint_control.decision.observation import DriverObservation, DriverState, Failure
from checkpoint_control.pipelines.decisions import named
from checkpoint_control.pipelines.results import spec_up_to
from checkpoint_control.ports import Drivers, Write
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.pipelines import parts_of
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.printable import printable
from checkpoint_protocol.progress_reports import DriverProgress, read_report
from checkpoint_protocol.records import ClosedRecord, FailureRecord, LaunchRecord
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


#: For so long a driver waits for the next stage of its epoch: the commit that finds out what it needs takes its time.
_STAGE_S: Final = 60.0
#: Commits in these modes need a stage of their own, of a merge or of a pack.
_MODES_WITH_STAGES: Final = ("Upsert", "AddColumns")
#: What counts at once, for whatever driver is at work.
_COUNTS_AT_ONCE: Final = frozenset(
    {
        "on_row_error",
        "quarantine",
        "run_nonce",
        "suspend",
        "backoff_limit",
        "active_deadline_seconds",
        "progress_deadline_seconds",
        "ttl_seconds_after_finished",
        "on_recreate",
        "deletion_policy",
    }
)


def digest_for_attempts(spec: Spec) -> str:
    """Return a digest of the fields of a manifest that count from the next attempt only."""
    return hashlib.sha256(spec.model_dump_json(exclude=set(_COUNTS_AT_ONCE)).encode()).hexdigest()[:32]


def keeps_for_epochs(spec: Spec) -> bool:
    """Whether a driver waits for the next epoch."""
    return spec.trigger is not None and spec.trigger.keep_driver is not None


def keeps_for_stages(spec: Spec) -> bool:
    """Whether a driver waits for the next stage of its epoch. That of a stream waits for the commit, within its attempt."""
    has_stages = bool(spec.stages) or spec.sink.mode in _MODES_WITH_STAGES or spec.sink.audit is not None
    return has_stages and spec.source.stream is None


def digest_of_kept(spec: Spec, defaults: str = "") -> str | None:
    """Return what a driver that waits for the next stage, or epoch, was started with; None where none is to wait.

    `defaults`: what else drivers are started with. A driver goes on with launches of its own digest only.
    """
    if not (keeps_for_epochs(spec) or keeps_for_stages(spec)):
        return None
    return hashlib.sha256(f"{digest_for_attempts(spec)} {defaults}".encode()).hexdigest()


def code_of_session(write: Write, renew: Callable[[Write], Write]) -> str | None:
    """Return the digest of the code of all stages of a write, as it is now; None where no driver goes from stage to stage."""
    spec = write.spec
    if not keeps_for_stages(spec):
        return None
    specs = [spec_up_to(spec, part) for part in parts_of(spec.stages)] if spec.stages else [spec]
    codes = [renew(replace(write, spec=one)) for one in specs]
    return hashlib.sha256(" ".join(f"{code.code_digest} {code.code}" for code in codes).encode()).hexdigest()


def keep_arguments(spec: Spec, stage: str, defaults: str = "") -> list[str]:
    """Return what tells a driver to wait, and for how long.

    One that was started for a stage which only the commit needs does not wait for the next epoch.
    """
    digest = digest_of_kept(spec, defaults)
    if digest is None:
        return []
    arguments: list[str] = []
    if keeps_for_epochs(spec) and (not stage or named(stage) is not None):
        assert spec.trigger is not None
        arguments += ["--keep", f"{spec.trigger.keep_driver:g}"]
    if keeps_for_stages(spec):
        arguments += ["--keep-stages", f"{_STAGE_S:g}"]
    return [*arguments, "--driver-digest", digest] if arguments else []


# Why an attempt ended without being complete.
#
# What its driver says is text of others, which is checked before a status, a rule or a person gets it. Some reasons do not count
# as failures, such as that somebody deleted the driver: a driver that could say so itself would be started again for ever.


_MOST_OF_A_REASON: Final = 100


def failure_of(closed: ClosedRecord | None, record: FailureRecord | None, *, of_stream: bool) -> Failure | None:
    """Return what the controller has found out or, where it has not, what the driver says, under a reason that drivers have.

    Another one would be shown as a condition's, and hide the real one.
    """
    if closed is not None and (found := closed.given_up) is not None:
        return Failure(found.family, found.reason, printable(found.message))
    if record is None:
        return None
    message = printable(record.message)
    if reasons.is_of_drivers(record.reason, of_stream):
        return Failure(record.family, record.reason, message)
    return Failure(record.family, reasons.FAILURE_UNKNOWN, f"{printable(record.reason)[:_MOST_OF_A_REASON]}: {message}")
