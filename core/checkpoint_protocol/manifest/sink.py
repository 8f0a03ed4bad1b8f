"""The part of a manifest that says where the rows go, and what the commit does to the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, get_args

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.quantities import Size
from checkpoint_protocol.manifest.sections import Section, is_absent
from checkpoint_protocol.manifest.steps import CALL_PATTERN
from checkpoint_protocol.manifest.where import as_of_the_sink, parse_where
from checkpoint_protocol.records.formats.union import SinkChoice, SinkKind
from checkpoint_protocol.tables import OVERWRITING, Mode, OnDuplicate, WhenMatched
from checkpoint_protocol.tables.lance import LanceLayout

_FILE_SIZE_BYTES: Final = 256 << 20
#: As Iceberg writes them in the metadata of a table.
_TRANSFORM: Final = r"^(identity|year|month|day|hour|bucket\[[1-9][0-9]{0,8}\]|truncate\[[1-9][0-9]{0,8}\])$"
#: The names of the kinds of sinks, of which a manifest names one.
SINKS: Final = tuple(SinkChoice.model_fields)
#: What of a sink counts only where the table is missing.
_MAKING_FIELDS: Final = ("create", "partitionBy")
#: What may be edited while a write runs, beside what the section of its kind says.
_EDITABLE: Final = ("target_file_size", "verify", "on_concurrent", "on_duplicate", "order_by", "audit")


#: In the order of how much is looked at.
Verify = Literal["Seals", "SampledFooters", "Footers"]
#: What can be done to a table of each kind.
MODES: Final[Mapping[str, tuple[Mode, ...]]] = {kind.kind: kind.modes for kind in get_args(SinkKind)}
#: The kinds whose tables can hold rows that readers do not see yet.
AUDITED: Final = tuple(kind.kind for kind in get_args(SinkKind) if kind.has_audit)


ColumnName = Annotated[str, Field(min_length=1, max_length=512)]


class PartitionField(Section):
    """One partition field of the new table."""

    column: str = Field(min_length=1, max_length=512, description="A column of the output of the steps.")
    transform: str = Field(
        default="identity",
        pattern=_TRANSFORM,
        max_length=32,
        description="The partition transform, in Iceberg's spelling: identity, year, month, day, hour, bucket[16] or "
        "truncate[4]. The transforms from year to hour apply to dates and timestamps.",
    )


class Sink(SinkChoice):
    """Where the rows go: exactly one of iceberg, lance and none. Immutable."""

    mode: Mode = Field(
        default="Append",
        description="What the commit does to the table. Append: it adds the rows. OverwriteAll: it replaces all rows of the "
        "table. OverwriteWhere: it replaces the rows for which sink.where is true. OverwritePartitions: it replaces all rows "
        "in the partitions that the new rows belong to. With these three modes each epoch reads the whole source. Upsert: "
        "each row replaces the rows with the same key, or is added if there are none. AddColumns: existing rows get values in "
        "sink.columns, and are otherwise unchanged; the source must be the same dataset as the sink.",
    )
    where: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None,
        description="For OverwriteWhere: the condition that selects the rows of the table to replace, e.g. day = '2026-11-24' "
        "and country in ('DE', 'FR'). The condition must also be true for each row of the output.",
    )
    on_concurrent: Literal["Fail", "Replace"] = Field(
        default="Fail",
        description="For the overwriting modes: what happens if another writer has added rows to the part of the table that "
        "is replaced, since the epoch began. Fail: nothing is committed. Replace: those rows are replaced too.",
    )
    upsert_keys: Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        description="For Upsert: the key columns. A row of the output and a row of the table match if they have the same "
        "values in these columns. The values must not be NULL.",
    )
    when_matched: WhenMatched = Field(
        default="Update",
        description="For Upsert: what happens to rows of the table whose key is in the output. Update: the row of the output "
        "replaces them. Delete: they are deleted, and nothing is added. Ignore: they stay, and only rows with new keys are "
        "added.",
    )
    on_duplicate: OnDuplicate = Field(
        default="Fail",
        description="For Upsert: what happens if several rows of the output have the same key. Fail: nothing is committed. "
        "Last: the row with the largest value of orderBy counts.",
    )
    order_by: ColumnName | None = Field(
        default=None, description="For onDuplicate Last: the column of the output whose largest value counts."
    )
    columns: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=512)], ...], Field(max_length=64)] = Field(
        default=(),
        description="For AddColumns: the columns that receive the output of the steps. Columns that the dataset does not have "
        "are added to it.",
    )
    # YAML reads Null as no value, and so does Kubernetes, which then puts the default.
    only: Annotated[Literal["Null", "All"], BeforeValidator(lambda value: "Null" if value is None else value)] = Field(
        default="Null",
        description="For AddColumns: which rows the steps receive. Null: rows in which all of sink.columns are NULL. All: all "
        "rows; existing values are replaced, with NULL where the steps return nothing.",
    )
    create: bool = Field(default=False, description="Create the target from the output of the steps if it does not exist.")
    partition_by: tuple[PartitionField, ...] = Field(
        default=(), max_length=16, description="For Iceberg, with create: how the new table is partitioned."
    )
    target_file_size: Size | None = Field(
        default=None,
        gt=0,
        description="The approximate size at which a data file is closed and the next one begins. Default: the table's own "
        "setting (for Iceberg, write.target-file-size-bytes), else 256Mi.",
    )
    verify: Verify = Field(
        default="Seals",
        description="What the commit checks. Seals: that the seals of the drivers are plausible. Footers: also that the row "
        "count in the footer of each data file is the sealed one; each footer is read for this. SampledFooters: the same for "
        "one data file in twenty. In a cluster the operator's configuration sets the minimum, which is Footers unless the "
        "installer has chosen another.",
    )

    audit: Annotated[str, Field(pattern=CALL_PATTERN, max_length=512)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="For Iceberg: a function of the code (module:function) that checks the rows before readers see them. It "
        "receives the table as it would be after the commit. If it returns nothing, the rows are published. If it raises an "
        "exception or returns a text, the write stops, with that as the reason.",
    )

    @model_validator(mode="after")
    def _is_one_supported_sink(self) -> Sink:
        if sum(getattr(self, kind) is not None for kind in SINKS) != 1:
            raise ValueError(f"exactly one of {', '.join(SINKS[:-1])} and {SINKS[-1]} is expected")
        if self.mode not in (modes := self.named.modes):
            raise ValueError(f"mode {self.mode} does not apply to {self.format}, which has {', '.join(modes)}")
        if (self.where is not None) != (self.mode == "OverwriteWhere"):
            raise ValueError("where is expected with mode OverwriteWhere, and with no other")
        if self.where is not None:
            try:
                with as_of_the_sink():
                    parse_where(self.where)
            except NeedsChange as error:
                raise ValueError(error.message.partition(": ")[2]) from None
        if self.on_concurrent != "Fail" and self.mode not in OVERWRITING:
            raise ValueError(f"onConcurrent applies to the modes {', '.join(sorted(OVERWRITING))}")
        if self.audit is not None and self.format not in AUDITED:
            raise ValueError(
                f"audit applies to {' and '.join(AUDITED)}: {self.format} has nothing that holds rows which readers do not see; "
                "check rows in a step"
            )
        self._refuse_columns_of_no_use()
        if self.partition_by and self.iceberg is None:
            raise ValueError("partitionBy applies to iceberg only")
        if self.partition_by and not self.create:
            raise ValueError("partitionBy needs create: true (an existing table keeps its own partitioning)")
        if self.lance is not None and self.lance.layout is not None and not self.create and self.mode != "AddColumns":
            raise ValueError("lance.layout needs create: true (an existing dataset stays as it was made)")
        if self.create and self.none is not None:
            raise ValueError("create does not apply to none")
        if self.verify != "Seals" and self.none is not None:
            raise ValueError("verify does not apply to none: there are no files")
        return self

    @model_validator(mode="after")
    def _says_how_rows_are_matched(self) -> Sink:
        if (self.upsert_keys is not None) != (self.mode == "Upsert"):
            raise ValueError("upsertKeys are expected with mode Upsert, and with no other")
        if self.upsert_keys is not None and len(set(self.upsert_keys)) < len(self.upsert_keys):
            raise ValueError("upsertKeys names a column twice")
        if self.when_matched != "Update" and self.mode != "Upsert":
            raise ValueError("whenMatched applies to mode Upsert only")
        if self.on_duplicate != "Fail" and self.mode != "Upsert":
            raise ValueError("onDuplicate applies to mode Upsert only")
        if self.on_duplicate != "Fail" and self.when_matched == "Delete":
            raise ValueError("onDuplicate does not apply to whenMatched: Delete: a key may be named any number of times")
        if self.lance is not None and (self.when_matched == "Ignore" or self.on_duplicate == "Last"):
            raise ValueError(
                "whenMatched: Ignore and onDuplicate: Last do not apply to lance, whose staged rows are committed as they are; "
                "use Update or Delete, and leave rows of one key out in the source or a step"
            )
        if (self.order_by is not None) != (self.on_duplicate == "Last"):
            raise ValueError("orderBy is expected with onDuplicate: Last, and with nothing else")
        return self

    def _refuse_columns_of_no_use(self) -> None:
        if bool(self.columns) != (self.mode == "AddColumns"):
            raise ValueError("columns are expected with mode AddColumns, and with no other")
        if twice := next((name for name in self.columns if self.columns.count(name) > 1), None):
            raise ValueError(f"columns: {twice!r} is named twice; name it once")
        if self.only != "Null" and self.mode != "AddColumns":
            raise ValueError("only applies to mode AddColumns")
        if self.create and self.mode == "AddColumns":
            raise ValueError("create does not apply to mode AddColumns: the dataset that gets the columns is the source")
        made = self.lance.layout if self.lance is not None and self.mode == "AddColumns" else None
        if made is not None and made != LanceLayout(vector_columns=made.vector_columns):
            raise ValueError("of lance.layout, vectorColumns alone applies to mode AddColumns: the dataset is there")

    def file_size_bytes(self, of_table: int | None) -> int:
        """Return the size near which data files are rolled. `of_table`: what the table says, if it does."""
        return self.target_file_size or of_table or _FILE_SIZE_BYTES

    @property
    def identity(self) -> dict[str, JsonValue]:
        """What says which table it is, and what a commit does to it. Not how a missing one is made, nor how files are cut."""
        editable: dict[str, bool | set[str]] = {**dict.fromkeys(_EDITABLE, True), self.format: set(self.named.editable)}
        plain = self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=editable)
        return {name: value for name, value in plain.items() if name not in _MAKING_FIELDS}

    def verified_at_least(self, least: Verify) -> Sink:
        """Return the sink with what its commit goes by being this, or more where the manifest says so."""
        known = get_args(Verify)
        is_enough = self.none is not None or known.index(self.verify) >= known.index(least)
        return self if is_enough else self.model_copy(update={"verify": least})

    @property
    def named(self) -> SinkKind:
        """The one that is given."""
        given: SinkKind = getattr(self, self.format)
        return given

    @property
    def format(self) -> str:
        """The name of the kind that is given."""
        return next(kind for kind in SINKS if getattr(self, kind) is not None)
