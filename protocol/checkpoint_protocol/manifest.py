"""The CheckpointedWrite manifest: what a user applies, field for field the CRD's spec (which is generated from these models).

Strict: an unknown field or a wrong type is an error that names the field's path and, where one is close, the field that was
meant. Identity (source, sink, checkpoint) is immutable for the life of a write; code, arguments, sizes and how text is read are
not, and the source itself is only once rows of it are sealed. What only a cluster can do (images, pod templates, Secrets) is
accepted and passed over on one machine. `description` and the first line of a docstring are what `kubectl explain` shows.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from typing import Annotated, Any, Final, Literal, TypeVar, assert_never

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from checkpoint_protocol import reasons
from checkpoint_protocol.deadlines import derived_progress_deadline_s, least_progress_deadline_s
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.problems import UNION_MARK, place_of, text_of
from checkpoint_protocol.quantities import Duration, Share, Size, format_duration
from checkpoint_protocol.sections import Label, ObjectName, Seconds, Section, Uri
from checkpoint_protocol.workloads import Code as Code
from checkpoint_protocol.workloads import DriverSpec as DriverSpec
from checkpoint_protocol.workloads import ExecutorSpec as ExecutorSpec

API_VERSION: Final = "checkpointed.dev/v1alpha1"
KIND: Final = "CheckpointedWrite"
PARTITION_TRANSFORMS: Final = ("identity", "year", "month", "day", "hour")
#: Formats whose rows are known by file and position, so that they can go the splits way.
SPLITS_FORMATS: Final = ("parquet", "csv", "json", "iceberg", "lance")
SPLITS_TABLES: Final = ("iceberg", "lance")
#: Formats of ours beside Spark's: a table of one of Spark's catalogs, and what an own program reads.
TABLE_FORMAT: Final = "table"
PROGRAM_FORMAT: Final = "program"
#: In a reader option's name these say that its value is a secret, ...
SECRET_WORDS: Final = ("password", "secret", "token", "credential")
#: ... which is then the name of a variable of the driver's environment, and stands in no manifest and no record.
VARIABLE_PATTERN: Final = r"\$\{env:[A-Za-z_][A-Za-z0-9_]*\}"
#: What CSV took for NULL in the first release where the manifest said nothing. API servers have stored it in the objects of then.
FIRST_NULL_VALUES: Final = ("", "NA", "null", "NULL")
#: What of source.types and source.options may be edited while a write runs: none of it says which rows there are, or where.
READING_FIELDS: Final = ("types",)
READING_OPTIONS: Final = ("nullValues", "delimiter", "quote")
#: Formats that are text, so that types and options say how they are read.
TEXT_FORMATS: Final = ("csv", "json")
#: user:password@host
_USER_INFO: Final = r"://[^/@:$]*:[^/@$]+@"

#: The name of a driver's pod is <write>-<8 hex digits>-<epoch>-<attempt>, and a pod's host name has 63 characters at most.
MAX_NAME_LENGTH: Final = 45

#: What of a sink counts only where the table is missing.
_MAKING_FIELDS: Final = ("create", "partitionBy")

_ColumnName = Annotated[str, Field(max_length=512)]

_Model = TypeVar("_Model", bound=BaseModel)


def _is_absent(value: object) -> bool:
    # Fields that came later are not written where they say nothing: what older releases have stored stays as it is.
    return value is None


def _refuse_escapes(uri: str) -> None:
    if "://" in uri and "%" in uri:
        raise ValueError("Lance takes %20 and the like in a URI for other characters; use a name without %")


class SourceOptions(Section):
    """How to read text files. Parquet files need none of these."""

    header: bool = Field(default=True, description="CSV: the first line of each file names the columns.")
    delimiter: str = Field(default=",", min_length=1, max_length=1, description="CSV: the character between fields.")
    quote: str = Field(default='"', max_length=1, description="CSV: the character around fields; empty for none.")
    escape: str = Field(default="", max_length=1, description="CSV: the character before a special one; empty for none.")
    null_values: tuple[Annotated[str, Field(max_length=256)], ...] = Field(
        default=("",),
        max_length=64,
        description="CSV: texts that mean NULL when not quoted: the empty field. NA, null and NULL are texts unless named.",
    )
    multi_line: bool = Field(
        default=False,
        description="CSV: fields may contain line breaks. Such files are read from their start by one task each.",
    )
    compression: Literal["auto", "none", "gzip"] = Field(
        default="auto", description="Text: auto takes .gz as gzip. Compressed files are read by one task each."
    )

    @property
    def say_nothing(self) -> bool:
        """Whether all are defaults: today's, or those that an API server of the first release has stored."""
        defaults = SourceOptions()
        return self in (defaults, defaults.model_copy(update={"null_values": FIRST_NULL_VALUES}))


