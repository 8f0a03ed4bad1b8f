"""The part of a manifest that says where the rows come from: exactly one of seven, as with the volumes of a pod.

Rows of files, Iceberg tables and Lance datasets (and of a union of these), and of Kafka topics, are identified by their position;
rows that Spark or a program of the user's reads, by the values of their keyColumns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, JsonValue

from checkpoint_protocol import reasons
from checkpoint_protocol.manifest.quantities import Size
from checkpoint_protocol.manifest.rules import Rule, count_of_given, exactly_one_of, is_given, none_is, text
from checkpoint_protocol.manifest.sections import Section, SparkPath, Uri, is_absent
from checkpoint_protocol.manifest.sources.kafka_source import EDITABLE_FIELDS as EDITABLE_KAFKA_FIELDS
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.manifest.sources.stream_source import ProgramStream
from checkpoint_protocol.tables.iceberg import IcebergTableName
from checkpoint_protocol.tables.lance import LanceDatasetPlace

#: In an option's name these say that its value is a secret, ...
_SECRET_NAME: Final = r"(?i)password|passwd|passphrase|pwd|secret|token|credential|api[_.]?key"  # noqa: S105 a pattern
#: ... which is then the name of a variable of the driver's environment, and stands in no manifest and no record.
VARIABLE_PATTERN: Final = r"\$\{env:[A-Za-z_][A-Za-z0-9_]*\}"
#: Texts that other systems write for NULL. CSV takes none of them for NULL unless the manifest says so.
WORDS_FOR_NULL: Final = ("", "NA", "null", "NULL")
#: What of files may be edited while a write runs: none of it says which rows there are, or where.
READING_FIELDS: Final = ("types", "schema")
READING_CSV_FIELDS: Final = ("nullValues", "delimiter", "quote")
DEFAULT_SPLIT_SIZE: Final = 128 << 20
MOST_MEMBERS: Final = 16
#: user:password@host
_USER_INFO: Final = r"://[^/@:$]*:[^/@$]+@"

ColumnName = Annotated[str, Field(max_length=512)]
KeyColumns = Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=16)]


class CsvOptions(Section):
    """How to read CSV."""

    header: bool = Field(default=True, description="The first line of each file names the columns.")
    delimiter: str = Field(default=",", min_length=1, max_length=1, description="The character between fields.")
    quote: str = Field(default='"', max_length=1, description="The character around fields; empty for none.")
    escape: str = Field(default="", max_length=1, description="The character that escapes a special character; empty for none.")
    null_values: tuple[Annotated[str, Field(max_length=256)], ...] = Field(
        default=("",),
        max_length=64,
        description="Texts that mean NULL when they are not quoted. By default only the empty field does: NA, null and NULL "
        "are texts unless they are listed.",
    )
    multi_line: bool = Field(
        default=False,
        description="Fields may contain line breaks. Each file is then read from its start by a single task.",
    )

    def problems(self) -> dict[str, str]:
        """Return what is wrong with a character, by the name of its field. Objects of a cluster, and records, may hold it."""
        found = {}
        for name in ("delimiter", "quote", "escape"):
            text = getattr(self, name)
            if not text.isascii() or text in ("\r", "\n"):
                found[name] = "one ASCII character is expected, and no line break"
            elif name != "delimiter" and text == self.delimiter:
                found[name] = f"{text!r} is the delimiter too; correct one of them, or set {name}: '' if there is none"
        return found


class FilesSource(Section):
    """Files on this machine or in an object store. A row is identified by its file and by its position in that file."""

    kind: ClassVar[str] = "files"

    format: Literal["parquet", "csv", "json", "binary"] = Field(
        description="json: one JSON object per line. binary: one row per file, with the columns path, size, etag, modified "
        "and content."
    )
    paths: Annotated[tuple[Uri, ...], Field(min_length=1, max_length=1024)] = Field(
        description="Files, folders, and patterns, which start with s3://, gs:// or az:// or are on this machine. Wildcards: * "
        "and ? within a name, ** for any number of folders. [*], [?] and [[] mean these characters themselves."
    )
    csv: CsvOptions | None = Field(default=None, exclude_if=is_absent, description="How to read CSV.")
    compression: Literal["Auto", "None", "Gzip"] = Field(
        default="Auto",
        description="For CSV and JSON. Auto: files that end with .gz are read as gzip. Each compressed file is read by a "
        "single task.",
    )
    types: dict[str, Annotated[str, Field(max_length=1024)]] = Field(
        default_factory=dict,
        max_length=2048,
        description="For CSV, JSON, and columns from folders key=value: the type of a column if the inferred type is not "
        "right, e.g. int64, string, timestamp[us], decimal(10,2).",
    )
    schema_rule: Literal["Unite", "Same"] = Field(
        default="Unite",
        alias="schema",
        description="What happens if files have different columns. Unite: the columns are merged by name, as with Spark's "
        "mergeSchema; a column that a file lacks is NULL there, and a narrower type becomes the wider one. Same: such files "
        "are refused.",
    )
    partitions: Literal["Auto", "Ignore"] = Field(
        default="Auto",
        description="What happens to folders key=value in the path of a file. Auto: they become columns, with the types that "
        "CSV would infer. Ignore: they do not.",
    )
    split_size: Size = Field(default=DEFAULT_SPLIT_SIZE, gt=0, description="The most bytes of input in one split.")

    rules: ClassVar = (
        Rule(f"!{is_given('csv')} || self.format == 'csv'", "csv belongs to format: csv; leave it out", "csv"),
        Rule(
            "self.format in ['csv', 'json'] || self.partitions == 'Auto' || self.types.size() == 0",
            "types belong to CSV and JSON: Parquet files have types of their own, and so have the columns of binary files; "
            "leave them out, or cast in a step",
            "types",
        ),
        Rule(
            "self.format in ['csv', 'json'] || self.compression == 'Auto'",
            "compression belongs to CSV and JSON: a Parquet file says how it is compressed, and the content of binary files "
            "is taken as it is; leave it out",
            "compression",
        ),
    )

    @property
    def title(self) -> None:
        """No table."""
        return None

    @property
    def uris(self) -> Mapping[str, str]:
        return {f"paths.{number}": path for number, path in enumerate(self.paths)}

    def with_uris(self, change: Callable[[str], str]) -> FilesSource:
        return self.model_copy(update={"paths": tuple(change(path) for path in self.paths)})

    @property
    def row_position(self) -> str:
        """By what a row is known, as people read it."""
        if self.format == "binary":
            return "file"
        return "file and " + ("byte" if self.is_text else "row number") + " in it"

    @property
    def csv_options(self) -> CsvOptions:
        return self.csv or CsvOptions()

    @property
    def is_text(self) -> bool:
        return self.format in ("csv", "json")


class IcebergSource(IcebergTableName):
    """An Iceberg table, at the snapshot that is current when the epoch's first attempt is recorded."""

    snapshot_id: int | None = Field(
        default=None, ge=0, exclude_if=is_absent, description="Read this snapshot, even if the table has newer ones."
    )
    branch: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        default=None, exclude_if=is_absent, description="Read the head of this branch or tag, instead of main."
    )
    split_size: Size = Field(default=DEFAULT_SPLIT_SIZE, gt=0, description="The most bytes of input in one split.")

    rules: ClassVar = (
        Rule(f"{count_of_given('snapshotId', 'branch')} <= 1", "at most one of snapshotId and branch is expected"),
    )

    @property
    def row_position(self) -> str:
        return "data file and row number in it, at the snapshot that the first attempt finds"


