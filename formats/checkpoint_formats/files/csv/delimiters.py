"""A delimiter that is not the one of the file: then all of its header is one name, and each row is one text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: What programs write between fields, each as it is written in a manifest.
_DELIMITERS: Final = {",": "','", ";": "';'", "\t": '"\\t"', "|": "'|'"}


def likely_delimiter(names: Sequence[str], delimiter: str) -> str | None:
    """Return what seems to be between the columns of a header, as a manifest says it; None if nothing tells of another delimiter.

    A header of several columns is none, whatever is in their names.
    """
    if len(names) != 1:
        return None
    counts = {other: names[0].count(other) for other in _DELIMITERS if other != delimiter}
    most = max(counts, key=lambda other: counts[other])
    return _DELIMITERS[most] if counts[most] else None


def else_hint(delimiter: str | None) -> str:
    """Return what one can do, beside correcting the name, about a column that is not there."""
    return "" if delimiter is None else f", or set source.files.csv.delimiter: {delimiter} if that is between the columns"


def note_of(path: str, name: str, delimiter: str | None) -> str:
    """Return what is to be said of a file with such a header, although it can be read."""
    if delimiter is None:
        return ""
    return (
        f"csv.delimiter: {path} has one column, {name!r}; if {delimiter} is between the columns, "
        f"set source.files.csv.delimiter: {delimiter}"
    )
