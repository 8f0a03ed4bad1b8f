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
    """Halve the lines until the one is left that fails while those before it do not."""
    while True:
        middle = lines.line_end_near_the_middle()
        if middle is None:
            return lines, error
        first, rest = lines.cut_at(middle)
        try:
            parse(first)
        except (pa.ArrowException, ValueError) as earlier:
            lines, error = first, earlier
        else:
            lines = rest
