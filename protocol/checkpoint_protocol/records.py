"""The records of the checkpoint store: versioned, strict JSON, put once, never changed.

A record is plain data. An unknown version or an unreadable record is Corrupt and names the object; it is never taken for
"not there". Records that a put may race for carry a token: whoever reads its own token back has won, even if the answer to
its put was lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.manifest import Quarantine, Source, Step
from checkpoint_protocol.positions import Range
from checkpoint_protocol.problems import place_of, text_of

#: No record is larger: it is refused before it is put, and what is found that is larger was not written by us.
MAX_RECORD_BYTES = 64 << 20
#: An input or a plan that is larger is put in parts of about this size: some 30,000 files, or 200,000 ranges.
PART_BYTES = 8 << 20

#: What is kept of a row that failed, in characters: 7 kB a row, however long a traceback or a message is.
MAX_STEP_LENGTH = 512
MAX_ERROR_TYPE_LENGTH = 256
MAX_ERROR_MESSAGE_LENGTH = 2_000
MAX_TRACEBACK_LENGTH = 4_000
MAX_KEY_LENGTH = 200


def _without_surrogates(text: object) -> object:
    # A message may quote a file name that is no UTF-8; such text can be neither validated nor stored.
    return text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else text


Uid = Annotated[str, Field(pattern=r"^[0-9a-zA-Z][0-9a-zA-Z-]{0,62}$")]
Token = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
#: A pattern, and no function of ours: a commit reads millions of them.
Base64 = Annotated[str, Field(pattern=r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Number = Annotated[int, Field(ge=1, lt=1 << 31)]


def _later(default: Any) -> Any:
    """Return a field that records of the first release do not have. It is not stored where it says nothing new."""
    return Field(default=default, exclude_if=lambda value: value == default)


class Part(BaseModel):
    """A piece of a record."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Record(Part):
    """A whole stored object. Subclasses fix `kind` and `version`."""

    token: Token


# --- who ------------------------------------------------------------------------------------------------------------------


class NameRecord(Record):
    """Which uid a name means, where no cluster gives uids."""

    kind: Literal["name"] = "name"
    version: Literal[1] = 1
    uid: Uid


class WriteRecord(Record):
    """Who a write is."""

    kind: Literal["write"] = "write"
    version: Literal[1] = 1
    uid: Uid
    namespace: str
    name: str
    identity: dict[str, JsonValue]
    identity_digest: Digest


class DeletedRecord(Record):
    """The write was deleted: whoever claims after this was put, and finds it, commits nothing."""

    kind: Literal["deleted"] = "deleted"
    version: Literal[1] = 1
    uid: Uid


# --- the input ------------------------------------------------------------------------------------------------------------


class DeleteFile(Part):
    """A file of an Iceberg table that says which rows of data files are deleted, by their positions."""

    path: str
    format: Literal["parquet", "puffin"]


class IcebergSourceFile(Part):
    """What an Iceberg table knows of one of its data files.

    `partition` has one value per field of the spec, in its order, in Iceberg's binary form.
    """

    spec_id: int
    partition: tuple[Base64 | None, ...]
    deletes: tuple[DeleteFile, ...]


class StoredPart(Part):
    """An object with a part of a record that is too large for one, named by its token; it counts because the record names it.

    `count`: how many files of an input, or tasks of a plan, it has. `digest` is the SHA-256 of its bytes.
    """

    token: Token
    count: Annotated[int, Field(ge=1)]
    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class SourceFile:
    """One input file, fixed for the epoch. With slots, and no pydantic model: there may be a million in one process.

    `unit` says what its positions count: rows (Parquet, Iceberg, Lance), bytes (line-aligned text), records (text that is read
    from its start only). Positions run from `start` to `end`; end is None where it is known after reading only. `cuts` are
    positions at which a reader starts cheaply (row groups). `only`: of all these positions, those that are input, from and to;
    None: all. Rows of a table are counted as they lie in the file, so that those which the table has deleted have positions too.
    `iceberg`: of an Iceberg table's data file. `fragment`: of a Lance dataset, whose fragments are its files.
    """

    path: str
    etag: str
    size_bytes: Count
    unit: Literal["rows", "bytes", "records"]
    start: Count = 0
    end: Count | None
    cuts: tuple[Count, ...] = ()
    only: tuple[tuple[Count, Count], ...] | None = _later(None)
    iceberg: IcebergSourceFile | None = _later(None)
    fragment: Count | None = _later(None)

    @property
    def has_positions(self) -> bool:
        """Whether there is anything in it that is input."""
        return self.start != self.end if self.only is None else any(start != end for start, end in self.only)

    def ranges(self, index: int) -> tuple[Range, ...]:
        """Return the positions that are input, as those of the file with this index."""
        if self.only is None:
            return (Range(file=index, start=self.start, end=self.end),)
        return tuple(Range(file=index, start=start, end=end) for start, end in self.only)