class LanceSource(LanceDatasetPlace):
    """A Lance dataset, at the version that is current when the epoch's first driver lists its fragments."""

    missing: ClassVar[str] = reasons.SOURCE_MISSING

    version: int | None = Field(
        default=None, ge=1, exclude_if=is_absent, description="Read this version, even if the dataset has newer ones."
    )
    split_size: Size = Field(default=DEFAULT_SPLIT_SIZE, gt=0, description="The most bytes of input in one split.")

    @property
    def row_position(self) -> str:
        return "fragment and row number in it, at the version that the first attempt finds"


class SparkSource(Section):
    """Anything that Spark can read. A row is identified by the values of keyColumns."""

    format: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$", max_length=128)] | None = Field(
        default=None, exclude_if=is_absent, description="A data source of Spark: jdbc, orc, avro, text, delta, parquet, ..."
    )
    table: Annotated[str, Field(pattern=r"^\S+$", max_length=512)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Instead of format: a table in one of Spark's catalogs, as catalog.namespace.table.",
    )
    paths: tuple[SparkPath, ...] = Field(
        default=(), max_length=1024, description="The paths to load, for formats that have paths."
    )
    options: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict,
        max_length=64,
        description="Options of the Spark reader, e.g. url, dbtable and partitionColumn for jdbc. Write ${env:NAME} to insert "
        "an environment variable of the driver; secrets can be passed in no other way.",
    )
    sql: Annotated[str, Field(min_length=1, max_length=32768)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="A Spark SQL query between the source and the steps, e.g. SELECT id, upper(a) AS a FROM input.",
    )
    key_columns: KeyColumns = Field(
        description="The columns that identify a row. Together they must be unique, and none may be NULL."
    )

    rules: ClassVar = (
        exactly_one_of("format", "table"),
        Rule(
            f"!{is_given('table')} || self.paths.size() == 0",
            "a table has no paths; leave them out, or name a format instead of the table",
            "paths",
        ),
        none_is(
            f"one.matches({text(_SECRET_NAME)}) && !self.options[one].matches({text(f'^{VARIABLE_PATTERN}$')})",
            "self.options",
            "{} is a secret; say ${env:NAME}, a variable of the driver's environment",
            "options",
        ),
        none_is(
            "(self.options[one].matches('(?i)password=') && !self.options[one].matches('(?i)password=[$]{env:')) || "
            f"self.options[one].matches({text(_USER_INFO)})",
            "self.options",
            "{} has a password in it; say ${env:NAME} in its place, a variable of the driver's environment",
            "options",
        ),
    )


