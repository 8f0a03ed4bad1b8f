"""The part of a manifest that says where the rows come from: exactly one of six, as with the volumes of a pod.

Rows of files, Iceberg tables and Lance datasets (and of a union of these) are identified by their position; rows that Spark or a
program of the user's reads, by the values of their keyColumns.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue, model_validator

from checkpoint_protocol.quantities import Size
from checkpoint_protocol.sections import Section, SparkPath, Uri, is_absent, refuse_escapes

#: In an option's name these say that its value is a secret, ...
SECRET_WORDS: Final = ("password", "secret", "token", "credential")
#: ... which is then the name of a variable of the driver's environment, and stands in no manifest and no record.
VARIABLE_PATTERN: Final = r"\$\{env:[A-Za-z_][A-Za-z0-9_]*\}"
#: What CSV took for NULL in the first release where the manifest said nothing.
FIRST_NULL_VALUES: Final = ("", "NA", "null", "NULL")
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
    escape: str = Field(default="", max_length=1, description="The character before a special one; empty for none.")
    null_values: tuple[Annotated[str, Field(max_length=256)], ...] = Field(
        default=("",),
        max_length=64,
        description="Texts that mean NULL when not quoted: the empty field. NA, null and NULL are texts unless named.",
    )
    multi_line: bool = Field(
        default=False,
        description="Fields may contain line breaks. Such files are read from their start by one task each.",
    )


class FilesSource(Section):
    """Files on this machine or in an object store. A row is identified by its file and its position in it."""

    format: Literal["parquet", "csv", "json"] = Field(description="json is one JSON object a line.")
    paths: Annotated[tuple[Uri, ...], Field(min_length=1, max_length=1024)] = Field(
        description="Files, folders and patterns with *: s3://, gs://, az://, or on this machine."
    )
    csv: CsvOptions | None = Field(default=None, exclude_if=is_absent, description="How to read CSV.")
    compression: Literal["Auto", "None", "Gzip"] = Field(
        default="Auto", description="CSV and JSON: Auto takes .gz as gzip. Compressed files are read by one task each."
    )
    types: dict[str, Annotated[str, Field(max_length=1024)]] = Field(
        default_factory=dict,
        max_length=2048,
        description="CSV and JSON: the type of a column where the inferred one is not right, e.g. int64, string, "
        "timestamp[us], decimal(10,2).",
    )
    schema_rule: Literal["Unite", "Same"] = Field(
        default="Unite",
        alias="schema",
        description="Files with different columns: Unite them by name, as Spark's mergeSchema does (a column that a file does "
        "not have is NULL there, and a narrower type becomes the wider one), or refuse what is not the Same.",
    )
    split_size: Size = Field(default=DEFAULT_SPLIT_SIZE, gt=0, description="The most bytes of input of one split.")

    @model_validator(mode="after")
    def _says_of_text_what_is_of_text(self) -> FilesSource:
        if self.csv is not None and self.format != "csv":
            raise ValueError(f"csv belongs to format: csv, and the format is {self.format}; leave it out")
        if self.format == "parquet" and self.types:
            raise ValueError(
                "types belong to CSV and JSON: Parquet files have types of their own; leave them out, or cast in a step"
            )
        if self.format == "parquet" and self.compression != "Auto":
            raise ValueError("compression belongs to CSV and JSON: a Parquet file says how it is compressed; leave it out")
        return self

    @property
    def csv_options(self) -> CsvOptions:
        return self.csv or CsvOptions()

    @property
    def is_text(self) -> bool:
        return self.format != "parquet"


class IcebergSource(Section):
    """An Iceberg table as it is when the epoch's first attempt is recorded."""

    catalog: str = Field(min_length=1, max_length=128, description="A catalog of the operator's (or runner's) settings.")
    table: str = Field(pattern=r"^[^.]+(\.[^.]+)+$", max_length=512, description="namespace.table, its name in the catalog.")
    snapshot_id: int | None = Field(
        default=None, ge=0, exclude_if=is_absent, description="This snapshot, whatever came after it."
    )
    branch: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        default=None, exclude_if=is_absent, description="The head of this branch or tag, instead of main's."
    )
    split_size: Size = Field(default=DEFAULT_SPLIT_SIZE, gt=0, description="The most bytes of input of one split.")

    @model_validator(mode="after")
    def _names_one_snapshot(self) -> IcebergSource:
        if self.snapshot_id is not None and self.branch is not None:
            raise ValueError("at most one of snapshotId and branch is expected")
        return self


class LanceSource(Section):
    """A Lance dataset as it is when the epoch's first driver lists its fragments."""

    uri: Uri = Field(description="The dataset, e.g. s3://bucket/name.lance")
    version: int | None = Field(default=None, ge=1, exclude_if=is_absent, description="This version, whatever came after it.")
    split_size: Size = Field(default=DEFAULT_SPLIT_SIZE, gt=0, description="The most bytes of input of one split.")

    @model_validator(mode="after")
    def _is_what_lance_reads(self) -> LanceSource:
        refuse_escapes(self.uri)
        return self