class KeyColumn(Part):
    """A column that identifies rows; `type` is in Spark's words, e.g. bigint or decimal(10,2)."""

    name: str
    type: str


class Retried(Part):
    """What an epoch takes besides new rows, or alone: those of the source that earlier epochs have quarantined.

    For rows that are known by keys; of files it is `SourceFile.only` that names them. `rows`: so many of them the source had when
    this was fixed, before `sql` or a program left any out; only the limits of `quarantine` go by it.
    """

    retry: Literal["Also", "Only"]
    rows: Count


class PinnedIceberg(Part):
    """An Iceberg table at one snapshot, as its readers need to know it: no catalog is asked any more.

    `snapshot_id` is None where the table had no snapshot. `table_schema_json` is the schema that is read, `partition_specs_json`
    are all of its specs, `name_mapping_json` gives ids to the columns of files that have none.
    """

    format: Literal["iceberg"] = "iceberg"
    table: str
    table_uuid: str
    location: str
    metadata_location: str
    snapshot_id: int | None
    format_version: int
    table_schema_json: str
    partition_specs_json: tuple[str, ...]
    name_mapping_json: str | None


class PinnedLance(Part):
    """A Lance dataset at one version."""

    format: Literal["lance"] = "lance"
    uri: str
    at_version: Number


PinnedTable = Annotated[PinnedIceberg | PinnedLance, Field(discriminator="format")]


class InputTotals(Part):
    """What the files of an input add up to.

    `rows` are the most that it may have, where its files tell: those of which rows are counted, to a known end. `retried`: so
    many single rows are taken that earlier epochs have quarantined.
    """

    files: Count
    size_bytes: Count
    rows: Count | None
    retried: Count


class InputRecord(Record):
    """What every attempt of the epoch reads: exactly these files, under this schema (an Arrow IPC schema message).

    The schema has the columns that the steps get, and after them those that only `where` looks at. `table` is the source
    table at the snapshot or version that every attempt reads. Where rows are known by keys there are no files, which nothing
    could pin: `keys` are the columns that every attempt knows rows by, and `retried` says what it takes of earlier epochs.

    With too many files for one object an InputIndexRecord is stored in its place.
    """

    kind: Literal["input"] = "input"
    version: Literal[1] = 1
    files: tuple[SourceFile, ...]
    arrow_schema: Base64
    keys: tuple[KeyColumn, ...] = ()
    table: PinnedTable | None = _later(None)
    retried: Retried | None = _later(None)

    @property
    def totals(self) -> InputTotals:
        again = [file for file in self.files if file.only is not None]
        rows: int | None = sum(len(file.only or ()) for file in again)
        for file in self.files:
            if rows is not None and file.only is None:
                rows = None if file.unit == "bytes" or file.end is None else rows + file.end - file.start
        return InputTotals(
            files=len(self.files),
            size_bytes=sum(file.size_bytes for file in self.files),
            rows=None if self.keys else rows,
            retried=sum(len(file.only or ()) for file in again),
        )


class InputIndexRecord(Record):
    """An input whose files are in parts, in this order; what it says else is that of an InputRecord.

    It is put after its parts, under the name of the input: the first one, of whichever kind, stands.
    """

    kind: Literal["input-index"] = "input-index"
    version: Literal[1] = 1
    parts: Annotated[tuple[StoredPart, ...], Field(min_length=1)]
    totals: InputTotals
    arrow_schema: Base64
    table: PinnedTable | None

    @model_validator(mode="after")
    def _counts_its_files(self) -> InputIndexRecord:
        if sum(part.count for part in self.parts) != self.totals.files:
            raise ValueError("the parts have not as many files as the input")
        return self


