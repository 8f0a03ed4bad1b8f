"""What the readers of source tables have in common: how their errors are said, and which rows a later epoch takes."""

from __future__ import annotations

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange


def gone(what: str, of: str, keep: str) -> NeedsChange:
    """A part of the pinned table is gone while rows of it are missing. `keep` says what should have kept it."""
    return NeedsChange(
        reasons.SOURCE_CHANGED,
        f"source: {what} of {of} is gone while rows of it are missing; {keep}; start a new write for what is left",
    )


def moved(what: str, remedy: str) -> NeedsChange:
    """Since the last epoch more happened to the table than that rows were appended."""
    return NeedsChange(reasons.SOURCE_CHANGED, f"source: {what}; {remedy}")
