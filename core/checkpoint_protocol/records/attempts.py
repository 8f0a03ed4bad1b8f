"""An attempt, from what its driver is told to the seals of it that count."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from checkpoint_protocol.manifest.sections import Quarantine
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.manifest.trigger import AtMost
from checkpoint_protocol.records.base import (
    MAX_SEALS,
    MAX_TASKS,
    Base64,
    Count,
    Digest,
    Number,
    Part,
    Record,
    Token,
    Uid,
    later,
    without_surrogates,
)
from checkpoint_protocol.records.formats.iceberg import PinnedIceberg
from checkpoint_protocol.records.formats.operations import Append, Operation
from checkpoint_protocol.records.formats.stage_results import StageIdentity
from checkpoint_protocol.records.formats.union import Target


class Began(Part):
    """Why an epoch began, and when, by the clock of whoever recorded its first attempt; no rule but the trigger's goes by that.

    `files` and `size_bytes`: what a look had found to be new. What the epoch takes its input says.
    """

    why: Literal["First", "RunNonce", "Trigger"]
    at: str
    files: Count = later(0)
    size_bytes: Count = later(0)


class DrivenBy(Part):
    """The attempt whose driver does this one as well: that of a stream lives through many epochs."""

    epoch: Number
    attempt: Number


class LaunchRecord(Record):
    """What the operator tells driver n.

    `counted` are the closed attempts whose seals stand: the driver skips what they cover, and when this attempt is complete
    the commit takes exactly theirs and its own. `operation` is what it does with them to the table.
    `target` is None where the table is to be made from the steps' output.
    `code` is the digest of the archive with the steps' code in the store; None: it is installed, or on the import path already.
    `recorded_by` names who watches the driver: a machine, for local runners; empty in a cluster, where everybody can see pods.
    `source_tables` has for each source (a union has several) the Iceberg table that is read, as the catalog showed it, since
    drivers have no catalog; None for what is no Iceberg table, and nothing at all where none is. It counts for the first attempt
    that fixes the input; for the others it is empty, or passed over.
    `began`: in the first attempt of an epoch of a write with a trigger; `at_most`: how much of the source such an epoch takes.
    `input_since` is the attempt from which on the input is what this one reads: 1, but where the source was edited before
    anything was sealed, or where what a stage does was. What is counted has the same.
    `audit` is the function that the driver calls with the source, a table, as the only task: that is sealed where it passes.
    `stage`: of a pipeline, which part of it this is; `source` is that of the first stage, whatever this one reads.
    `driver_digest`: of what drivers are started with; one that has waited for this epoch, or this stage, does it if it was
    started with the same. `session_code`: of the code of all stages of the write as it was when this was recorded; None where no
    driver goes on from stage to stage.
    `driven_by`: of a stream, the attempt of an earlier epoch whose driver goes on with this one, or of the epoch whose driver
    does this stage; None: it has its own driver.
    `reset_nonce`: that of the manifest of a write without stages; what another one asked for is not counted.
    `row_keys`: what the keys that steps ask for are made of beside the row: the same in all attempts and epochs of the write.
    """

    is_of_plain_values: ClassVar[bool] = False

    kind: Literal["launch"] = "launch"
    version: Literal[2] = 2
    attempt: Number
    run_nonce: str
    source: Source
    steps: tuple[Step, ...]
    code_digest: Digest
    target: Target | None
    sink_format: str
    target_file_size_bytes: Count
    interval_s: Annotated[float, Field(gt=0)]
    minimum_bytes: Count
    counted: tuple[Number, ...]
    recorded_by: str = ""
    code: Digest | None = None
    on_replaced: Literal["Fail", "Process", "Skip"]
    on_row_error: Literal["Fail", "Quarantine"] = later("Fail")
    quarantine: Quarantine = later(Quarantine())
    source_tables: tuple[PinnedIceberg | None, ...] = ()
    input_since: Number = later(1)
    operation: Operation = later(Append())
    audit: str | None = later(None)
    maximum_rows: Count | None = later(None)
    began: Began | None = later(None)
    at_most: AtMost | None = later(None)
    stage: StageIdentity | None = later(None)
    driver_digest: Digest | None = later(None)
    session_code: Digest | None = later(None)
    driven_by: DrivenBy | None = later(None)
    row_keys: str = later("")
    reset_nonce: str = later("")

    @property
    def reads_stage(self) -> str:
        """The stage of the same epoch whose result is read; empty where the source is."""
        return self.stage.reads if self.stage is not None else ""

    @property
    def keeps_groups(self) -> bool:
        """Whether the steps get the rows of one key at a time, all of them: such are never divided, nor joined."""
        return self.stage is not None and self.stage.groups is not None

    @property
    def reads_by_key(self) -> bool:
        """Whether what is read is known by keys: the result of a stage never is."""
        return self.source.keyed is not None and not self.reads_stage


class OutputRecord(Record):
    """The schema that the steps of attempt n produce, proposed by its driver because no table exists."""

    #: A hundred thousand columns take some 12 MB.
    most_bytes: ClassVar[int] = 16 << 20

    kind: Literal["output"] = "output"
    version: Literal[1] = 1
    arrow_schema: Base64


class TargetRecord(Record):
    """The table that the operator has made (or found) for the proposed output."""

    #: As the schema of an output, which it has in the words of the table.
    most_bytes: ClassVar[int] = 32 << 20

    kind: Literal["target"] = "target"
    version: Literal[1] = 1
    target: Target


Family = Literal["Retryable", "NeedsChange", "Corrupt"]
Message = Annotated[str, BeforeValidator(without_surrogates), Field(max_length=32_768)]


class FailureRecord(Record):
    """Why a driver ended, in its own words. Advice for people and for the backoff; no safety rests on it."""

    #: A message whose characters are all escaped takes 200 kB.
    most_bytes: ClassVar[int] = 512 << 10

    kind: Literal["failure"] = "failure"
    version: Literal[1] = 1
    attempt: Number
    family: Family
    reason: str
    message: Message


class GivenUp(Part):
    """Why a controller has closed an attempt whose driver had not said why it ended. In a record that no driver can put."""

    family: Family
    reason: str
    message: Message


class CheckedBundle(Part):
    """A bundle whose seals were compared with the store's when the attempt was closed. The digest is the SHA-256 of its bytes."""

    number: Count
    digest: Digest


