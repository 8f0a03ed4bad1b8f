"""What a checkpoint store holds, as `inspect` and `status` show it, and a reader that notes what it cannot read.

Nothing here is read back by the product. A field is null where its record is not there; where a record is there and cannot be
read, the field is null too, and `errors` names the object. Counts are sums over what could be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from checkpoint_control.decision.phases import Phase
from checkpoint_protocol import writes
from checkpoint_protocol.errors import CheckpointError, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import CleanedRecord, CommitRecord, Record
from checkpoint_protocol.rows.quarantine import key_text
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_protocol.store.put_once import read as read_record


class Shown(BaseModel):
    """A piece of an answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True)


class ShownError(Shown):
    """An object that is there and cannot be read, or that must be there and is not."""

    object: str = Field(description="The object's path below the store's URI.")
    message: str


class ShownFailure(Shown):
    """Why an attempt's driver ended, in its own words."""

    attempt: int
    family: str = Field(description="Retryable, NeedsChange or Corrupt: who has to act.")
    reason: str
    message: str


class ShownSums(Shown):
    """What seals add up to. Of an epoch whose seals are cleaned its commit tells it, without their number and the bytes."""

    seals: int = 0
    rows_read: int = 0
    rows_written: int = 0
    staged_files: int = 0
    staged_bytes: int = 0
    rows_quarantined: int = 0

    def __add__(self, other: ShownSums) -> ShownSums:
        return ShownSums(**{name: getattr(self, name) + getattr(other, name) for name in ShownSums.model_fields})


class ShownRowError(Shown):
    """A source row that failed, where it lies or what its key is, and why. Its other values are not kept."""

    file: str | None = Field(default=None, description="Null where rows are known by keys, or the input's record cannot be read.")
    etag: str | None = None
    unit: str | None = Field(default=None, description="What start and end count in the file: rows, bytes or records.")
    start: int | None = None
    end: int | None = None
    source: int | None = Field(default=None, description="The number of its source, where rows are known by keys.")
    key: dict[str, str] | None = Field(default=None, description="Its key columns as text, where rows are known by keys.")
    step: str
    error: str = Field(description="The exception's type.")
    message: str
    traceback: str

    @property
    def place(self) -> str:
        """Where the row lies, or what its key is, for people."""
        if self.key is not None:
            return f"row with {key_text(self.key, self.source or 0)}"
        return f"{'line at byte' if self.unit == 'bytes' else 'row'} {self.start} of {self.file or '?'}"


class ShownAttempt(Shown):
    """One driver's work."""

    attempt: int
    code_digest: str | None = Field(description="The first twelve digits.")
    target: str | None = Field(description="The table that it stages for; null before one was made.")
    counted: tuple[int, ...] = Field(description="The earlier attempts whose seals it takes over.")
    tasks: int | None = Field(description="Of its plan; null before there is one.")
    tasks_done: int = Field(description="Tasks whose last seal is there.")
    input_files_done: int | None = Field(
        description="Whole input files that earlier attempts have sealed, which its plan does not open; null before there is one."
    )
    sealed: ShownSums = Field(description="Seals of this attempt that count, or would count if it were closed now.")
    seals_not_counted: int = Field(description="Seals that came after the attempt was closed, or after a gap. Harmless.")
    closed: bool | None = Field(description="Whether it is fixed which of its seals count.")
    complete: bool | None = Field(description="Whether every task was sealed to its end when it was closed; null before.")
    failure: ShownFailure | None
    quarantined: tuple[ShownRowError, ...] = Field(
        default=(), description="The rows that failed, of the seals that count. Empty where only sums were asked for."
    )


class ShownClaim(Shown):
    """Leave to try a commit, and how much of the table had been seen before."""

    index: int
    table_identity: str | None = Field(description="Null where the claim cannot be read.")
    base: int | None = Field(description="The snapshot or version that was loaded; null: a table without snapshots.")


class ShownCommit(Shown):
    """The record that this commit was seen in the table."""

    target: str
    table_identity: str | None
    commit_id: int | None = Field(description="Snapshot id or version; null where there were no rows to commit.")
    rows_read: int
    rows_written: int
    files: int
    attempts: int
    code_digests: tuple[str, ...]
    read_digests: tuple[str, ...] = Field(default=(), description="Several where types or options of text were edited.")
    rows_quarantined: int = Field(default=0, description="Rows that failed and have no result in this commit.")
    rows_quarantined_before: int = Field(default=0, description="The same of the stages before, of a pipeline.")

    @property
    def rows_failed(self) -> int:
        """In whichever stage."""
        return self.rows_quarantined + self.rows_quarantined_before


class ShownBegan(Shown):
    """Why an epoch of a write with a trigger began."""

    why: Literal["First", "RunNonce", "Trigger"]
    at: str = Field(description="By the clock of whoever recorded its first attempt.")
    files: int = Field(description="That were new in the look which began it; 0 where nothing was counted.")
    size_bytes: int


