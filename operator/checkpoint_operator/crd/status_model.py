"""The status of a CheckpointedWrite: what the controller writes, and what the CRD says about it.

For people and their tools. What is true stands in the object store and in the table; the controller could lose every status and
write it again. Everything is bounded, so that no write can make its object grow.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from pydantic import ConfigDict, Field

from checkpoint_control.decision.phases import Phase
from checkpoint_control.pipelines.decisions import What
from checkpoint_protocol.manifest.pipelines import MOST_STAGES
from checkpoint_protocol.manifest.sections import Section

MAX_ATTEMPTS_SHOWN: Final = 5
MAX_EPOCHS_SHOWN: Final = 5
#: An Aggregate is two.
MAX_STAGES_SHOWN: Final = 2 * MOST_STAGES
MAX_MESSAGE_LENGTH: Final = 1024
MAX_CONDITION_MESSAGE_LENGTH: Final = 32_768

ConditionType = Literal["Accepted", "Running", "Sealed", "Committed", "Stalled", "Ready", "Reconciling", "UpToDate"]
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

#: The generation of an object that no operator has seen. Without it kstatus takes what has no status for done.
UNOBSERVED: Final = -1
#: The status that the CRD gives to such an object.
UNOBSERVED_STATUS: Final = {
    "observedGeneration": UNOBSERVED,
    "phase": "Pending",
    "progress": "0",
    "rowsCommitted": 0,
    "attempt": 0,
    "reason": "NotObserved",
    "message": "no operator has looked at this write yet. If this stays so, no operator runs, or none watches this namespace "
    "(watch.namespaces in the values of the chart)",
}

#: A moment as Kubernetes writes it: RFC 3339, in UTC, to the second.
Time = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$")]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Text = Annotated[str, Field(max_length=MAX_MESSAGE_LENGTH)]
_REASON_PATTERN: Final = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
_MAX_REASON_LENGTH: Final = 128
_Reason = Annotated[str, Field(max_length=_MAX_REASON_LENGTH)]


def bounded(text: str | None, most: int = MAX_MESSAGE_LENGTH) -> str | None:
    """Cut a text to what a field may hold."""
    return text if text is None or len(text) <= most else f"{text[: most - 3]}..."


def as_reason(text: str) -> str:
    """Return a text as the reason of a condition; one that is no single word, as a foreign driver may give it, as `Other`."""
    return text if len(text) <= _MAX_REASON_LENGTH and re.fullmatch(_REASON_PATTERN, text) else "Other"


class StatusSection(Section):
    """Read leniently: a later release may have written more."""

    model_config = ConfigDict(extra="ignore")


class AttemptStatus(StatusSection):
    """One attempt, which has one driver."""

    number: Count = Field(description="The number of the attempt, counted from 1 within the epoch.")
    pod: Annotated[str, Field(max_length=253)] | None = Field(default=None, description="The name of the driver pod.")
    code_digest: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="The digest of the code, which tells results of different code apart."
    )
    recorded_at: Time | None = Field(default=None, description="When the attempt was recorded, before its driver was created.")
    closed_at: Time | None = Field(
        default=None, description="When the attempt was closed. From then on it is fixed which of its seals count."
    )
    cause: Cause | None = Field(default=None, description="Why the attempt ended.")
    message: _Text | None = Field(
        default=None, description="Why the attempt ended, in a sentence. The text is from the driver if it left one."
    )


class CommitStatus(StatusSection):
    """The transaction that holds the rows."""

    format: Annotated[str, Field(max_length=32)] = Field(description="The format of the table.")
    target: Annotated[str, Field(max_length=1024)] = Field(description="The table or dataset.")
    id: Annotated[str, Field(max_length=20)] | None = Field(
        default=None,
        description="The snapshot id (Iceberg) or the version (Lance). It is a text because many JSON tools cannot hold "
        "64-bit numbers.",
    )
    key: Annotated[str, Field(max_length=128)] = Field(
        description="The idempotence key <uid>/<epoch> that the transaction carries."
    )
    committed_at: Time | None = Field(default=None, description="When the operator saw the commit in the table.")


class EpochStatus(StatusSection):
    """A committed epoch."""

    number: Count = Field(description="The number of the epoch, counted from 1.")
    committed_at: Time | None = Field(default=None, description="When the operator saw the commit in the table.")
    id: Annotated[str, Field(max_length=20)] | None = Field(
        default=None, description="As in commit. Absent if there was nothing to commit."
    )
    rows: Count | None = Field(default=None, description="The number of rows that the epoch has written.")


class Condition(StatusSection):
    """A condition as in Kubernetes' metav1.Condition."""

    type: ConditionType = Field(description="The type of the condition.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether the condition holds.")
    reason: str = Field(
        pattern=_REASON_PATTERN,
        min_length=1,
        max_length=1024,
        description="Why, in one CamelCase word.",
    )
    message: str = Field(max_length=MAX_CONDITION_MESSAGE_LENGTH, description="Why, and what to do, in a sentence.")
    last_transition_time: Time = Field(description="When the status of the condition last changed.")
    observed_generation: Count | None = Field(default=None, description="The metadata.generation that the condition refers to.")