class InputPartRecord(Record):
    """Files of an input that an InputIndexRecord names."""

    kind: Literal["input-part"] = "input-part"
    version: Literal[1] = 1
    files: Annotated[tuple[SourceFile, ...], Field(min_length=1)]


# --- the target -----------------------------------------------------------------------------------------------------------


class IcebergTarget(Part):
    """An Iceberg table as staging sees it: everything a data file depends on, and no catalog."""

    format: Literal["iceberg"] = "iceberg"
    table: str
    table_uuid: str
    data_location: str
    table_schema_json: str
    partition_spec_json: str
    codec: str
    codec_level: int | None = None


class LanceField(Part):
    """One field of a Lance schema, at any depth. `path` is dotted, `type` is Lance's logical type."""

    id: int
    path: str
    type: str
    nullable: bool


class LanceTarget(Part):
    """A Lance dataset as staging sees it, at one version."""

    format: Literal["lance"] = "lance"
    uri: str
    identity: Token
    at_version: Number
    fields: tuple[LanceField, ...]
    arrow_schema: Base64
    storage_version: str


class NoTarget(Part):
    format: Literal["none"] = "none"


Target = Annotated[IcebergTarget | LanceTarget | NoTarget, Field(discriminator="format")]


# --- an attempt -----------------------------------------------------------------------------------------------------------


class LaunchRecord(Record):
    """What the operator tells driver n.

    `counted` are the closed attempts whose seals stand: the driver skips what they cover, and when this attempt is complete
    the commit takes exactly theirs and its own. `target` is None where the table is to be made from the steps' output.
    `code` is the digest of the archive with the steps' code in the store; None: it is installed, or on the import path already.
    `recorded_by` names who watches the driver: a machine, for local runners; empty in a cluster, where everybody can see pods.
    `source_table` is the Iceberg table that is read, as the catalog showed it: drivers have no catalog. It counts for the first
    attempt that fixes the input; for the others it is None, or passed over.
    """

    kind: Literal["launch"] = "launch"
    version: Literal[1] = 1
    attempt: Number
    run_nonce: str
    source: Source
    steps: tuple[Step, ...]
    code_digest: Digest
    target: Target | None
    sink_format: Literal["iceberg", "lance", "none"]
    target_file_size_bytes: Count
    interval_s: Annotated[float, Field(gt=0)]
    minimum_bytes: Count
    counted: tuple[Number, ...]
    recorded_by: str = ""
    code: Digest | None = None
    on_replaced: Literal["Fail", "Process", "Skip"]
    on_row_error: Literal["Fail", "Quarantine"] = _later("Fail")
    quarantine: Quarantine = _later(Quarantine())
    source_table: PinnedIceberg | None = _later(None)


class OutputRecord(Record):
    """The schema that the steps of attempt n produce, proposed by its driver because no table exists."""

    kind: Literal["output"] = "output"
    version: Literal[1] = 1
    arrow_schema: Base64


class TargetRecord(Record):
    """The table that the operator has made (or found) for the proposed output."""

    kind: Literal["target"] = "target"
    version: Literal[1] = 1
    target: Target


class KeySet(Part):
    """A set of keys, known by its size and an order-free fingerprint: two sums modulo 2^64 of 64-bit hashes, as 32 hex digits."""

    rows: Count
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class PlanRecord(Record):
    """The full plan of an attempt, task by task, before any task runs. The token is the driver's.

    `done_files` and `done_rows` tell what earlier attempts have sealed and this one does not read.

    Where rows are known by keys, `tasks` is empty and `partitions` is the number of tasks: the partitions of Spark's plan.
    `skipped` are then the source rows that were found, before any work, to have keys that the counted attempts have sealed.

    `in_driver`: the tasks run in the driver's own process, which has no executors.

    With too many ranges for one object, `tasks` is empty in the store, and they are in `parts`, in this order.
    """

    kind: Literal["plan"] = "plan"
    version: Literal[1] = 1
    attempt: Number
    tasks: tuple[tuple[Range, ...], ...]
    done_files: Count
    done_rows: Count
    partitions: Count | None = None
    skipped: KeySet | None = None
    in_driver: bool = _later(False)
    parts: tuple[StoredPart, ...] = _later(())

    @property
    def task_count(self) -> int:
        if self.parts:
            return sum(part.count for part in self.parts)
        return len(self.tasks) if self.partitions is None else self.partitions