class IcebergSource(Section):
    """An Iceberg table as it is when the epoch's first attempt is recorded."""

    catalog: str = Field(min_length=1, max_length=128, description="A catalog of the operator's (or runner's) settings.")
    table: str = Field(pattern=r"^[^.]+(\.[^.]+)+$", max_length=512, description="namespace.table, its name in the catalog.")
    snapshot_id: int | None = Field(
        default=None, ge=0, exclude_if=_is_absent, description="This snapshot, whatever came after it."
    )
    branch: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        default=None, exclude_if=_is_absent, description="The head of this branch or tag, instead of main's."
    )

    @model_validator(mode="after")
    def _names_one_snapshot(self) -> IcebergSource:
        if self.snapshot_id is not None and self.branch is not None:
            raise ValueError("at most one of snapshotId and branch is expected")
        return self


class LanceSource(Section):
    """A Lance dataset as it is when the epoch's first driver looks at it."""

    uri: Uri = Field(description="The dataset, e.g. s3://bucket/name.lance")
    version: int | None = Field(default=None, ge=1, exclude_if=_is_absent, description="This version, whatever came after it.")

    @model_validator(mode="after")
    def _is_what_lance_reads(self) -> LanceSource:
        _refuse_escapes(self.uri)
        return self


class Source(Section):
    """Where the rows come from. Immutable once rows of it are sealed, but for how text is read."""

    format: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$", max_length=128)] = Field(
        description="parquet, csv, json (one JSON object a line), iceberg, lance, or anything else that Spark reads: orc, text, "
        "jdbc, avro, ...; table: a table of one of Spark's catalogs; program: what an own program reads."
    )
    way: Literal["Auto", "Splits", "DataFrame"] = Field(
        default="Auto",
        description="How rows are known: Splits by file and position, DataFrame (whatever Spark reads) by keyColumns. "
        "Auto takes splits where it can.",
    )
    path: Uri | None = Field(
        default=None, description="A file, a folder or a pattern with *: s3://, gs://, az://, or on this machine."
    )
    paths: tuple[Uri, ...] = Field(default=(), max_length=1024, description="Several of the same, instead of path.")
    table: Annotated[str, Field(pattern=r"^\S+$", max_length=512)] | None = Field(
        default=None, description="With format table: its name in Spark, e.g. catalog.namespace.table."
    )
    program: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", max_length=512)] | None = Field(
        default=None,
        description="With format program: module:function; it is given a job with spark, read(dataframe) and write(dataframe).",
    )
    sql: Annotated[str, Field(min_length=1, max_length=32768)] | None = Field(
        default=None, description="Spark SQL between the source and the steps, e.g. SELECT id, upper(a) AS a FROM input."
    )
    reader_options: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict,
        max_length=64,
        description="Options of Spark's reader, e.g. url, dbtable and partitionColumn of jdbc. ${env:NAME} stands for a variable "
        "of the driver's environment; secrets are given in no other way.",
    )
    iceberg: IcebergSource | None = Field(default=None, exclude_if=_is_absent)
    lance: LanceSource | None = Field(default=None, exclude_if=_is_absent)
    options: SourceOptions = Field(default_factory=SourceOptions)
    columns: Annotated[tuple[_ColumnName, ...], Field(min_length=1, max_length=2048)] | None = Field(
        default=None, description="Read these columns only."
    )
    where: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None,
        exclude_if=_is_absent,
        description="Take only the rows for which this is true, e.g. day >= '2026-01-01' and not (code in (3, 4) or x is null)",
    )
    types: dict[str, Annotated[str, Field(max_length=1024)]] = Field(
        default_factory=dict,
        max_length=2048,
        description="Text: the type of a column where the inferred one is not right, e.g. int64, string, "
        "timestamp[us], decimal(10,2).",
    )
    key_columns: tuple[_ColumnName, ...] = Field(
        default=(),
        max_length=16,
        description="Columns that identify a row: unique, never NULL. Files that go the splits way do not need them.",
    )
    split_size: Size = Field(default=128 << 20, gt=0, description="The most bytes of input of one split.")

    @model_validator(mode="after")
    def _says_what_its_way_needs(self) -> Source:
        if (self.format == "iceberg") != (self.iceberg is not None) or (self.format == "lance") != (self.lance is not None):
            raise ValueError("format iceberg goes with iceberg, lance with lance, and the others with path or paths")
        files = (self.path is not None) + bool(self.paths)
        if self.is_dataframe:
            self._can_be_read_by_spark(files)
        elif files + (self.iceberg is not None) + (self.lance is not None) != 1:
            raise ValueError("exactly one of path, paths, iceberg and lance is expected")
        if (self.format == TABLE_FORMAT) != (self.table is not None):
            raise ValueError("format: table and the table's name in table belong together")
        if (self.format == PROGRAM_FORMAT) != (self.program is not None):
            raise ValueError("format: program and module:function in program belong together")
        if self.format in (TABLE_FORMAT, PROGRAM_FORMAT) and files:
            raise ValueError(f"format: {self.format} has no path")
        if self.program is not None and (self.sql is not None or self.reader_options or self.columns is not None):
            raise ValueError("a program reads and selects by itself: sql, readerOptions and columns do not go with it")
        return self

    def _can_be_read_by_spark(self, paths_given: int) -> None:
        if self.format in SPLITS_TABLES:
            raise ValueError(
                f"format: {self.format} is read in splits, without sql and readerOptions; a table of one of Spark's catalogs is "
                "format: table"
            )
        if self.way == "Splits":
            raise ValueError(f"way: Splits cannot be: {self.why_this_way}")
        if not self.key_columns:
            raise ValueError(f"keyColumns are needed, the columns that identify a row: {self.why_this_way}")
        if self.types:
            raise ValueError(f"types belong to the splits way; cast in sql or in a step instead: {self.why_this_way}")
        if self.where is not None:
            raise ValueError(f"where belongs to the splits way; say it in sql: {self.why_this_way}")
        if paths_given > 1:
            raise ValueError("one of path and paths is expected at most")

    @model_validator(mode="after")
    def _holds_no_secret(self) -> Source:
        for name, value in self.reader_options.items():
            lower = name.lower()
            if any(word in lower for word in SECRET_WORDS) and not re.fullmatch(VARIABLE_PATTERN, value):
                raise ValueError(f"readerOptions.{name} is a secret; say ${{env:NAME}}, a variable of the driver's environment")
            text = value.lower()
            if ("password=" in text and "password=${env:" not in text) or re.search(_USER_INFO, value):
                raise ValueError(
                    f"readerOptions.{name} has a password in it; say ${{env:NAME}} in its place, a variable of the driver's "
                    "environment"
                )
        return self

    @property
    def all_paths(self) -> tuple[str, ...]:
        """The paths of files; none where a table is read."""
        return self.paths if self.path is None else (self.path,)

    @property
    def is_dataframe(self) -> bool:
        """Whether rows are known by keys and read by Spark, rather than by position and read by us."""
        return self.way == "DataFrame" or self._needs_spark is not None

    @property
    def identity(self) -> dict[str, JsonValue]:
        """What says which rows there are, and where: all but how text is read. Defaults are left out."""
        return self.without_reading(self._plain())

    def without_reading(self, plain: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Return a source, as plain data by which a write is known, without how text is read, which older releases stored too.

        Where Spark reads, options stay: what it makes of them is its own. But for the texts for NULL: objects of a cluster hold
        the default of when they were made.
        """
        options = plain.get("options")
        if not isinstance(options, dict | None):
            return plain
        if self.is_dataframe:
            says_nothing = (None, list(FIRST_NULL_VALUES))
            kept = {name: value for name, value in (options or {}).items() if name != "nullValues" or value not in says_nothing}
            return {**{name: value for name, value in plain.items() if name != "options"}, **({"options": kept} if kept else {})}
        kept = {name: value for name, value in (options or {}).items() if name not in READING_OPTIONS}
        rest = {name: value for name, value in plain.items() if name not in (*READING_FIELDS, "options")}
        return {**rest, "options": kept} if kept else rest

    @property
    def read_digest(self) -> str | None:
        """The digest of how text is read; None where nothing says that."""
        if self.format not in TEXT_FORMATS or self.is_dataframe:
            return None
        plain = {name: value for name, value in self._plain().items() if name in (*READING_FIELDS, "options")}
        return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def is_read_as(self, other: Source) -> bool:
        """Whether it is the same source, read in the same way, in splits of whatever size."""
        return self._plain() == other._plain()

    def _plain(self) -> dict[str, JsonValue]:
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"split_size"})

    @property
    def why_this_way(self) -> str:
        """Say why rows are known by keys, or by position."""
        if self._needs_spark is not None:
            return self._needs_spark
        if self.is_dataframe:
            return "way: DataFrame says so"
        what = "a table" if self.format in SPLITS_TABLES else "files"
        return f"the source is {what}, so a row is known by its file and its place in it, and needs no key"

    @property
    def _needs_spark(self) -> str | None:
        if self.format not in SPLITS_FORMATS:
            close = difflib.get_close_matches(self.format, SPLITS_FORMATS, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            return f"only Spark reads the format {self.format}{hint}, so a row is known by its keyColumns"
        if self.sql is not None:
            return "sql is Spark's, so a row is known by its keyColumns"
        if self.reader_options:
            return "readerOptions are Spark's, so a row is known by its keyColumns"
        return None


class Step(Section):
    """One Python callable, applied in the order of the list."""

    call: str = Field(
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        max_length=512,
        description="module:function, or module:Class: an instance per process, with setup() once where it has one.",
    )
    input: Literal["arrow", "pandas", "row"] = Field(
        default="arrow",
        description="What the callable takes and gives: a pyarrow.RecordBatch, a pandas.DataFrame, or one row as a dict "
        "(which may give None to drop the row, one dict, or an iterable of dicts).",
    )
    name: str | None = Field(default=None, max_length=128, description="Used in messages; the callable by default.")
    arguments: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Keyword arguments: of the function at each call, of the class when it is made. Kubernetes keeps numbers as "
        "JSON does: 1.0 arrives as 1, and digits beyond 64 bits are lost; quote what must stay as it is.",
    )
    output: Annotated[dict[str, Annotated[str, Field(max_length=1024)]], Field(min_length=1, max_length=2048)] | None = Field(
        default=None,
        exclude_if=_is_absent,
        description="The columns that the step gives, with types as in source.types: a column that is left out is NULL, another "
        "one is refused, and sink.create makes the table of these. Without it each row of a row step gives all columns.",
    )

    @property
    def label(self) -> str:
        return self.name or self.call


class IcebergSink(Section):
    """An Iceberg table."""

    catalog: str = Field(min_length=1, max_length=128, description="A catalog of the operator's (or runner's) settings.")
    table: str = Field(pattern=r"^[^.]+(\.[^.]+)+$", max_length=512, description="namespace.table, its name in the catalog.")


class LanceSink(Section):
    """A Lance dataset."""

    uri: Uri = Field(description="The dataset, e.g. s3://bucket/name.lance")

    @model_validator(mode="after")
    def _is_what_lance_reads(self) -> LanceSink:
        _refuse_escapes(self.uri)
        return self


class NoSink(Section):
    """No table: the steps run once per row, for what they do."""


class PartitionField(Section):
    """One field of the new table's partitioning."""

    column: str = Field(min_length=1, max_length=512, description="A column of the steps' output.")
    transform: Literal["identity", "year", "month", "day", "hour"] = Field(
        default="identity", description="What is made of the column's value; year to hour are for dates and timestamps."
    )


class Sink(Section):
    """Where the rows go. Immutable. Exactly one of iceberg, lance and none."""

    iceberg: IcebergSink | None = None
    lance: LanceSink | None = None
    none: NoSink | None = None
    mode: str = Field(default="append", max_length=32, description="What the commit does to the table; append only, so far.")
    create: bool = Field(default=False, description="Make the target from the steps' output if it does not exist.")
    partition_by: tuple[PartitionField, ...] = Field(
        default=(), max_length=16, description="Iceberg, with create: how the new table is partitioned."
    )
    target_file_size: Size = Field(default=256 << 20, gt=0, description="Data files are rolled near this size.")

    @model_validator(mode="after")
    def _is_one_supported_sink(self) -> Sink:
        if sum(sink is not None for sink in (self.iceberg, self.lance, self.none)) != 1:
            raise ValueError("exactly one of iceberg, lance and none is expected")
        if self.mode != "append":
            raise ValueError(f"mode {self.mode!r} is not supported; supported: append")
        if self.partition_by and self.iceberg is None:
            raise ValueError("partitionBy applies to iceberg only")
        if self.partition_by and not self.create:
            raise ValueError("partitionBy needs create: true (an existing table keeps its own partitioning)")
        if self.create and self.none is not None:
            raise ValueError("create does not apply to none")
        return self

    @property
    def identity(self) -> dict[str, JsonValue]:
        """What says which table it is, and what a commit does to it: all but how a missing one is made, and how files are cut."""
        return without_making(self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"target_file_size"}))

    @property
    def named(self) -> IcebergSink | LanceSink | NoSink:
        """The one of iceberg, lance and none that is given."""
        given = self.iceberg or self.lance or self.none
        assert given is not None, "the validator has seen one"
        return given

    @property
    def format(self) -> Literal["iceberg", "lance", "none"]:
        match self.named:
            case IcebergSink():
                return "iceberg"
            case LanceSink():
                return "lance"
            case NoSink():
                return "none"
            case other:
                assert_never(other)


