"""What a commit needs of others and gives them: a sink (a table of some format), the stages of an epoch, what a source has."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from checkpoint_commit.changes import Change
from checkpoint_commit.outcomes import BlockOutcome, CommitOutcome
from checkpoint_commit.results import Results
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import Operation, Output, PinnedIceberg, StagedFile, StageIdentity, Target

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


class Staging(Protocol):
    """What drivers stage for: what they must know of it, and what becomes of it once all is sealed."""

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


class Sink(Staging, Protocol):
    """The write's target, and what deletion undoes of staging and commit."""

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

    `derive` makes of the write's manifest that of the stage: what its drivers read and do; `spec_of_stage` begins it.
    `sink` is what they stage for; it is never claimed, and has nothing of its own to remove. Once all is sealed, its `commit`
    answers `Final`, and the record of the commit says from then on that the stage is done. `runs_code`: its drivers run code of
    the user, so that the stage has the digest of that.
    `operation`: what they do with rows, where that is more than to stage them.
    `audit`: the function that they call with their source, as the only task.

    A name says what the stage depends on: another name is another stage, that begins with nothing.
    """

    name: str
    derive: Callable[[Spec], Spec]
    sink: Staging
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


#: Of attempts that run no code of the user: an edit of it is no reason to begin anew.
NO_CODE: Final = hashlib.sha256(b"").hexdigest()


def spec_of_stage(spec: Spec) -> Spec:
    """Return a stage's manifest with what is the same for all stages.

    The stage ends with its epoch, so that no `runNonce` begins another one; it adds what it makes, whatever the epoch does then.
    """
    sink = spec.sink.model_copy(update={"mode": "Append", "where": None})
    return spec.model_copy(update={"run_nonce": "", "sink": sink})
