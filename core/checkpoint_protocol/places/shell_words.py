"""What a shell would expand in a path, and nobody does here: ~, variables, {a,b} and [0-9] are names like any other.

A place that is written to by such a name would be made, beside the one that was meant.
"""

from __future__ import annotations

import re
from typing import Final

from checkpoint_protocol.places.uris import local_path

_HOME: Final = r"(?<![^/])~[A-Za-z0-9_.-]*(?![^/])"
_VARIABLE: Final = r"\$\{[^{}/]+\}|(?<![^/])\$[A-Za-z_]\w*(?![^/])"
_HOME_WAY_OUT: Final = "write out the path of the home folder"
_VARIABLE_WAY_OUT: Final = "write out its value"
#: What may stand in the path of a source, each with what to write.
_IN_PATTERNS: Final = (
    (re.compile(r"(?<!\$)\{[^{}/]*,[^{}/]*\}"), "add a path to paths for each name"),
    (re.compile(r"\[(?![*?\[]\])[^\]/]+\]"), "write ? for the character"),
    (re.compile(_HOME), _HOME_WAY_OUT),
    (re.compile(_VARIABLE), _VARIABLE_WAY_OUT),
)


def hint_on_pattern(path: str) -> str:
    """Say of a path of a source that means no file what in it is no wildcard, and what to write; nothing if there is no such."""
    for pattern, way_out in _IN_PATTERNS:
        if (found := pattern.search(path)) is not None:
            return f"{found[0]} is taken as it stands, as the wildcards are *, ** and ? only: {way_out}"
    return ""


def why_not_expanded(uri: str) -> str | None:
    """Say what would have to be expanded in the URI of a place; None if there is nothing. A bucket may be called $web."""
    if local_path(uri) is None:
        path = "/" + uri.partition("://")[2].partition("/")[2]
    else:
        path = re.sub(r"^file:(//)?", "", uri, flags=re.IGNORECASE)  # not a Path, which drops ./
        if (home := re.match(_HOME, path)) is not None:
            return f"{uri} cannot be used: {home[0]} is not expanded; {_HOME_WAY_OUT} (a folder of this name is ./{home[0]})"
    if (variable := re.search(_VARIABLE, path)) is not None:
        return f"{uri} cannot be used: {variable[0]} is not expanded; {_VARIABLE_WAY_OUT}"
    return None