class PlanPartRecord(Record):
    """Tasks of a plan that names this part."""

    kind: Literal["plan-part"] = "plan-part"
    version: Literal[1] = 1
    tasks: Annotated[tuple[tuple[Range, ...], ...], Field(min_length=1)]


class FailureRecord(Record):
    """Why a driver ended, in its own words. Advice for people and for the backoff; no safety rests on it."""

    kind: Literal["failure"] = "failure"
    version: Literal[1] = 1
    attempt: Number
    family: Literal["Retryable", "NeedsChange", "Corrupt"]
    reason: str
    message: Annotated[str, BeforeValidator(_without_surrogates), Field(max_length=32_768)]


# --- a seal ---------------------------------------------------------------------------------------------------------------


class PositionsCovered(Part):
    """The segment covers these positions, all of them and nothing else."""

    kind: Literal["positions"] = "positions"
    ranges: tuple[Range, ...]


class KeysObject(Part):
    """A Parquet object with the exact keys of source rows, each once. `path` is relative to the store.

    `quarantined`: all of its rows are; the keys of those that are not lie in other objects.
    """

    path: str
    rows: Count
    size_bytes: Count
    quarantined: bool = _later(False)


class KeysCovered(Part):
    """The segment covers the source rows with these keys, each of them wholly. `quarantined` are those of them that are."""

    kind: Literal["keys"] = "keys"
    objects: tuple[KeysObject, ...]
    keys: KeySet
    quarantined: KeySet | None = _later(None)


Covered = Annotated[PositionsCovered | KeysCovered, Field(discriminator="kind")]


class FieldMetrics(NamedTuple):
    """Iceberg metrics of one field id of a data file. Bounds are Iceberg's single-value binary form in base64.

    Stored as a list without names, and read as a plain tuple: there are as many as columns in each of a million files.
    """

    field_id: int
    column_size: int | None = None
    value_count: int | None = None
    null_count: int | None = None
    nan_count: int | None = None
    lower: str | None = None
    upper: str | None = None


#: What is stored of a FieldMetrics.
_StoredMetrics = tuple[int, Count | None, Count | None, Count | None, Count | None, Base64 | None, Base64 | None]


class IcebergFile(Part):
    """A staged Iceberg data file.

    `partition` has one value per field of the spec, in its order, in Iceberg's binary form; `metrics` has the values of a
    FieldMetrics for each field id.
    """

    format: Literal["iceberg"] = "iceberg"
    path: str
    size_bytes: Count
    rows: Count
    schema_id: int
    spec_id: int
    partition: tuple[Base64 | None, ...]
    metrics: tuple[_StoredMetrics, ...]
    split_offsets: tuple[Count, ...]


class LanceDataFile(Part):
    """A data file of a fragment, named relative to the dataset's data folder, with what Lance's manifest wants to know of it."""

    path: str
    size_bytes: Count
    fields: tuple[int, ...]
    column_indices: tuple[int, ...]
    major_version: Count
    minor_version: Count


class LanceFragment(Part):
    """A staged Lance fragment. Its id is given at commit."""

    format: Literal["lance"] = "lance"
    files: tuple[LanceDataFile, ...]
    rows: Count


StagedFile = Annotated[IcebergFile | LanceFragment, Field(discriminator="format")]


class RowPosition(Part):
    """Where a source row lies: its positions in a file of the epoch's input."""

    kind: Literal["position"] = "position"
    range: Range


class RowKey(Part):
    """Which source row it is, by its key as people read it, cut where it is long. Its exact values are in a keys object.

    `source` is the number of its source, which is 0 where there is one.
    """

    kind: Literal["key"] = "key"
    source: Count
    values: tuple[Annotated[str, BeforeValidator(_without_surrogates), Field(max_length=MAX_KEY_LENGTH)], ...]


RowIdentity = Annotated[RowPosition | RowKey, Field(discriminator="kind")]


