"""The formats: what records may hold of any of them. The one place of the protocol that lists them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from checkpoint_protocol.records.iceberg import IcebergBase, IcebergFile, IcebergTarget, PinnedIceberg
from checkpoint_protocol.records.lance import LanceBase, LanceFragment, LanceTarget, PinnedLance
from checkpoint_protocol.records.no_table import NoTarget

#: A source table at the version that is read.
PinnedTable = Annotated[PinnedIceberg | PinnedLance, Field(discriminator="format")]
#: The sink's table as staging sees it.
Target = Annotated[IcebergTarget | LanceTarget | NoTarget, Field(discriminator="format")]
#: What a seal names. Which of these belong to an operation, its commit says (`only`).
StagedFile = Annotated[IcebergFile | LanceFragment, Field(discriminator="format")]
#: The table as the claimant of a commit had found it.
Base = Annotated[IcebergBase | LanceBase, Field(discriminator="format")]