class StageStatus(StatusSection):
    """What happens to a stage."""

    name: Annotated[str, Field(max_length=63)] = Field(
        description="The name of the stage. With -shuffle at its end, it is the pass that groups rows by key before an Aggregate."
    )
    what: What = Field(
        description="keep: the stage is done. continue: its remaining rows are computed. begin: all its rows are computed. "
        "redo: all its rows are computed again."
    )
    because: Annotated[str, Field(max_length=256)] | None = Field(default=None, description="For redo: what has changed.")


class Status(StatusSection):
    """The observed state of the write: how far it is, and why it is not further."""

    observed_generation: Annotated[int, Field(ge=UNOBSERVED, lt=1 << 63)] | None = Field(
        default=None, description="The newest metadata.generation that the operator has acted on. -1 means none yet."
    )
    observed_uid: Annotated[str, Field(max_length=64)] | None = Field(
        default=None,
        description="The metadata.uid of the object that this status was written for. A status that was restored from a "
        "backup belongs to another object.",
    )
    write_uid: Annotated[str, Field(max_length=64)] | None = Field(
        default=None,
        description="The uid of the write, which outlives its object: the metadata.uid of the first object of this name, or "
        "of the first one since the write was forgotten or started over. The records of the write are under this uid in the "
        "checkpoint store.",
    )
    operator: Annotated[str, Field(max_length=320)] | None = Field(
        default=None,
        description="The operator that works on the write: its namespace, and the Secret there with its record keys.",
    )
    phase: Phase | None = Field(default=None, description="A one-word summary for people. Programs should read conditions.")
    epoch: Count | None = Field(
        default=None,
        description="The number of the current epoch. Each epoch is one table transaction. A new runNonce starts the next one.",
    )
    stage: Annotated[str, Field(max_length=63)] | None = Field(
        default=None,
        description="The stage that the epoch is working on before its commit. While it is set, attempts, tasks, progress and "
        "rows are those of the stage.",
    )
    stages: tuple[StageStatus, ...] | None = Field(
        default=None,
        max_length=MAX_STAGES_SHOWN,
        description="With spec.stages, until the commit: what happens to each stage, as it was decided when the current stage "
        "began.",
    )
    started_at: Time | None = Field(
        default=None, description="When the epoch's first attempt was recorded. activeDeadlineSeconds counts from this time."
    )
    attempt: Count | None = Field(default=None, description="The number of the latest attempt of this epoch, counted from 1.")
    progress: Annotated[str, Field(max_length=64)] | None = Field(
        default=None,
        description="How much of the input is done, e.g. 1.23M/10M (rows), or 3.44Gi/12Gi if bytes are counted. If the total "
        "is not known, it is only the number of rows done. Work that running tasks have computed but not sealed yet is "
        "included.",
    )
    activity: Annotated[str, Field(max_length=256)] | None = Field(
        default=None,
        description="What the driver is doing: planning, starting Spark or running tasks. If it is known, also how much of "
        "the input is done and how long the rest may take.",
    )
    progressed_at: Time | None = Field(
        default=None,
        description="When the operator last saw progress of the latest attempt: a plan, a seal, or other work in hand. "
        "progressDeadlineSeconds counts from this time, except while no executor runs.",
    )
    progress_mark: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="What the operator saw at progressedAt, for the next operator. It means nothing to others."
    )
    starved_since: Time | None = Field(default=None, description="Since when the driver has had no executor that runs.")
    tasks: Count | None = Field(default=None, description="The number of tasks in the latest attempt's plan.")
    tasks_sealed: Count | None = Field(default=None, description="The number of these tasks whose work is all sealed.")
    input_files_done: Count | None = Field(
        default=None, description="The number of input files that are completely sealed. The latest attempt does not open them."
    )
    rows_sealed: Count | None = Field(
        default=None, description="The number of result rows of this epoch that are sealed. They will not be computed again."
    )
    rows_quarantined: Count | None = Field(
        default=None,
        description="The number of rows of this epoch that failed and are sealed without a result (onRowError: Quarantine).",
    )
    rows_committed: Count | None = Field(
        default=None, description="The number of result rows that the latest commit has put into the table."
    )
    run_nonce: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, description="The value of spec.runNonce when the epoch began."
    )
    driver_pod: Annotated[str, Field(max_length=253)] | None = Field(
        default=None, description="The name of the pod of the current driver."
    )
    queue_position: Count | None = Field(
        default=None,
        description="The position of the write, counted from 1, among the writes of the namespace whose drivers wait for room.",
    )
    reason: _Reason | None = Field(
        default=None,
        description="The reason for the phase, in one word. The command checkpointed-write explain says more of each reason.",
    )
    message: _Text | None = Field(default=None, description="The reason in a sentence, and what to do.")
    attempts: tuple[AttemptStatus, ...] | None = Field(
        default=None, max_length=MAX_ATTEMPTS_SHOWN, description="The latest attempts of this epoch, oldest first."
    )
    commit: CommitStatus | None = Field(default=None, description="The latest commit.")
    epochs: tuple[EpochStatus, ...] | None = Field(
        default=None, max_length=MAX_EPOCHS_SHOWN, description="With a trigger: the latest committed epochs, oldest first."
    )
    failed_before: Count | None = Field(
        default=None,
        description="Attempts up to this number no longer count toward backoffLimit, because a person has changed something "
        "since.",
    )
    failed_before_generation: Count | None = Field(
        default=None,
        description="The metadata.generation for which failedBefore was set. An edit of the spec sets failedBefore again.",
    )
    retried: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, description="The latest value of the annotation checkpointed.dev/retry that the operator has acted on."
    )
    conditions: tuple[Condition, ...] | None = Field(
        default=None,
        max_length=16,
        description="The conditions Accepted, Running, Sealed, Committed, Stalled, Ready and Reconciling, and with a trigger "
        "UpToDate.",
    )