class ShownEpoch(Shown):
    """One input, and one commit."""

    epoch: int
    stage: str | None = Field(default=None, description="Its name, of a stage of the epoch; null of the epoch itself.")
    audit: str | None = Field(default=None, description="Of a stage that audits: the function that its last attempt calls.")
    phase: Phase = Field(description="As in the status of an object, by the store alone.")
    run_nonce: str | None = Field(description="Of its first attempt.")
    began: ShownBegan | None = Field(default=None, description="Null without a trigger. With stages, the first one has it.")
    input_files: int | None = Field(description="Null before a driver has fixed the input.")
    input_bytes: int | None
    input_table: str | None = Field(description="The source table at its snapshot or version; null where the source is files.")
    input_stage: str | None = Field(
        default=None, description="Of a pipeline, the stage whose result is read; null where the source is."
    )
    input_keys: tuple[str, ...] = Field(
        default=(), description="The key columns, where rows are known by keys: there are no files."
    )
    rows_retried: int = Field(default=0, description="Rows of the input that earlier epochs had quarantined.")
    attempts: tuple[ShownAttempt, ...]
    sealed: ShownSums = Field(description="What counts in all: of the last attempt and of those that it takes over.")
    rows_quarantined_before: int = Field(default=0, description="By the stages before, of a pipeline: it reads their results.")
    claims: tuple[ShownClaim, ...]
    is_committed: bool | None = Field(description="Null: the commit's record is there and cannot be read.")
    was_deleted: bool = Field(default=False, description="It has ended by a deletion of the write, without a commit.")
    is_cleaned: bool = Field(
        default=False, description="What it had staged is removed, but for what later epochs need: sums are of what is left."
    )
    commit: ShownCommit | None
    stages: tuple[ShownEpoch, ...] = Field(default=(), description="Its stages, by name: shown like epochs, without a table.")


class ShownWrite(Shown):
    """One write."""

    uid: str
    namespace: str | None
    name: str | None
    names: tuple[str, ...] = Field(description="Which namespace/name mean this uid (local runner).")
    is_deleted: bool | None = Field(description="Nothing of it is committed any more. Null: the note cannot be read.")
    source: dict[str, JsonValue] | None = Field(description="Its identity, with defaults left out.")
    sink: dict[str, JsonValue] | None
    epochs: tuple[ShownEpoch, ...]


class ShownStore(Shown):
    """A checkpoint store."""

    uri: str
    writes: tuple[ShownWrite, ...]
    errors: tuple[ShownError, ...]
    strays: tuple[str, ...] = Field(description="Objects in the product's folders that are no record of any kind.")


#: A store that leaves so many questions unanswered is down: then the rest is not asked, each with its own patience.
_MOST_UNANSWERED: Final = 3

_T = TypeVar("_T")
_R = TypeVar("_R", bound=Record)


@dataclass(slots=True)
class LenientReader:
    """Reads one store. `wrong`: by path, what cannot be read, or must be there and is not.

    `strays`: objects seen so far that are no records. `put_at`: when each listed object was put, by the store's clock.
    `rows_sealed`: by path, the source rows of each seal that counts and was read.
    """

    store: ObjectStore
    strays: list[str] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)
    put_at: dict[str, datetime] = field(default_factory=dict)
    rows_sealed: dict[str, int] = field(default_factory=dict)
    _deletions: dict[str, bool | None] = field(default_factory=dict)
    _unanswered: int = 0

    @property
    def errors(self) -> tuple[ShownError, ...]:
        """The objects that could not be read so far, or that must be there and are not."""
        return tuple(ShownError(object=path, message=message) for path, message in sorted(self.wrong.items()))

    def list(self, folder: str) -> list[str]:
        paths = []
        for stored in self.store.list(folder):
            paths.append(stored.path)
            if stored.modified is not None:
                self.put_at[stored.path] = stored.modified
        return paths

    def read(self, path: str, model: type[_R]) -> _R | None:
        return self.try_to_read(path, lambda: read_record(self.store, path, model))

    def try_to_read(self, path: str, ask: Callable[[], _T | None]) -> _T | None:
        """Return what is read; None, with an error noted, if it cannot be. Raises Retryable once the store seems down."""
        try:
            return ask()
        except CheckpointError as error:
            if isinstance(error, Retryable):
                self._unanswered += 1
                if self._unanswered > _MOST_UNANSWERED:
                    raise
            self.wrong[path] = error.message
            return None

    def is_deleted(self, uid: str) -> bool | None:
        """Whether a write was deleted; None if that cannot be read."""
        if uid not in self._deletions:
            path = layout.deleted_path(uid)
            note = self.try_to_read(path, lambda: writes.read_deleted(self.store, uid))
            self._deletions[uid] = None if path in self.wrong else note is not None
        return self._deletions[uid]

    def _is_cleared(self, place: str) -> bool:
        """Whether a deletion, or a cleaner, has removed what was staged at `<uid>/<epoch>/...`."""
        uid, _, rest = place.partition("/")
        epoch = layout.epoch_of(f"{layout.control_folder(uid)}{rest}", layout.control_folder(uid))
        if self.is_deleted(uid) or epoch is None:
            return bool(self.is_deleted(uid))
        at = EpochLayout(EpochKey(uid, epoch))
        commit = self.read(at.commit_record, CommitRecord)
        return (commit is not None and commit.was_deleted) or self.read(at.cleaned, CleanedRecord) is not None

    def note_missing(self, path: str, why: str) -> None:
        folder, _, rest = path.partition("/")
        if folder == layout.STAGED and self._is_cleared(rest):
            return  # deletion has removed what was staged
        self.wrong.setdefault(path, f"{self.store.uri}/{path} is not there, though {why}")