class ProgramSource(Section):
    """A program of yours that reads with Spark. Rows are identified by the values of keyColumns, or they belong to a stream."""

    call: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", max_length=512)] = Field(
        description="module:function. The function receives a job with spark, read(dataframe) and write(dataframe), or with "
        "stream(dataframe)."
    )
    key_columns: KeyColumns | None = Field(
        default=None,
        exclude_if=is_absent,
        description="The columns that identify a row. Together they must be unique, and none may be NULL. Not allowed with "
        "stream.",
    )
    stream: ProgramStream | None = Field(
        default=None,
        exclude_if=is_absent,
        description="The program passes a streaming DataFrame to job.stream. Each micro-batch is one epoch, and one commit.",
    )

    rules: ClassVar = (exactly_one_of("keyColumns", "stream"),)


Positional = FilesSource | IcebergSource | LanceSource | KafkaSource
#: What may be text, whose types the manifest may name.
Text = FilesSource | KafkaSource
Keyed = SparkSource | ProgramSource


_NOT_IN_A_UNION: Final = (
    "it cannot be a member of a union (files, iceberg and lance can); give it a write of its own into the table"
)


class UnionMember(Section):
    """One source of a union: exactly one of files, iceberg and lance."""

    files: FilesSource | None = Field(default=None, exclude_if=is_absent)
    iceberg: IcebergSource | None = Field(default=None, exclude_if=is_absent)
    lance: LanceSource | None = Field(default=None, exclude_if=is_absent)

    rules: ClassVar = (exactly_one_of("files", "iceberg", "lance"),)
    not_here: ClassVar = dict.fromkeys(("kafka", "spark", "program", "union"), _NOT_IN_A_UNION)

    @property
    def named(self) -> FilesSource | IcebergSource | LanceSource:
        given = self.files or self.iceberg or self.lance
        assert given is not None, "the validator has seen one"
        return given