class SparkSource(Section):
    """Anything that Spark reads. A row is identified by the values of keyColumns."""

    format: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$", max_length=128)] | None = Field(
        default=None, exclude_if=is_absent, description="A format of Spark's: jdbc, orc, avro, text, delta, parquet, ..."
    )
    table: Annotated[str, Field(pattern=r"^\S+$", max_length=512)] | None = Field(
        default=None, exclude_if=is_absent, description="A table of one of Spark's catalogs instead: catalog.namespace.table."
    )
    paths: tuple[SparkPath, ...] = Field(
        default=(), max_length=1024, description="What the format is to load, where it has paths."
    )
    options: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict,
        max_length=64,
        description="Options of Spark's reader, e.g. url, dbtable and partitionColumn of jdbc. ${env:NAME} stands for a variable "
        "of the driver's environment; secrets are given in no other way.",
    )
    sql: Annotated[str, Field(min_length=1, max_length=32768)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Spark SQL between the source and the steps, e.g. SELECT id, upper(a) AS a FROM input.",
    )
    key_columns: KeyColumns = Field(description="Columns that identify a row: unique, never NULL.")

    @model_validator(mode="after")
    def _is_one_thing(self) -> SparkSource:
        if (self.format is None) == (self.table is None):
            raise ValueError("exactly one of format and table is expected")
        if self.table is not None and self.paths:
            raise ValueError("a table has no paths; leave them out, or name a format instead of the table")
        return self

    @model_validator(mode="after")
    def _holds_no_secret(self) -> SparkSource:
        for name, value in self.options.items():
            lower = name.lower()
            if any(word in lower for word in SECRET_WORDS) and not re.fullmatch(VARIABLE_PATTERN, value):
                raise ValueError(f"options.{name} is a secret; say ${{env:NAME}}, a variable of the driver's environment")
            text = value.lower()
            if ("password=" in text and "password=${env:" not in text) or re.search(_USER_INFO, value):
                raise ValueError(
                    f"options.{name} has a password in it; say ${{env:NAME}} in its place, a variable of the driver's environment"
                )
        return self


class ProgramSource(Section):
    """What a program of the user's reads with Spark. A row is identified by the values of keyColumns."""

    call: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", max_length=512)] = Field(
        description="module:function; it is given a job with spark, read(dataframe) and write(dataframe)."
    )
    key_columns: KeyColumns = Field(description="Columns that identify a row: unique, never NULL.")


Positional = FilesSource | IcebergSource | LanceSource
Keyed = SparkSource | ProgramSource


class UnionMember(Section):
    """One source of a union. Exactly one of files, iceberg and lance."""

    files: FilesSource | None = Field(default=None, exclude_if=is_absent)
    iceberg: IcebergSource | None = Field(default=None, exclude_if=is_absent)
    lance: LanceSource | None = Field(default=None, exclude_if=is_absent)

    @model_validator(mode="after")
    def _is_one(self) -> UnionMember:
        if sum(given is not None for given in (self.files, self.iceberg, self.lance)) != 1:
            raise ValueError("exactly one of files, iceberg and lance is expected")
        return self

    @property
    def named(self) -> Positional:
        given = self.files or self.iceberg or self.lance
        assert given is not None, "the validator has seen one"
        return given


class Source(Section):
    """Where the rows come from. Immutable once rows of it are sealed, but for how text is read."""

    files: FilesSource | None = Field(default=None, exclude_if=is_absent)
    iceberg: IcebergSource | None = Field(default=None, exclude_if=is_absent)
    lance: LanceSource | None = Field(default=None, exclude_if=is_absent)
    spark: SparkSource | None = Field(default=None, exclude_if=is_absent)
    program: ProgramSource | None = Field(default=None, exclude_if=is_absent)
    union: Annotated[tuple[UnionMember, ...], Field(min_length=2, max_length=MOST_MEMBERS)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Several of files, iceberg and lance, one after the other. Their columns are united by name; a row of one is "
        "never taken for a row of another.",
    )
    columns: Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=2048)] | None = Field(
        default=None, exclude_if=is_absent, description="Read these columns only."
    )
    where: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Take only the rows for which this is true, e.g. day >= '2026-01-01' and not (code in (3, 4) or x is null)",
    )

    @model_validator(mode="after")
    def _is_one(self) -> Source:
        given = (self.files, self.iceberg, self.lance, self.spark, self.program, self.union)
        if sum(one is not None for one in given) != 1:
            raise ValueError("exactly one of files, iceberg, lance, spark, program and union is expected")
        if self.where is not None and self.keyed is not None:
            raise ValueError("where does not go with spark and program; say it in sql, or in the program")
        if self.columns is not None and self.program is not None:
            raise ValueError("columns do not go with program: it selects by itself")
        return self

    @property
    def members(self) -> tuple[Positional, ...]:
        """The sources whose rows are identified by position: one, or those of a union; none where rows are identified by key."""
        if self.union is not None:
            return tuple(member.named for member in self.union)
        one = self.files or self.iceberg or self.lance
        return () if one is None else (one,)

    @property
    def keyed(self) -> Keyed | None:
        """The source whose rows are identified by key, if it is one."""
        return self.spark or self.program

    @property
    def key_columns(self) -> tuple[str, ...]:
        return () if self.keyed is None else self.keyed.key_columns

    @property
    def row_identity(self) -> str:
        """By what a row is known from one attempt to the next, as people read it."""
        return f"key ({', '.join(self.key_columns)})" if self.keyed is not None else "position in its file"

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
        if not any(isinstance(member, FilesSource) and member.is_text for member in self.members):
            return None
        plain = [_reading(member) if isinstance(member, FilesSource) else None for member in self.members]
        return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def is_read_as(self, other: Source) -> bool:
        """Whether it is the same source, read in the same way, in splits of whatever size."""
        return self._plain() == other._plain()

    def _plain(self) -> dict[str, JsonValue]:
        plain = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
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


def _reading(files: FilesSource) -> JsonValue:
    plain = files.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {name: plain[name] for name in ("types", "csv", "compression") if plain.get(name)}