class QuarantinedRow(Part):
    """A source row of which nothing was made, and why. Its other values are not kept: `row` tells where to find them.

    `step` is the step's label, or "(output)" where what the steps gave does not fit the table. `error` is the exception's type.
    """

    row: RowIdentity
    step: Annotated[str, BeforeValidator(_without_surrogates), Field(max_length=MAX_STEP_LENGTH)]
    error: Annotated[str, BeforeValidator(_without_surrogates), Field(max_length=MAX_ERROR_TYPE_LENGTH)]
    message: Annotated[str, BeforeValidator(_without_surrogates), Field(max_length=MAX_ERROR_MESSAGE_LENGTH)]
    traceback: Annotated[str, BeforeValidator(_without_surrogates), Field(max_length=MAX_TRACEBACK_LENGTH)]


class QuarantineObject(Part):
    """An object with more quarantined rows, named by its token; it counts because a seal names it."""

    token: Token
    rows: Annotated[int, Field(ge=1)]


class Quarantined(Part):
    """The source rows of a segment that failed: the first ones here, the others in objects of their own."""

    rows: Annotated[tuple[QuarantinedRow, ...], Field(min_length=1)]
    objects: tuple[QuarantineObject, ...] = ()

    @property
    def count(self) -> int:
        return len(self.rows) + sum(stored.rows for stored in self.objects)


class QuarantineRecord(Record):
    """Quarantined rows of a segment that are too many for its seal."""

    kind: Literal["quarantine"] = "quarantine"
    version: Literal[1] = 1
    rows: Annotated[tuple[QuarantinedRow, ...], Field(min_length=1)]


class Seal(Record):
    """A finished segment of a task: what it covers and the files that hold its results, in one object.

    `rows_read` counts the source rows that the steps were given, `rows_written` what came of them. A row that `where` does not
    take, or that the source table has deleted, is covered, and counted in neither. `last`: the task's whole work is sealed by
    this link and those before it. `quarantined` rows are covered and read, and nothing was made of them.
    """

    kind: Literal["seal"] = "seal"
    version: Literal[1] = 1
    attempt: Number
    task: Count
    link: Count
    covered: Covered
    rows_read: Count
    rows_written: Count
    code_digest: Digest
    files: tuple[StagedFile, ...]
    last: bool
    quarantined: Quarantined | None = _later(None)

    @property
    def rows_quarantined(self) -> int:
        return self.quarantined.count if self.quarantined is not None else 0

    @property
    def covers_rows(self) -> bool:
        """Whether any row is done by it: positions that `where` passed over are; a partition without rows has none."""
        if isinstance(self.covered, KeysCovered):
            return self.covered.keys.rows > 0
        return any(piece.end is None or piece.end > piece.start for piece in self.covered.ranges)


class BundleRecord(Record):
    """The header of a bundle: copies of seals of one attempt, in this order, put by the driver whose plan has this token."""

    kind: Literal["bundle"] = "bundle"
    version: Literal[1] = 1
    attempt: Number
    plan_token: Token
    # Task, link, size in bytes, etag: no Part, for there are a thousand of them.
    seals: tuple[tuple[Count, Count, Count, str], ...]


# --- the end of an attempt and of an epoch --------------------------------------------------------------------------------


class CheckedBundle(Part):
    """A bundle whose seals were compared with the store's when the attempt was closed. The digest is the SHA-256 of its bytes."""

    number: Count
    digest: Digest


class ClosedRecord(Record):
    """The seals of an attempt that count, for good: for each task of the plan the length of its chain's gap-free prefix.

    `complete`: there was a plan and every prefix ends in a `last` seal. An attempt that never had a plan has no chains and
    is not complete. `bundles` hold seals of the attempt as the store does: whoever reads what counts may read them there.
    """

    kind: Literal["closed"] = "closed"
    version: Literal[1] = 1
    attempt: Number
    plan_token: Token | None
    chain_lengths: tuple[Count, ...]
    complete: bool
    # Left out where there are none, as releases have it that know none.
    bundles: Annotated[tuple[CheckedBundle, ...], Field(exclude_if=lambda bundles: not bundles)] = ()

    @model_validator(mode="after")
    def _needs_a_plan_to_be_complete(self) -> ClosedRecord:
        if self.plan_token is None and (self.complete or self.chain_lengths):
            raise ValueError("an attempt without a plan has no seals that count")
        return self


class IcebergBase(Part):
    """The table as the claimant had looked at it: its uuid and the head of the branch (None: no snapshot yet)."""

    format: Literal["iceberg"] = "iceberg"
    table_uuid: str
    snapshot_id: int | None