class Source(Section):
    """Where the rows come from. Immutable once rows of it are sealed, except for how text is read."""

    files: FilesSource | None = Field(default=None, exclude_if=is_absent)
    iceberg: IcebergSource | None = Field(default=None, exclude_if=is_absent)
    lance: LanceSource | None = Field(default=None, exclude_if=is_absent)
    kafka: KafkaSource | None = Field(default=None, exclude_if=is_absent)
    spark: SparkSource | None = Field(default=None, exclude_if=is_absent)
    program: ProgramSource | None = Field(default=None, exclude_if=is_absent)
    union: Annotated[tuple[UnionMember, ...], Field(min_length=2, max_length=MOST_MEMBERS)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Several sources (files, iceberg or lance), which are read one after another. Their columns are merged by "
        "name. Rows of different sources are never taken for the same row.",
    )
    columns: Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=2048)] | None = Field(
        default=None, exclude_if=is_absent, description="Read only these columns."
    )
    where: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Read only the rows for which this condition is true, e.g. day >= '2026-01-01' and not (code in (3, 4) or "
        "x is null)",
    )

    changes: Literal["Fail", "Upserts"] = Field(
        default="Fail",
        description="For a table: what a later epoch does if rows that an earlier epoch has taken were changed or deleted. "
        "Fail: the write stops (see onReplaced). Upserts: it takes new rows and changed rows, for sink.mode Upsert. Rows that "
        "were deleted stay in the sink. A Lance dataset must have stable row ids, an Iceberg table format version 3.",
    )

    rules: ClassVar = (
        exactly_one_of("files", "iceberg", "lance", "kafka", "spark", "program", "union"),
        Rule(
            f"self.changes == 'Fail' || {is_given('lance')} || {is_given('iceberg')}",
            "changes: Upserts applies to source.lance and source.iceberg; leave it out",
            "changes",
        ),
        Rule(
            f"!{is_given('where')} || !({is_given('spark')} || {is_given('program')})",
            "where does not go with spark and program; say it in sql, or in the program",
            "where",
        ),
        Rule(
            f"!{is_given('columns')} || !{is_given('program')}",
            "columns do not go with program: it selects by itself",
            "columns",
        ),
    )

    @property
    def members(self) -> tuple[Positional, ...]:
        """The sources whose rows are identified by position: one, or those of a union; none where rows are identified by key."""
        if self.union is not None:
            return tuple(member.named for member in self.union)
        one = self.files or self.iceberg or self.lance or self.kafka
        return () if one is None else (one,)

    @property
    def keyed(self) -> Keyed | None:
        """The source whose rows are identified by key, if it is one."""
        return self.spark or (self.program if self.stream is None else None)

    @property
    def stream(self) -> ProgramStream | None:
        """What is said of the stream, if it is one: its rows are known by nothing, and each micro-batch is done as a whole."""
        return self.program.stream if self.program is not None else None

    @property
    def key_columns(self) -> tuple[str, ...]:
        return () if self.keyed is None else self.keyed.key_columns or ()

    @property
    def row_identity(self) -> str:
        """By what a row is known from one attempt to the next, as people read it."""
        if self.keyed is not None:
            return f"key ({', '.join(self.key_columns)})"
        if self.stream is not None:
            return "micro-batch, which is done as a whole"
        return "position in its file" if self.kafka is None else "offset in its partition"

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths that are read as files."""
        spark = () if self.spark is None else self.spark.paths
        return (*spark, *(path for member in self.members if isinstance(member, FilesSource) for path in member.paths))

    @property
    def split_size(self) -> int:
        """The most bytes of one split; of a union, the smallest of its members' counts."""
        return min((member.split_size for member in self.members), default=DEFAULT_SPLIT_SIZE)

    @property
    def identity(self) -> dict[str, JsonValue]:
        """What says which rows there are, and where: all but how text is read. Defaults are left out."""
        return without_reading(self._plain())

    @property
    def read_digest(self) -> str | None:
        """The digest of how text is read; None where there is no text."""
        if not any(isinstance(member, Text) and member.is_text for member in self.members):
            return None
        plain = [_reading(member) if isinstance(member, Text) else None for member in self.members]
        return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def is_read_as(self, other: Source) -> bool:
        """Whether it is the same source, read in the same way, in splits of whatever size."""
        return self._plain() == other._plain()

    def _plain(self) -> dict[str, JsonValue]:
        plain = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        plain.pop("changes", None)  # of what an earlier epoch has taken, and no row of its own
        for member in _plain_members(plain):
            for section in member.values():
                if isinstance(section, dict):
                    section.pop("splitSize", None)
                    if section.get("csv") == {}:  # spelled out, and nothing but defaults
                        section.pop("csv")
        return plain


def without_reading(plain: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a source, as plain data by which a write is known, without how text is read."""
    found: dict[str, JsonValue] = json.loads(json.dumps(plain))
    for member in _plain_members(found):
        kafka = member.get("kafka")
        if isinstance(kafka, dict):
            for field in EDITABLE_KAFKA_FIELDS:
                kafka.pop(field, None)
        files = member.get("files")
        if not isinstance(files, dict):
            continue
        for field in READING_FIELDS:
            files.pop(field, None)
        csv = files.get("csv")
        if isinstance(csv, dict):
            kept = {name: value for name, value in csv.items() if name not in READING_CSV_FIELDS}
            files.pop("csv")
            if kept:
                files["csv"] = kept
    return found


def _plain_members(plain: dict[str, JsonValue]) -> list[dict[str, JsonValue]]:
    union = plain.get("union")
    members = union if isinstance(union, list) else []
    return [plain, *(member for member in members if isinstance(member, dict))]


def _reading(text: FilesSource | KafkaSource) -> JsonValue:
    plain = text.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {name: plain[name] for name in ("types", "csv", "compression") if plain.get(name)}
