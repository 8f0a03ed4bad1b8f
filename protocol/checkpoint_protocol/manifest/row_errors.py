"""The part of a manifest that says what becomes of rows that fail."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from checkpoint_protocol.manifest.quantities import Share
from checkpoint_protocol.manifest.sections import Section


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