class LanceBase(Part):
    """The dataset as the claimant had looked at it."""

    format: Literal["lance"] = "lance"
    identity: Token
    at_version: Number


Base = Annotated[IcebergBase | LanceBase, Field(discriminator="format")]


class ClaimRecord(Record):
    """Leave to try a commit, and the base that was looked at before. No claim: no commit was ever tried."""

    kind: Literal["claim"] = "claim"
    version: Literal[1] = 1
    index: Count
    base: Base


class MarkRecord(Record):
    """The commit was seen in the table. `commit_id` is the snapshot id or version; None where there was nothing to commit.

    `was_rolled_back`: it was seen in the table's history only; before this mark, somebody had rolled the table back to before it.
    """

    kind: Literal["mark"] = "mark"
    version: Literal[1] = 1
    key: str
    target: str
    table_identity: str | None
    commit_id: int | None
    rows_read: Count
    rows_written: Count
    files: Count
    attempts: Number
    code_digests: tuple[Digest, ...]
    rows_quarantined: Count = _later(0)
    was_rolled_back: bool = _later(False)


_R = TypeVar("_R", bound=Record)


def encode(record: Record) -> bytes:
    """Return the stored form."""
    return record.model_dump_json(exclude_none=False).encode()


def decode(model: type[_R], data: bytes, where: str) -> _R:
    """Read a stored record. Corrupt, naming the object, if it is not a record of this kind and version."""
    if len(data) > MAX_RECORD_BYTES:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{where} has {len(data)} bytes; no record is larger than {MAX_RECORD_BYTES}")
    try:
        record = model.model_validate_json(data)
    except ValidationError as error:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{where} {_what_is_wrong(model, data, error)}") from None
    if not record.model_fields_set.issuperset(("kind", "version")):
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{where} does not say its kind and version: it is not a record of ours")
    return record


def decode_one_of(models: Sequence[type[_R]], data: bytes, where: str) -> _R:
    """Read a stored record of one of these kinds, which it says itself. What is of none of them is no record of the first."""
    if len(models) == 1 or len(data) > MAX_RECORD_BYTES:
        return decode(models[0], data, where)
    try:
        kind = _Kind.model_validate_json(data).kind
    except ValidationError:
        kind = ""
    return decode(next((model for model in models if model.model_fields["kind"].default == kind), models[0]), data, where)


class _Kind(BaseModel):
    kind: str


def refuse_too_large(record: Record, data: bytes, where: str) -> None:
    """Raise NeedsChange, naming the object, for a record that nobody could read."""
    if len(data) > MAX_RECORD_BYTES:
        kind = type(record).model_fields["kind"].default
        raise NeedsChange(
            reasons.RECORD_TOO_LARGE,
            f"{where} would have {len(data):,} bytes, and a record has {MAX_RECORD_BYTES:,} at the most; "
            f"{_WAYS_OUT.get(kind, 'nothing was put')}",
        )


#: What a user can do about a record that is too large, by its kind.
_WAYS_OUT: Final = {
    "launch": "name fewer paths in source.paths: a folder or a pattern may mean any number of files",
    "write": "name fewer paths in source.paths: a folder or a pattern may mean any number of files",
    "input": "give the source fewer columns (source.columns)",
    "input-part": "one input file has too many rows that are tried again (set quarantine.retry: Never) or too many row groups "
    "(rewrite it with larger ones)",
    "output": "let the steps give fewer columns",
    "seal": "a segment has made too many data files: partition the table by fewer values, let source.splitSize or "
    "checkpoint.interval be shorter, or sink.targetFileSize larger",
}


def _what_is_wrong(model: type[Record], data: bytes, error: ValidationError) -> str:
    kind = model.model_fields["kind"].default
    version = model.model_fields["version"].default
    try:
        plain: Any = json.loads(data)
    except (ValueError, RecursionError):
        plain = None
    if not isinstance(plain, dict):
        return f"is not a {kind} record: it is not a JSON object (truncated or overwritten?)"
    if plain.get("kind") == kind and plain.get("version") != version:
        return (
            f"is a {kind} record of version {plain.get('version')!r}, and this program reads version {version}: "
            "it was written by another release; use that one, or a later one"
        )
    first = error.errors(include_url=False, include_input=False)[0]
    return f"is not a valid {kind} record: {place_of(first)}: {text_of(first)} ({error.error_count()} problems)"
