"""What the readers of source tables have in common: how their errors are said, and which rows a later epoch takes."""

from __future__ import annotations

from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

#: What an epoch does with a table in which rows that were taken before may have been moved.
WAYS: Final = ("Fail", "Process", "Skip")


def gone(what: str, of: str, keep: str) -> NeedsChange:
    """A part of the pinned table is gone while rows of it are missing. `keep` says what should have kept it."""
    return NeedsChange(
        reasons.SOURCE_CHANGED,
        f"source: {what} of {of} is gone while rows of it are missing; {keep}; start a new write for what is left",
    )


def moved(what: str, way_out: str) -> NeedsChange:
    """Since the last epoch more happened to the table than that rows were appended."""
    return NeedsChange(reasons.SOURCE_CHANGED, f"source: {what}; {way_out}")