def without_making(sink: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a sink, as plain data by which a write is known, without how a missing table is made; older releases stored that."""
    return {name: value for name, value in sink.items() if name not in _MAKING_FIELDS}


class CheckpointSpec(Section):
    """Where finished work is sealed, and how often. The uri is immutable."""

    uri: Uri = Field(description="A folder in an object store (s3://, gs://, az://) or on disk.")
    interval: Duration = Field(
        default=60.0,
        gt=0,
        description="A task seals what it has after this long (90s, 5m) and minimumBytes of output.",
    )
    minimum_bytes: Size = Field(
        default=8 << 20,
        description="A task seals what it has after interval and this much output, counted in memory; or after ten intervals.",
    )


class Quarantine(Section):
    """How many rows may fail, with onRowError: Quarantine, and what becomes of them in a later epoch."""

    max_rows: int = Field(
        default=1000, ge=0, le=1_000_000, description="More failed rows than these in one epoch stop it before its commit."
    )
    max_share: Share = Field(
        default=100_000,
        description="The same as a share of the epoch's rows, rounded down; of text, whose rows are not known before, when all "
        "are read. Rows that are tried again count for neither limit.",
    )
    retry: Literal["Never", "Also", "Only"] = Field(
        default="Never",
        description="Whether a later epoch (runNonce) takes the rows that earlier ones have quarantined: never; also, besides "
        "new files or rows; or only them.",
    )


class Spec(Section):
    """What a CheckpointedWrite asks for."""

    source: Source
    steps: tuple[Step, ...] = Field(
        default=(), max_length=64, description="What is done with each row, in this order. Without steps, rows are copied."
    )
    code: Code = Field(default_factory=Code)
    sink: Sink
    checkpoint: CheckpointSpec
    on_code_change: Literal["Continue", "Restart"] = Field(
        default="Continue",
        description="What becomes of sealed results when the code changes: they stay, or are dropped.",
    )
    on_replaced: Literal["Fail", "Process", "Skip"] = Field(
        default="Fail",
        description="A later epoch meets a known file with new content, or under a new name: stop, take it as new, or pass it "
        "over.",
    )
    on_row_error: Literal["Fail", "Quarantine"] = Field(
        default="Fail",
        description="A line of text cannot be read, a step raises on a row, or makes something of it that the table cannot hold: "
        "the attempt fails, or the row is set apart and the others go on. `checkpointed-write inspect` shows those that were.",
    )
    quarantine: Quarantine = Field(default_factory=Quarantine)
    run_nonce: str = Field(default="", max_length=128, description="Change it to take the files that came since the last run.")
    suspend: bool = Field(
        default=False, description="Cluster: end the driver and start none. What is sealed stays; false goes on from there."
    )
    backoff_limit: int = Field(
        default=3, ge=0, le=1000, description="Attempts in a row that may fail and seal nothing, beyond the first."
    )
    active_deadline_seconds: Annotated[Seconds, Field(ge=1)] | None = Field(
        default=None, description="Cluster: an epoch that has taken longer gets no more drivers, and waits for a person."
    )
    progress_deadline_seconds: Annotated[Seconds, Field(ge=10)] | None = Field(
        default=None,
        description="An attempt without a new seal for this long is given up for the next one. By default 20 times "
        "checkpoint.interval (a segment may take ten of them), and 600 at least; less than 20 times is refused (2 times where "
        "minimumBytes is 0).",
    )
    ttl_seconds_after_finished: Annotated[Seconds, Field(ge=0)] | None = Field(
        default=None, description="Cluster: the object is deleted this long after its commit. The table keeps the rows."
    )
    image: Annotated[str, Field(pattern=r"^\S+$", max_length=512)] | None = Field(
        default=None, description="Cluster: the image of driver and executors; the operator's default if absent."
    )
    service_account_name: ObjectName | None = Field(
        default=None, description="Cluster: the driver's ServiceAccount; the operator's default if absent."
    )
    storage_secret_name: ObjectName | None = Field(
        default=None,
        description="Cluster: a Secret in this namespace whose key storage.json has the storage settings of driver and "
        "executors; the operator's default if absent.",
    )
    driver: DriverSpec = Field(default_factory=DriverSpec)
    executor: ExecutorSpec = Field(default_factory=ExecutorSpec)
    spark_conf: dict[str, Annotated[str, Field(max_length=8192)]] = Field(
        default_factory=dict, max_length=256, description="Properties of Spark; their names start with 'spark.'."
    )

    @model_validator(mode="after")
    def _leaves_the_plan_of_spark_alone(self) -> Spec:
        for name in self.spark_conf:
            if not name.startswith("spark."):
                raise ValueError(f"sparkConf: {name!r} is not a Spark property (they start with 'spark.')")
        return self

    @model_validator(mode="after")
    def _names_each_column_once(self) -> Spec:
        # Here and not in Source, so that a record that has one stays readable.
        for field, names in (("columns", self.source.columns or ()), ("keyColumns", self.source.key_columns)):
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise ValueError(f"source.{field}: the column {twice!r} is named twice; name it once")
        return self

    @model_validator(mode="after")
    def _does_not_feed_itself(self) -> Spec:
        source, sink = self.source, self.sink
        if source.iceberg is not None and sink.iceberg is not None:
            is_same = (source.iceberg.catalog, source.iceberg.table) == (sink.iceberg.catalog, sink.iceberg.table)
        else:
            is_same = source.lance is not None and sink.lance is not None and source.lance.uri == sink.lance.uri
        if is_same:
            raise ValueError("source and sink are one table: what a run appends would be the next one's input; use another table")
        return self

    @model_validator(mode="after")
    def _leaves_time_for_a_seal(self) -> Spec:
        given, interval_s, minimum_bytes = self.progress_deadline_seconds, self.checkpoint.interval, self.checkpoint.minimum_bytes
        least_s = least_progress_deadline_s(interval_s, minimum_bytes)
        if given is not None and given < least_s:
            raise ValueError(
                f"progressDeadlineSeconds: {given} is less than {math.ceil(least_s)}, twice what a seal may take at "
                f"checkpoint.interval: {format_duration(interval_s)}: attempts at work would be given up; leave it out, or raise "
                "it, or lower the interval"
            )
        return self

    @property
    def progress_deadline_s(self) -> float:
        """After how long without a new seal an attempt is given up."""
        if self.progress_deadline_seconds is not None:
            return float(self.progress_deadline_seconds)
        return derived_progress_deadline_s(self.checkpoint.interval, self.checkpoint.minimum_bytes)

    @property
    def identity(self) -> dict[str, JsonValue]:
        """What may not change under one name: source (but for how text is read), sink and checkpoint as plain data.

        The source may, while no row of it is sealed.

        Defaults are left out, so that a field that a later version adds does not change the identity of an older write.
        """
        return {
            "source": self.source.identity,
            "sink": self.sink.identity,
            "checkpoint": {"uri": self.checkpoint.uri},
        }

    @property
    def identity_digest(self) -> str:
        text = json.dumps(self.identity, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class Metadata(Section):
    """The part of Kubernetes' object metadata that we read; the rest is passed over, as kubectl does."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[Label, Field(max_length=MAX_NAME_LENGTH)]
    namespace: Label = "default"


class CheckpointedWrite(Section):
    """A whole manifest."""

    api_version: Literal["checkpointed.dev/v1alpha1"]
    kind: Literal["CheckpointedWrite"]
    metadata: Metadata
    spec: Spec


class ManifestInvalid(NeedsChange):
    """The manifest is wrong; `problems` has one line a problem, each starting with the field's path."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__(reasons.MANIFEST_INVALID, "; ".join(problems))
        self.problems = problems


def parse_manifest(document: Any) -> CheckpointedWrite:
    """Return the manifest in a parsed YAML or JSON document; ManifestInvalid lists all that is wrong with it."""
    if not isinstance(document, dict):
        raise ManifestInvalid((f"a {KIND} manifest is expected (a mapping), not {type(document).__name__}",))
    if document.get("kind") != KIND or document.get("apiVersion") != API_VERSION:
        found = f"{document.get('apiVersion')!r} {document.get('kind')!r}"
        raise ManifestInvalid((f"apiVersion: {API_VERSION} and kind: {KIND} are expected, not {found}",))
    return validate_model(CheckpointedWrite, document)


def validate_model(model: type[_Model], document: Any) -> _Model:
    """Validate plain data from YAML against a strict model; ManifestInvalid lists each problem with its field path."""
    try:
        # Through JSON, so that lists serve as tuples while numbers in quotes stay errors.
        text = json.dumps(document, default=_refuse_yaml_type, allow_nan=False)
    except (TypeError, ValueError) as error:  # .nan and .inf, a list as a key, an anchor inside itself
        raise ManifestInvalid((f"(top level): a value cannot be written as JSON: {error}",)) from None
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise ManifestInvalid(tuple(_explain(model, problem) for problem in error.errors(include_url=False))) from None


def _refuse_yaml_type(value: object) -> str:
    # YAML turns 2024-01-01 into a date; the user meant text, and JSON has no dates.
    return str(value)


def _explain(model: type[BaseModel], problem: Any) -> str:
    location = problem["loc"]
    path = place_of(problem) or "(top level)"
    message = text_of(problem)
    if problem["type"] == "extra_forbidden":
        known = _field_names(model, location[:-1])
        close = difflib.get_close_matches(str(location[-1]), known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known here: {', '.join(sorted(known))}"
        message += hint
    return f"{path}: {message}"


def _field_names(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the aliases that are allowed in the section at this place of the manifest."""
    current: type[BaseModel] | None = model
    for part in location:
        if isinstance(part, int) or current is None or part.startswith(UNION_MARK):
            continue
        current = next(
            (_section_of(field.annotation) for name, field in current.model_fields.items() if part in (name, field.alias)),
            None,
        )
    return [field.alias or name for name, field in current.model_fields.items()] if current else []


def _section_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if (section := _section_of(inner)) is not None:
            return section
    return None
