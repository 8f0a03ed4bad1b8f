"""Exit codes, how an error is said, and reading the files that a command is given.

0 done, 1 failed, 2 the manifest or the settings file is wrong (whoever finds it, and when), 130 interrupted; 3 is of `status`
alone: not committed yet, 4 of `run`: a person is to approve first. docs/guides/commands.md has the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rich.console import Console

from checkpoint_commit.catalogs.vended import with_keys_of_tables
from checkpoint_commit.lance.namespaces import located
from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.views.reason_texts import with_command
from checkpoint_local.cli import exits
from checkpoint_local.cli.files import find_settings, load_manifest, load_settings
from checkpoint_local.cli.printing import say_problem
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.spec import CheckpointedWrite, ManifestInvalid
from checkpoint_protocol.places.settings import Settings

DONE: Final = 0
COMMITTED: Final = DONE
FAILED: Final = 1
MANIFEST_WRONG: Final = 2
NOT_COMMITTED: Final = 3
AWAITS_APPROVAL: Final = 4
INTERRUPTED: Final = 130

#: A person has to change the manifest or the settings file, and nothing else; or put code where a step's `call` says.
_OF_THE_MANIFEST: Final = frozenset(
    {reasons.MANIFEST_INVALID, reasons.IDENTITY_CHANGED, reasons.WRITE_SUSPENDED, reasons.CODE_MISSING}
)


def lines_of(error: CheckpointError) -> list[str]:
    """Return an error as lines for a terminal: one a problem."""
    if isinstance(error, ManifestInvalid):
        return [f"error: {problem}" for problem in error.said]
    return [line_of(error.reason, error.message)]


def line_of(reason: str, message: str) -> str:
    return f"error: {reason}: {with_command(reason, message)}"


def code_of(error: CheckpointError) -> int:
    return _code_of_reason(error.reason)


def code_of_end(outcome: Finish | Stall) -> int:
    """Return the code of a run that came to an end of its own."""
    return _code_of_reason(outcome.reason) if isinstance(outcome, Stall) else COMMITTED


def _code_of_reason(reason: str) -> int:
    if reason == reasons.CODE_CHANGED:
        return AWAITS_APPROVAL
    return MANIFEST_WRONG if reason in _OF_THE_MANIFEST else FAILED


def read_files(file: Path, settings_file: Path | None, console: Console) -> tuple[CheckpointedWrite, Settings] | None:
    """Return manifest and settings; None, having said why, if one of the files is wrong (`exits.MANIFEST_WRONG`)."""
    try:
        manifest, settings = load_manifest(file), load_settings(find_settings(settings_file, file))
        spec = located(manifest.spec, settings)
        return manifest.model_copy(update={"spec": spec}), with_keys_of_tables(spec, settings)
    except CheckpointError as error:
        say_error(error, console)
        return None


def say_error(error: CheckpointError, console: Console) -> None:
    for line in exits.lines_of(error):
        say_problem(console, line)
