"""The status of a CheckpointedWrite: what the controller writes, and what the CRD says about it.

For people and their tools. What is true stands in the object store and in the table; the controller could lose every status and
write it again. Everything is bounded, so that no write can make its object grow.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from checkpoint_protocol.sections import Section

MAX_ATTEMPTS_SHOWN: Final = 5
MAX_MESSAGE_LENGTH: Final = 1024
MAX_CONDITION_MESSAGE_LENGTH: Final = 32_768

Phase = Literal["Pending", "Running", "Sealed", "Committing", "Committed", "Suspended", "Stalled", "Deleting"]
ConditionType = Literal["Accepted", "Running", "Sealed", "Committed", "Stalled"]
Cause = Literal[
    "Completed",
    "OOMKilled",
    "Evicted",
    "Preempted",
    "Deleted",
    "Credentials",
    "Source",
    "UserCode",
    "Image",
    "Scheduling",
    "NodeLost",
    "NoProgress",
    "Deadline",
    "Suspended",
    "Unknown",
]

#: A moment as Kubernetes writes it: RFC 3339, in UTC, to the second.
Time = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$")]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Text = Annotated[str, Field(max_length=MAX_MESSAGE_LENGTH)]
_Reason = Annotated[str, Field(max_length=128)]


class StatusSection(Section):
    """Read leniently: a later release may have written more."""

    model_config = ConfigDict(extra="ignore")


class AttemptStatus(StatusSection):
    """One driver's life."""

    number: Count = Field(description="Counted from 1 within the epoch.")
    pod: Annotated[str, Field(max_length=253)] | None = Field(default=None, description="The driver's pod.")
    code_digest: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="Tells results of different code apart."
    )
    recorded_at: Time | None = Field(default=None, description="When it was recorded, before its driver was made.")
    closed_at: Time | None = Field(default=None, description="When it was fixed which of its seals count.")
    cause: Cause | None = Field(default=None, description="Why it ended.")
    message: _Text | None = Field(default=None, description="The same in words, the driver's own where it left some.")


class CommitStatus(StatusSection):
    """The transaction that holds the rows."""

    format: Literal["iceberg", "lance", "none"] = Field(description="What kind of table.")
    target: Annotated[str, Field(max_length=1024)] = Field(description="The table or dataset.")
    id: Annotated[str, Field(max_length=20)] | None = Field(
        default=None, description="Iceberg: the snapshot id; Lance: the version. A text, as many JSON tools cannot hold 64 bits."
    )
    key: Annotated[str, Field(max_length=128)] = Field(
        description="The idempotence key <uid>/<epoch> that the transaction carries."
    )
    committed_at: Time | None = Field(default=None, description="When the commit was seen in the table.")


class Condition(StatusSection):
    """A condition as in Kubernetes' metav1.Condition."""

    type: ConditionType = Field(description="Its name.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        min_length=1,
        max_length=1024,
        description="Why, in one CamelCase word.",
    )
    message: str = Field(max_length=MAX_CONDITION_MESSAGE_LENGTH, description="Why, and what to do, in a sentence.")
    last_transition_time: Time = Field(description="When its status last changed.")
    observed_generation: Count | None = Field(default=None, description="The metadata.generation that it is about.")


class Status(StatusSection):
    """How far the write is, and why it is not further."""

    observed_generation: Count | None = Field(default=None, description="The newest metadata.generation that was acted on.")
    phase: Phase | None = Field(default=None, description="One word for people. Programs read conditions.")
    epoch: Count | None = Field(default=None, description="One table transaction each; runNonce begins the next.")
    started_at: Time | None = Field(
        default=None, description="When the epoch's first attempt was recorded; activeDeadlineSeconds counts from here."
    )
    attempt: Count | None = Field(default=None, description="The last driver of this epoch, counted from 1.")
    progress: Annotated[str, Field(max_length=64)] | None = Field(
        default=None,
        description="How much of the input is done, as 1.23M/10M (rows), or 3.44Gi/12Gi where bytes are counted; only the rows "
        "that are done where it is not known how much there is. What running tasks have computed and not sealed yet is among it.",
    )
    activity: Annotated[str, Field(max_length=256)] | None = Field(
        default=None,
        description="What the driver is at: planning, starting Spark or running tasks; with how much of the input is done, and "
        "how long the rest may take, where that can be known.",
    )
    tasks: Count | None = Field(default=None, description="Tasks of the last attempt's plan.")
    tasks_sealed: Count | None = Field(default=None, description="Those of them whose work is all sealed.")
    input_files_done: Count | None = Field(
        default=None, description="Whole input files that are sealed, so that the last attempt does not open them."
    )
    rows_sealed: Count | None = Field(
        default=None, description="Result rows of this epoch that are sealed and will not be made again."
    )
    rows_quarantined: Count | None = Field(
        default=None,
        description="Rows of this epoch that failed and are sealed without a result (onRowError: Quarantine).",
    )
    rows_committed: Count | None = Field(default=None, description="Result rows in the table by the last commit.")
    run_nonce: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, description="The spec.runNonce that the epoch was begun with."
    )
    driver_pod: Annotated[str, Field(max_length=253)] | None = Field(default=None, description="The pod of the driver at work.")
    queue_position: Count | None = Field(
        default=None, description="Its place among the writes of the namespace whose drivers wait for room, counted from 1."
    )
    reason: _Reason | None = Field(default=None, description="Why the phase is what it is, in one word.")
    message: _Text | None = Field(default=None, description="The same in a sentence, and what to do.")
    attempts: tuple[AttemptStatus, ...] | None = Field(
        default=None, max_length=MAX_ATTEMPTS_SHOWN, description="The last attempts of this epoch, oldest first."
    )
    commit: CommitStatus | None = Field(default=None, description="The last commit.")
    failed_before: Count | None = Field(
        default=None,
        description="Attempts up to this one no longer count against backoffLimit: a person has changed something since.",
    )
    failed_before_generation: Count | None = Field(
        default=None, description="The metadata.generation for which failedBefore was fixed; an edit of the spec fixes it anew."
    )
    retried: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, description="The value of the annotation checkpointed.dev/retry that was last acted on."
    )
    conditions: tuple[Condition, ...] | None = Field(
        default=None, max_length=16, description="Accepted, Running, Sealed, Committed and Stalled."
    )
