"""The formats: what records may hold of any of them, and which sinks a manifest may name. The one place that lists them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from checkpoint_protocol.manifest.sections import Section
from checkpoint_protocol.records.formats.iceberg import (
    IcebergBase,
    IcebergDeletes,
    IcebergFile,
    IcebergRewrite,
    IcebergTarget,
    PinnedIceberg,
)
from checkpoint_protocol.records.formats.kafka import PinnedKafka
from checkpoint_protocol.records.formats.lance import (
    LanceBase,
    LanceColumnFile,
    LanceDeletes,
    LanceFragment,
    LancePackTarget,
    LanceRewrite,
    LanceTarget,
    PinnedLance,
    StagedColumns,
)
from checkpoint_protocol.records.formats.no_table import NoTarget
from checkpoint_protocol.records.formats.stage_results import StageFile, StageTarget
from checkpoint_protocol.tables.iceberg import IcebergSink
from checkpoint_protocol.tables.lance import LanceSink
from checkpoint_protocol.tables.none import NoSink

#: A source table at the version that is read, or the cluster whose partitions are.
PinnedTable = Annotated[PinnedIceberg | PinnedLance | PinnedKafka, Field(discriminator="format")]
#: What an attempt stages for: the sink's table as staging sees it, or the result of a stage.
Target = Annotated[IcebergTarget | LanceTarget | LancePackTarget | NoTarget | StageTarget, Field(discriminator="format")]
#: What a seal names. Which of these belong to an operation, its commit says (`only`).
StagedFile = Annotated[
    IcebergFile
    | IcebergRewrite
    | IcebergDeletes
    | LanceFragment
    | LanceDeletes
    | LanceRewrite
    | StagedColumns
    | LanceColumnFile
    | StageFile,
    Field(discriminator="format"),
]
#: The table as the claimant of a commit had found it.
Base = Annotated[IcebergBase | LanceBase, Field(discriminator="format")]
#: What a manifest names as its sink.
SinkKind = IcebergSink | LanceSink | NoSink


class SinkChoice(Section):
    """The kinds of sinks, of which a manifest names one."""

    iceberg: IcebergSink | None = None
    lance: LanceSink | None = None
    none: NoSink | None = None
