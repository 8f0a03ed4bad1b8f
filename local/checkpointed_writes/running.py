"""Writes that are run, or previewed, by one call."""

from __future__ import annotations

import os
from typing import Literal

from checkpointed_writes.answers import Preview, Result
from checkpointed_writes.write import Manifest, Write


def run(
    manifest: Manifest,
    *,
    settings: str | os.PathLike[str] | None = None,
    cores: int | None = None,
    approve: Literal["Continue", "Restart"] | None = None,
    again: bool = False,
) -> Result:
    """Run the write of a manifest, a file or a dict: see `Write.run`."""
    return Write(manifest, settings).run(cores=cores, approve=approve, again=again)


def preview(
    manifest: Manifest, rows: int = 20, *, settings: str | os.PathLike[str] | None = None, stage: str | None = None
) -> Preview:
    """Run the steps of a manifest, a file or a dict, on the first rows: see `Write.preview`."""
    return Write(manifest, settings).preview(rows, stage=stage)
