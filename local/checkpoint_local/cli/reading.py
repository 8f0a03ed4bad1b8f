"""What commands that take a manifest begin with: both files, or why one cannot be used."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from checkpoint_local.cli import exits
from checkpoint_local.cli.files import find_settings, load_manifest, load_settings
from checkpoint_local.cli.printing import say_problem
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.settings import Settings


def read_files(file: Path, settings_file: Path | None, console: Console) -> tuple[CheckpointedWrite, Settings] | None:
    """Return manifest and settings; None, having said why, if one of the files is wrong (`exits.MANIFEST_WRONG`)."""
    try:
        return load_manifest(file), load_settings(find_settings(settings_file, file))
    except CheckpointError as error:
        say_error(error, console)
        return None


def say_error(error: CheckpointError, console: Console) -> None:
    for line in exits.lines_of(error):
        say_problem(console, line)
