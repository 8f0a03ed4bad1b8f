"""What a driver does now, and what a preview has found: small objects that are overwritten. No result counts by them.

    staged/<uid>/<epoch>/<n>/progress.json          by driver n: its phase, how much there is, what its running tasks have in hand
    staged/<uid>/<epoch>/<n>/progress/<task>.json   by a task that has worked on one segment for a while

Unlike records they have no winner. That one is not there, or cannot be read, means nothing. What a segment in hand has done so
far is believed only until its seal is there (`Work.link`), so that nothing is counted twice. People are shown them, and an
attempt whose tasks tell of new rows or calls is waited for though it seals nothing: that costs time at the worst, and no row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Literal, TypeVar, get_args

from pydantic import AfterValidator, Field, ValidationError

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.identity import is_stage
from checkpoint_protocol.records import Count, Grouping, Number, Part
from checkpoint_protocol.store.object_store import ObjectStore

#: Of running tasks, so many are told of: it bounds the object, and what a driver reads for it.
MAX_TASKS = 256
_MOST_BYTES = 64 << 10

#: What a driver is at. Starting Spark comes before planning where Spark reads the source. One that waits has ended its attempt;
#: rows are awaited of a stream only.
DriverPhase = Literal["Planning", "StartingSpark", "RunningTasks", "Waiting", "AwaitingRows"]
#: Puts an object, whatever was there under its path.
Overwrite = Callable[[str, bytes], None]

_Advice = TypeVar("_Advice", bound="Advice")


def _named_as_a_stage(stage: str) -> str:
    if stage and not is_stage(stage):
        raise ValueError("not the name of a stage")
    return stage


class Advice(Part):
    """A whole object. Subclasses fix `kind` and `version`; one of another version says nothing."""


class Work(Advice):
    """What a task has done of the segment that it will seal as link `link`: rows, and positions of the input.

    Of steps that wait: how many calls the task has made so far, how many are on their way, and how many were made again.
    """

    kind: Literal["work"] = "work"
    version: Literal[1] = 1
    task: Count
    link: Count
    rows: Count
    positions: Count
    calls: Count = 0
    calls_in_flight: Count = 0
    tries_again: Count = 0


class StartedAs(Part):
    """The attempt that a driver was started for, which its process or its pod is known by."""

    epoch: Number
    attempt: Number
    #: It becomes a part of paths and of a key, as that of a record does.
    stage: Annotated[str, AfterValidator(_named_as_a_stage)] = ""


class Entered(Part):
    """When a driver was first in a phase: after so many milliseconds of its process, or of the attempt that it has waited for."""

    phase: DriverPhase
    after_ms: Count


class DriverProgress(Advice):
    """What a driver is at. `positions_known`: of the epoch's whole input, in `unit`; None where that is not known beforehand.

    `started_as`: of a driver that has waited for this attempt, or waits for the first one of the next stage or epoch.
    `entered`: the phases of the attempt so far, each once.
    """

    kind: Literal["progress"] = "progress"
    version: Literal[1] = 1
    attempt: Number
    phase: DriverPhase
    unit: Literal["rows", "bytes"] | None = None
    positions_known: Count | None = None
    work: Annotated[tuple[Work, ...], Field(max_length=MAX_TASKS)] = ()
    started_as: StartedAs | None = None
    entered: Annotated[tuple[Entered, ...], Field(max_length=len(get_args(DriverPhase)))] = ()


class LastWords(Advice):
    """Why a driver ends, where it can reach no store to record it: what the kubelet puts into its pod's status."""

    kind: Literal["last-words"] = "last-words"
    version: Literal[1] = 1
    family: Literal["Retryable", "NeedsChange", "Corrupt"]
    reason: Annotated[str, Field(max_length=100)]
    message: Annotated[str, Field(max_length=3_000)]


def read_last_words(text: str) -> LastWords | None:
    """Return what a driver has said; None for what is no such object, as of a process that was not ours."""
    try:
        return LastWords.model_validate_json(text)
    except ValidationError:
        return None


def encode_advice(advice: Advice) -> bytes:
    return advice.model_dump_json().encode()


def read_report(store: ObjectStore, path: str, model: type[_Advice]) -> _Advice | None:
    """Return an object of advice; None where it is not there, cannot be read, or the store does not answer."""
    try:
        data = store.get(path, _MOST_BYTES)
    except CheckpointError:
        return None
    if data is None:
        return None
    try:
        return model.model_validate_json(data)
    except ValidationError:
        return None


#: The rows that the steps gave, as an Arrow IPC stream; and all else. Both in the folder that is handed over.
ROWS_NAME: Final = "rows.arrow"
PREVIEW_NAME: Final = "preview.json"
#: What the steps get in place of the source, where that is so. It is there before the process is.
SEALED_NAME: Final = "sealed.json"


class SealedRows(Part):
    """The rows that a stage has sealed in a checkpoint store.

    `groups`: all rows of a key are to come together, of a stage that is done and has put them into buckets.
    """

    uri: str
    uid: str
    epoch: int
    stage: str
    groups: Grouping | None = None


class FailedRow(Part):
    """A row on which a step failed: where it lies, the step's label, and the type and the words of what it raised."""

    row: str
    step: str
    error: str
    message: str


class PreviewError(Part):
    """Why there is no preview: an error of the product."""

    family: Literal["Retryable", "NeedsChange", "Corrupt"]
    reason: str
    message: str


class PreviewOutcome(Part):
    """How many rows of the source the steps were given, and which of them failed; or why there is nothing to be seen."""

    rows_read: int = 0
    failed: tuple[FailedRow, ...] = ()
    error: PreviewError | None = None
