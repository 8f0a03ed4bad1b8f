"""Parsing a block of lines, and saying which line it was that could not be parsed."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from checkpoint_spark.sources.failures import explain, unreadable
from checkpoint_spark.sources.lines import Lines


class NotOneRowALine(ValueError):
    """The lines and the rows in them do not correspond, so a cut at a line's end may be inside a row."""


def parse_or_name_the_line(path: str, lines: Lines, parse: Callable[[Lines], pa.RecordBatch], way_out: str) -> pa.RecordBatch:
    """Parse lines. NeedsChange(SourceUnreadable) names the first line that is wrong by its byte (uncompressed)."""
    try:
        return parse(lines)
    except (pa.ArrowException, ValueError) as error:
        bad, cause = _first_bad_line(lines, parse, error)
        raise unreadable(path, f"line at byte {bad.position}: {explain(cause)}", way_out) from error


def _first_bad_line(lines: Lines, parse: Callable[[Lines], pa.RecordBatch], error: Exception) -> tuple[Lines, Exception]:
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
