"""What the loop needs of the world: drivers (pods or processes), a sink (a table of some format), and the write as its manifest
says it now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from checkpoint_operator.commit.changes import Change
from checkpoint_operator.commit.outcomes import BlockOutcome, CommitOutcome
from checkpoint_operator.commit.results import Results
from checkpoint_operator.core.observation import DriverObservation
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import Spec
from checkpoint_protocol.records import LaunchRecord, Operation, Output, StagedFile, Target


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

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        """Take all the files of an epoch in, one at a time, in the form in which `commit` takes them. Changes nothing."""

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        """Put the results into the target, once."""

    def block_commit(self, ledger: Ledger) -> BlockOutcome:
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
