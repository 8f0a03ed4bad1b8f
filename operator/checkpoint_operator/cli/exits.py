"""Exit codes of the command line, and how an error is said."""

from __future__ import annotations

from typing import Final

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest import ManifestInvalid

COMMITTED: Final = 0
FAILED: Final = 1
MANIFEST_WRONG: Final = 2
NOT_COMMITTED: Final = 3
INTERRUPTED: Final = 130


def lines_of(error: CheckpointError) -> list[str]:
    """Return an error as lines for a terminal: one a problem."""
    if isinstance(error, ManifestInvalid):
        return [f"error: {problem}" for problem in error.problems]
    return [f"error: {error.reason}: {error.message}"]


def code_of(error: CheckpointError) -> int:
    return MANIFEST_WRONG if isinstance(error, ManifestInvalid) else FAILED
