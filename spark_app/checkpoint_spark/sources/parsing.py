"""Parsing a block of lines, and saying which line it was that could not be parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from checkpoint_spark.sources.failures import explain, unreadable
from checkpoint_spark.sources.lines import Lines

_Rows = TypeVar("_Rows")


class NotOneRowALine(ValueError):
    """The lines and the rows in them do not correspond, so a cut at a line's end may be inside a row."""

    def __init__(self, problem: str, way_out: str) -> None:
        super().__init__(problem)
        self.way_out = way_out


def parse_or_name_the_line(path: str, lines: Lines, parse: Callable[[Lines], _Rows], way_out: str) -> _Rows:
    """Parse lines. NeedsChange(SourceUnreadable) names the first line that is wrong by its byte (uncompressed)."""
    try:
        return parse(lines)
    except (pa.ArrowException, ValueError) as error:
        bad, cause = _first_bad_line(lines, parse, error)
        if isinstance(cause, NotOneRowALine):
            way_out = cause.way_out
        raise unreadable(path, f"line at byte {bad.position}: {explain(cause)}", way_out) from error


def _first_bad_line(lines: Lines, parse: Callable[[Lines], object], error: Exception) -> tuple[Lines, Exception]:
    """Search for the shortest beginning of the lines that fails."""
    parts = lines.split()
    low, high = 0, len(parts) - 1
    while low < high:
        middle = (low + high) // 2
        try:
            parse(lines.until(parts[middle].end))
        except (pa.ArrowException, ValueError) as earlier:
            high, error = middle, earlier
        else:
            low = middle + 1
    return parts[low], error
