"""The status of a CheckpointedWrite: what the controller writes, and what the CRD says about it.

For people and their tools. What is true stands in the object store and in the table; the controller could lose every status and
write it again. Everything is bounded, so that no write can make its object grow.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from pydantic import ConfigDict, Field

from checkpoint_operator.core.phases import Phase
from checkpoint_operator.pipelines.decisions import What
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

#: What the CRD gives to an object that no operator has seen. Without it kstatus takes what has no status for done.
UNOBSERVED: Final = -1

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

    format: Annotated[str, Field(max_length=32)] = Field(description="What kind of table.")
    target: Annotated[str, Field(max_length=1024)] = Field(description="The table or dataset.")
    id: Annotated[str, Field(max_length=20)] | None = Field(
        default=None, description="Iceberg: the snapshot id; Lance: the version. A text, as many JSON tools cannot hold 64 bits."
    )
    key: Annotated[str, Field(max_length=128)] = Field(
        description="The idempotence key <uid>/<epoch> that the transaction carries."
    )
    committed_at: Time | None = Field(default=None, description="When the commit was seen in the table.")


class EpochStatus(StatusSection):
    """An epoch that is committed."""

    number: Count = Field(description="Counted from 1.")
    committed_at: Time | None = Field(default=None, description="When its commit was seen in the table.")
    id: Annotated[str, Field(max_length=20)] | None = Field(
        default=None, description="As in commit; absent where there was nothing to commit."
    )
    rows: Count | None = Field(default=None, description="Rows that it has written.")


class Condition(StatusSection):
    """A condition as in Kubernetes' metav1.Condition."""

    type: ConditionType = Field(description="Its name.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(
        pattern=_REASON_PATTERN,
        min_length=1,
        max_length=1024,
        description="Why, in one CamelCase word.",
    )
    message: str = Field(max_length=MAX_CONDITION_MESSAGE_LENGTH, description="Why, and what to do, in a sentence.")
    last_transition_time: Time = Field(description="When its status last changed.")
    observed_generation: Count | None = Field(default=None, description="The metadata.generation that it is about.")


class StageStatus(StatusSection):
    """What becomes of a stage."""

    name: Annotated[str, Field(max_length=63)] = Field(description="Its name; -shuffle behind it: what puts keys together.")
    what: What = Field(
        description="keep: it is done. continue: its rows that are left. begin: all of them. redo: all, once more."
    )
    because: Annotated[str, Field(max_length=256)] | None = Field(
        default=None, description="What has changed, where it is done once more."
    )


class Status(StatusSection):
    """How far the write is, and why it is not further."""

    observed_generation: Annotated[int, Field(ge=UNOBSERVED, lt=1 << 63)] | None = Field(
        default=None, description="The newest metadata.generation that was acted on; -1: none yet."
    )
    observed_uid: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="The metadata.uid of the object that this was told of: a restored status is another's."
    )
    write_uid: Annotated[str, Field(max_length=64)] | None = Field(
        default=None,
        description="The write, which outlives its object: the metadata.uid of the first object of this name, or of the first "
        "since the write was forgotten or started over. Its records lie under it in the checkpoint store.",
    )
    phase: Phase | None = Field(default=None, description="One word for people. Programs read conditions.")
    epoch: Count | None = Field(default=None, description="One table transaction each; runNonce begins the next.")
    stage: Annotated[str, Field(max_length=63)] | None = Field(
        default=None,
        description="The stage of the epoch that is at work, which the commit waits for: attempts, tasks, progress and rows are "
        "those of the stage.",
    )
    stages: tuple[StageStatus, ...] | None = Field(
        default=None,
        max_length=MAX_STAGES_SHOWN,
        description="With spec.stages, until the commit: what becomes of each, as was decided when the last of them began.",
    )
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
    reason: _Reason | None = Field(
        default=None,
        description="Why the phase is what it is, in one word; docs/reference/reasons.md of the project has a section on it.",
    )
    message: _Text | None = Field(default=None, description="The same in a sentence, and what to do.")
    attempts: tuple[AttemptStatus, ...] | None = Field(
        default=None, max_length=MAX_ATTEMPTS_SHOWN, description="The last attempts of this epoch, oldest first."
    )
    commit: CommitStatus | None = Field(default=None, description="The last commit.")
    epochs: tuple[EpochStatus, ...] | None = Field(
        default=None, max_length=MAX_EPOCHS_SHOWN, description="With a trigger: the last epochs that are committed, oldest first."
    )
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
        default=None,
        max_length=16,
        description="Accepted, Running, Sealed, Committed, Stalled, Ready, Reconciling; with a trigger UpToDate.",
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
