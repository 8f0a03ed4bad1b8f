"""Whether this user could write at a place of this machine, told without writing there."""

from __future__ import annotations

import os
from pathlib import Path


def why_not_writable(place: Path) -> str | None:
    """Say why nothing can be put at a file or into a folder, which may be yet to be made; None where it can.

    Nothing is written: a quota, or a security module, may still refuse.
    """
    place = place.absolute()
    if not place.exists():
        place = next(parent for parent in place.parents if parent.exists())
        if not place.is_dir():
            return f"{place} is a file"
    needed = os.W_OK | os.X_OK if place.is_dir() else os.W_OK
    if os.access(place, needed, effective_ids=os.access in os.supports_effective_ids):
        return None
    return f"{place} cannot be written to (its permissions, or a file system that is read-only)"