_Part = TypeVar("_Part", bound=StatusSection)
_MOST_COUNTED: Final = (1 << 63) - 1


def fitted(part: _Part) -> _Part:
    """Return a status as the API server takes it, whatever drivers, records and tables have told: each text is cut to what its
    field holds, each number to 64 bits. A patch that is refused for one of them would hide all the others.
    """
    found = {name: _fitted(getattr(part, name), _most(type(part), name)) for name in type(part).model_fields}
    changed = {name: value for name, value in found.items() if value is not getattr(part, name)}
    return part.model_copy(update=changed) if changed else part


def _fitted(value: Any, most: int | None) -> Any:
    match value:
        case StatusSection():
            return fitted(value)
        case tuple():
            inner = tuple(_fitted(one, None) for one in value)
            return value if all(one is other for one, other in zip(inner, value, strict=True)) else inner
        case str() if most is not None:
            return bounded(value, most)
        case int() if value > _MOST_COUNTED:
            return _MOST_COUNTED
    return value


@cache
def _most(section: type[StatusSection], name: str) -> int | None:
    """Return how many characters a field holds."""
    field = section.model_fields[name]
    # Of `Annotated[str, Field(...)] | None`, the bound stands in the first member.
    inner = [item for member in get_args(field.annotation) for item in getattr(member, "__metadata__", ())]
    found = [*field.metadata, *(item for outer in inner for item in getattr(outer, "metadata", ()))]
    return next((item.max_length for item in found if hasattr(item, "max_length")), None)
