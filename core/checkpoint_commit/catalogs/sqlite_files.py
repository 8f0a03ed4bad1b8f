"""Which file the URI of a SQLite catalog means: as SQLAlchemy opens it, by which everybody here goes.

SQLAlchemy unquotes what stands before a `?`, and takes the rest for options. A path is thereby not a URI as it stands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote

_PREFIX: Final = "sqlite:///"


def sqlite_file(uri: str) -> Path | None:
    """Return the file of SQLite that a URI means; None for any other database."""
    if not uri.startswith(_PREFIX):
        return None
    return Path(unquote(uri.removeprefix(_PREFIX).partition("?")[0]))


def with_file(uri: str, file: Path) -> str:
    """Return the URI with this file in place of its own, whatever characters its path has."""
    _, mark, options = uri.partition("?")
    path = str(file).replace("%", "%25").replace("?", "%3F")
    return f"{_PREFIX}{path}{mark}{options}"


def why_no_file(uri: str) -> str | None:
    """Say why SQLAlchemy would open another file than the one that is probably meant; None if it does not."""
    _, mark, options = uri.partition("?")
    if not mark or all("=" in option for option in options.split("&")):
        return None
    return "what follows a ? is taken for options (name=value); write %3F for a ? in the name of a file or folder"