class ClosedRecord(Record):
    """The seals of an attempt that count, for good: for each task of the plan the length of its chain's gap-free prefix.

    Tasks after the last one with a seal are left out: a plan of many tasks of which nothing came costs nothing here.

    `complete`: there was a plan and every prefix ends in a `last` seal. An attempt that never had a plan has no chains and
    is not complete. `bundles` hold seals of the attempt as the store does: whoever reads what counts may read them there.
    `given_up`: what the controller had found out, if it closed the attempt for that. It goes before what the driver says.
    """

    #: A length for each of a million tasks, and a bundle for each thousand of their seals.
    most_bytes: ClassVar[int] = 32 << 20

    kind: Literal["closed"] = "closed"
    version: Literal[1] = 1
    attempt: Number
    plan_token: Token | None
    chain_lengths: Annotated[tuple[Count, ...], Field(max_length=MAX_TASKS)]
    complete: bool
    # Left out where there are none, as releases have it that know none.
    bundles: Annotated[tuple[CheckedBundle, ...], Field(exclude_if=lambda bundles: not bundles)] = ()
    given_up: GivenUp | None = later(None)

    @model_validator(mode="after")
    def _needs_a_plan_to_be_complete(self) -> ClosedRecord:
        if self.plan_token is None and (self.complete or self.chain_lengths):
            raise ValueError("an attempt without a plan has no seals that count")
        if sum(self.chain_lengths) > MAX_SEALS:
            raise ValueError(f"it counts {sum(self.chain_lengths):,} seals, and no attempt has more than {MAX_SEALS:,}")
        return self


class InheritedAttempt(Part):
    """An attempt of another write: of each task of its plan so many seals count here. None of one that does not count."""

    attempt: Number
    plan_token: Token | None
    chain_lengths: Annotated[tuple[Count, ...], Field(max_length=MAX_TASKS)]


class InheritedRecord(Record):
    """What a stage takes over from the same stage of another write, in the first epoch of both.

    `attempts` are all up to one. `stage` is the folder of the stage there. `is_done`: it is finished, so that this one is, too,
    once all is copied.
    """

    #: A length for each of a million tasks.
    most_bytes: ClassVar[int] = 32 << 20

    kind: Literal["inherited"] = "inherited"
    version: Literal[1] = 1
    uid: Uid
    stage: str
    attempts: Annotated[tuple[InheritedAttempt, ...], Field(min_length=1)]
    is_done: bool
