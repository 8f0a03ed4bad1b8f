"""The part of a manifest that says what becomes of rows that fail."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from checkpoint_protocol.manifest.quantities import Share
from checkpoint_protocol.manifest.sections import Section


class Quarantine(Section):
    """For onRowError: Quarantine: how many rows may fail, and whether a later epoch takes them again."""

    max_rows: int = Field(
        default=1000, ge=0, le=1_000_000, description="An epoch with more failed rows than this stops before its commit."
    )
    max_share: Share = Field(
        default=100_000,
        description="The same limit as a share of the epoch's rows, rounded down. For text, whose number of rows is not known "
        "in advance, it is checked when all rows are read. Rows that a later epoch takes again count toward neither limit.",
    )
    retry: Literal["Never", "Also", "Only"] = Field(
        default="Never",
        description="Whether a later epoch (runNonce) takes the rows that earlier epochs have quarantined. Never: it does "
        "not. Also: it takes them along with new files or rows. Only: it takes nothing else.",
    )
