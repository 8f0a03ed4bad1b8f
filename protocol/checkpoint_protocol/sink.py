"""The part of a manifest that says where the rows go, and what the commit does to the table."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, JsonValue, model_validator

from checkpoint_protocol.quantities import Size
from checkpoint_protocol.sections import Section, Uri, refuse_escapes

PARTITION_TRANSFORMS: Final = ("identity", "year", "month", "day", "hour")
#: The kinds of sinks, of which a manifest names one.
SINKS: Final = ("iceberg", "lance", "none")
#: What of a sink counts only where the table is missing.
_MAKING_FIELDS: Final = ("create", "partitionBy")


Verify = Literal["Seals", "SampledFooters", "Footers"]


class IcebergSink(Section):
    """An Iceberg table."""

    catalog: str = Field(min_length=1, max_length=128, description="A catalog of the operator's (or runner's) settings.")
    table: str = Field(pattern=r"^[^.]+(\.[^.]+)+$", max_length=512, description="namespace.table, its name in the catalog.")


class LanceSink(Section):
    """A Lance dataset."""

    uri: Uri = Field(description="The dataset, e.g. s3://bucket/name.lance")

    @model_validator(mode="after")
    def _is_what_lance_reads(self) -> LanceSink:
        refuse_escapes(self.uri)
        return self


class NoSink(Section):
    """No table: the steps run once per row, for what they do."""


SinkKind = IcebergSink | LanceSink | NoSink


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
    mode: Literal["Append"] = Field(default="Append", description="What the commit does to the table: it adds the rows.")
    create: bool = Field(default=False, description="Make the target from the steps' output if it does not exist.")
    partition_by: tuple[PartitionField, ...] = Field(
        default=(), max_length=16, description="Iceberg, with create: how the new table is partitioned."
    )
    target_file_size: Size = Field(default=256 << 20, gt=0, description="Data files are rolled near this size.")
    verify: Verify = Field(
        default="Seals",
        description="What the commit goes by. Seals: what drivers have sealed must be possible. Footers: and the row count of "
        "each data file must be that of its footer, which is read. SampledFooters: that of one file of twenty.",
    )

    @model_validator(mode="after")
    def _is_one_supported_sink(self) -> Sink:
        if sum(getattr(self, kind) is not None for kind in SINKS) != 1:
            raise ValueError(f"exactly one of {', '.join(SINKS[:-1])} and {SINKS[-1]} is expected")
        if self.partition_by and self.iceberg is None:
            raise ValueError("partitionBy applies to iceberg only")
        if self.partition_by and not self.create:
            raise ValueError("partitionBy needs create: true (an existing table keeps its own partitioning)")
        if self.create and self.none is not None:
            raise ValueError("create does not apply to none")
        if self.verify != "Seals" and self.none is not None:
            raise ValueError("verify does not apply to none: there are no files")
        return self

    @property
    def identity(self) -> dict[str, JsonValue]:
        """What says which table it is, and what a commit does to it. Not how a missing one is made, nor how files are cut."""
        return without_making(
            self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"target_file_size", "verify"})
        )

    @property
    def named(self) -> SinkKind:
        """The one that is given."""
        given: SinkKind = getattr(self, self.format)
        return given

    @property
    def format(self) -> str:
        """The name of the kind that is given."""
        return next(kind for kind in SINKS if getattr(self, kind) is not None)


def without_making(sink: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a sink, as plain data by which a write is known, without how a missing table is made; older releases stored that."""
    return {name: value for name, value in sink.items() if name not in _MAKING_FIELDS}
