"""The part of a manifest that says where the rows go, and what the commit does to the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, get_args

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.quantities import Size
from checkpoint_protocol.manifest.rules import Rule, exactly_one_of, is_given, named_once, text
from checkpoint_protocol.manifest.sections import Section, is_absent
from checkpoint_protocol.manifest.steps import CALL_PATTERN
from checkpoint_protocol.manifest.where import as_of_the_sink, parse_where
from checkpoint_protocol.records.formats.union import SinkChoice, SinkKind
from checkpoint_protocol.tables import OVERWRITING, Mode, OnDuplicate, WhenMatched

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
_KINDS: Final[tuple[type[SinkKind], ...]] = get_args(SinkKind)
#: What can be done to a table of each kind.
MODES: Final[Mapping[str, tuple[Mode, ...]]] = {kind.kind: kind.modes for kind in _KINDS}
#: The kinds whose tables can hold rows that readers do not see yet.
AUDITED: Final = tuple(kind.kind for kind in _KINDS if kind.has_audit)


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
    only: Annotated[Literal["Null", "Changed", "All"], BeforeValidator(lambda value: "Null" if value is None else value)] = Field(
        default="Null",
        description="For AddColumns: which rows the steps receive. Null: rows in which all of sink.columns are NULL. "
        "Changed: these, and rows whose input columns have changed since the last epoch; the dataset must have stable row ids. "
        "All: all rows; existing values are replaced, with NULL where the steps return nothing.",
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

    rules: ClassVar = (
        exactly_one_of(*SINKS),
        Rule(f"self.partitionBy.size() == 0 || {is_given('iceberg')}", "partitionBy applies to iceberg only", "partitionBy"),
        Rule(
            "self.partitionBy.size() == 0 || self.create",
            "partitionBy needs create: true (an existing table keeps its own partitioning)",
            "partitionBy",
        ),
        Rule(
            f"!{is_given('lance')} || !{is_given('layout', 'self.lance')} || self.create || self.mode == 'AddColumns'",
            "lance.layout needs create: true (an existing dataset stays as it was made)",
            "lance",
        ),
        Rule(f"!self.create || !{is_given('none')}", "create does not apply to none", "create"),
        Rule(f"self.verify == 'Seals' || !{is_given('none')}", "verify does not apply to none: there are no files", "verify"),
        *(
            Rule(
                f"!{is_given(kind)} || self.mode in [{', '.join(text(mode) for mode in modes)}]",
                f"this mode does not apply to {kind}, which has {', '.join(modes)}",
                "mode",
            )
            for kind, modes in MODES.items()
            if len(modes) < len(get_args(Mode))
        ),
        Rule(
            f"{is_given('where')} == (self.mode == 'OverwriteWhere')",
            "where is expected with mode OverwriteWhere, and with no other",
            "where",
        ),
        Rule(
            f"self.onConcurrent == 'Fail' || self.mode in [{', '.join(text(mode) for mode in sorted(OVERWRITING))}]",
            f"onConcurrent applies to the modes {', '.join(sorted(OVERWRITING))}",
            "onConcurrent",
        ),
        Rule(
            f"{is_given('upsertKeys')} == (self.mode == 'Upsert')",
            "upsertKeys are expected with mode Upsert, and with no other",
            "upsertKeys",
        ),
        named_once(
            "self.upsertKeys",
            "the column '{}' is named twice; name it once",
            "upsertKeys",
            unless=f"!{is_given('upsertKeys')}",
        ),
        Rule("self.mode == 'Upsert' || self.whenMatched == 'Update'", "whenMatched applies to mode Upsert only", "whenMatched"),
        Rule("self.mode == 'Upsert' || self.onDuplicate == 'Fail'", "onDuplicate applies to mode Upsert only", "onDuplicate"),
        Rule(
            "self.onDuplicate == 'Fail' || self.whenMatched != 'Delete'",
            "onDuplicate does not apply to whenMatched: Delete: a key may be named any number of times",
            "onDuplicate",
        ),
        Rule(
            f"{is_given('orderBy')} == (self.onDuplicate == 'Last')",
            "orderBy is expected with onDuplicate: Last, and with nothing else",
            "orderBy",
        ),
        Rule(
            "(self.columns.size() > 0) == (self.mode == 'AddColumns')",
            "columns are expected with mode AddColumns, and with no other",
            "columns",
        ),
        named_once("self.columns", "the column '{}' is named twice; name it once", "columns"),
        Rule("self.only == 'Null' || self.mode == 'AddColumns'", "only applies to mode AddColumns", "only"),
        Rule(
            f"self.mode != 'AddColumns' || !{is_given('lance')} || !{is_given('layout', 'self.lance')} || "
            f"(!{is_given('dataStorageVersion', 'self.lance.layout')} && !self.lance.layout.enableStableRowIds && "
            "self.lance.layout.blobColumns.size() == 0)",
            "of lance.layout, vectorColumns alone applies to mode AddColumns: the dataset is there",
            "lance",
        ),
        Rule(
            "!self.create || self.mode != 'AddColumns'",
            "create does not apply to mode AddColumns: the dataset that gets the columns is the source",
            "create",
        ),
        *(
            Rule(
                f"!{is_given('audit')} || !{is_given(kind)}",
                f"audit applies to {' and '.join(AUDITED)}: {kind} has nothing that holds rows which readers do not see; "
                "check rows in a step",
                "audit",
            )
            for kind in SINKS
            if kind not in AUDITED
        ),
    )

    @model_validator(mode="after")
    def _has_a_condition_that_can_be_read(self) -> Sink:
        # No rule: conditions have a grammar of their own.
        if self.where is not None:
            try:
                with as_of_the_sink():
                    parse_where(self.where)
            except NeedsChange as error:
                raise ValueError(error.message.partition(": ")[2]) from None
        return self

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
