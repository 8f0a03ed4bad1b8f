"""`checkpointed-write allow`: let a settings file beside a manifest name variables, files and identities of the user."""

from __future__ import annotations

from pathlib import Path

from checkpoint_local.cli import exits
from checkpoint_local.cli.allowed import allow, claims_of, user_folder
from checkpoint_local.cli.files import SETTINGS_NAME, parse_settings, read_file
from checkpoint_local.cli.printing import answers, messages, say_problem
from checkpoint_protocol.errors import CheckpointError


def allow_command(file: Path | None) -> int:
    """Allow the file as it is now, say what it names, and return the exit code."""
    path = file if file is not None else Path(SETTINGS_NAME)
    try:
        content = read_file(path)
        claims = claims_of(parse_settings(path, content))
    except CheckpointError as error:
        for line in exits.lines_of(error):
            say_problem(messages(), line)
        return exits.MANIFEST_WRONG
    try:
        allow(path, content, user_folder())
    except OSError as error:
        why = f"it cannot be kept in {user_folder()}: {error.strerror}; check its permissions"
        say_problem(messages(), f"error: {path} is not allowed: {why}")
        return exits.FAILED
    out = answers()
    out.print(f"allowed {path.resolve()} as it is now; it uses:" if claims else f"allowed {path.resolve()}", markup=False)
    for claim in claims:
        out.print(f"  {claim}", markup=False)
    return exits.DONE
