"""What the loop needs of the world: the place where drivers run, drivers (pods or processes), a sink (a table of some format),
and the write as its manifest says it now.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from checkpoint_operator.commit.changes import Change
from checkpoint_operator.commit.outcomes import BlockOutcome, CommitOutcome
from checkpoint_operator.commit.results import Results
from checkpoint_operator.core.attempt_clock import Noted
from checkpoint_operator.core.observation import DriverObservation, Failure
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import LaunchRecord, Operation, Output, PinnedIceberg, StagedFile, StageIdentity, Target

#: Pins the source's tables when an attempt is recorded: one for each of its members, None for what is no Iceberg table, and
#: nothing at all where none of them is.
PinSource = Callable[[], tuple[PinnedIceberg | None, ...]]


@dataclass(frozen=True, slots=True)
class FoundItem:
    """Something of a source that an epoch can take: a file, a fragment or a snapshot; `made_at` by the clock of who made it."""

    name: str
    version: str
    files: int = 1
    size_bytes: int = 0
    made_at: datetime.datetime | None = None


class StageOutdated(Exception):
    """What a stage was to read is not there any more. Raised by its PinSource; whoever has asked for the stage is asked again."""


class Drivers(Protocol):
    """What starts and ends drivers: processes or pods."""

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        """Return what is known of an attempt's driver. A driver that may still run but is not ours is GONE."""

    def expect(self, key: EpochKey, attempt: int) -> None:
        """Note that this process has recorded the attempt, so that its driver is yet to be started."""

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        """Start the driver of a recorded attempt. Starting a second one is harmless: it ends before any task."""

    def stop(self, key: EpochKey, attempt: int) -> None:
        """Ask the driver to end, and do not wait for it. It may go on as a zombie."""


class Host(Protocol):
    """The place where drivers run, a cluster or one machine, and what is decided there for one write."""

    @property
    def recorder(self) -> str:
        """Name the machine that records attempts: the drivers of others cannot be seen from here. Empty where all can."""

    @property
    def driver_digest(self) -> str | None:
        """The digest of what drivers that may do the next stage, or epoch, too are started with; None: they are not to wait."""

    def clock(self) -> float:
        """Return the seconds since some moment."""

    def renew(self, write: Write) -> Write:
        """Return the write with its code as it is now. Asked wherever a new attempt may depend on that."""

    def forgive(self, attempts: list[int]) -> int:
        """Return the last attempt whose failure no longer counts, of those that an epoch has when it is first observed."""

    def noted(self, key: EpochKey, attempt: int) -> Noted:
        """Return what an earlier process has noted of an attempt, as far as this one can know it."""

    def is_past_deadline(self, epoch: int) -> bool:
        """Whether this epoch has taken longer than its manifest allows."""

    def pause_after(self, failures: int) -> float:
        """Return the seconds between an attempt and the next, after so many in a row that sealed nothing."""

    def retry_after(self, failures: int) -> float:
        """Return the same where the last attempt waits for something outside of the manifest; infinite: a person tries again."""

    def queue_for_a_place(self) -> int | None:
        """Return how many writes come before this one, where its driver has to wait for a place; None if it has one."""

    def count_starved(self) -> int:
        """Return how many drivers beside this one have no executor, where they could take each other's places."""

    def find_starvation(self, key: EpochKey, attempt: int, has_plan: bool) -> Failure | None:
        """Return what keeps all executors of an attempt's driver from running, if anything does."""


class Sink(Protocol):
    """The write's target: what staging must know of it, the commit, and what deletion undoes of both."""

    @property
    def title(self) -> str:
        """Name the target, for people."""

    @property
    def output(self) -> Output | None:
        """Where data files go, also before the target exists; None where only the target knows."""

    def describe(self, key: EpochKey) -> Target | None:
        """Return the target as it is now; None if it does not exist. NeedsChange if it does not take what this epoch is to do."""

    def create(self, arrow_schema: str) -> Target:
        """Make the target for this output; return it, also if it is there already."""

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        """Take all the files of an epoch in, one at a time, in the form in which `commit` takes them. Changes nothing."""

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome | NeedsStage:
        """Put the results into the target, once; or say which stage of the epoch must be done before that can be."""

    def block_commit(self, ledger: Ledger) -> BlockOutcome:
        """See to it that nothing of a claimed epoch lands any more. Called by deletion only, after its note was put."""

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        """Remove data files that can never be committed; return how many.

        Only those that are surely this epoch's own, by their names below the targets' locations; all others are passed over.
        Idempotent: those that are not there count too.
        """


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of an epoch that drivers do on their own: with attempts, plans, seals and closings like those of an epoch.

    `derive` makes of the write's manifest that of the stage: what its drivers read and do; `stages.spec_of_stage` begins it.
    `sink` is what they stage for. Once all is sealed, its `commit` answers `Final`, and the record of the commit says from then
    on that the stage is done. `runs_code`: its drivers run code of the user, so that the stage has the digest of that.
    `operation`: what they do with rows, where that is more than to stage them.
    `audit`: the function that they call with their source, as the only task.

    A name says what the stage depends on: another name is another stage, that begins with nothing.
    """

    name: str
    derive: Callable[[Spec], Spec]
    sink: Sink
    pin_source: PinSource = tuple
    runs_code: bool = False
    operation: Operation | None = None
    audit: str | None = None
    #: Of a pipeline: which stage of it this is.
    identity: StageIdentity | None = None


@dataclass(frozen=True, slots=True)
class NeedsStage:
    """What is sealed cannot be committed before this stage of the epoch is done.

    No commit was claimed for the answer; an audit has claimed to put its rows on their branch.
    """

    stage: Stage


@dataclass(frozen=True, slots=True)
class Write:
    """Who is written, as the manifest says now."""

    uid: str
    spec: Spec
    code_digest: str
    #: The digest of the archive in the store that the next attempt is recorded with; None: there is none.
    code: str | None = None
    #: See LaunchRecord.
    row_keys: str = ""
    #: See Stage.
    audit: str | None = None
    #: Which stage of a pipeline is done; None where there are no stages, or it is not known yet which of them is next.
    stage: StageIdentity | None = None

    @property
    def awaits_stages(self) -> bool:
        """Whether it is not known yet which stages are done."""
        return bool(self.spec.stages) and self.stage is None
