"""Parsing a block of lines, and saying which line it was that could not be parsed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final, TypeVar

import pyarrow as pa

from checkpoint_formats.failures import explain, unreadable
from checkpoint_formats.files.lines import Lines
from checkpoint_formats.port import Chunk
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

_Rows = TypeVar("_Rows")
_Text = TypeVar("_Text", bound=Lines)

_SHOWN_BYTES: Final = 60
MOST_PARTS_OF_A_SAMPLE: Final = 1_000
#: What pyarrow quotes of a line after this is the line, up to its end.
_QUOTED_LINE: Final = re.compile(r"(Expected \d+ columns, got \d+): .*")
_BAD_VALUE: Final = "conversion error"  # so it says that a value does not fit its column, and quotes it


class NotOneRowALine(ValueError):
    """The lines and the rows in them do not correspond, so a cut at a line's end may be inside a row.

    `ends_with_its_line`: it may not, as this format has no line breaks in rows.
    """

    def __init__(self, problem: str, remedy: str, *, ends_with_its_line: bool = False) -> None:
        super().__init__(problem)
        self.remedy = remedy
        self.ends_with_its_line = ends_with_its_line


class BadLine(NeedsChange):
    """A line that cannot be read as a row, and that surely is one: what comes before and after it can be trusted."""


def parse_or_name_the_line(path: str, lines: Lines, parse: Callable[[Lines], _Rows], remedy: str) -> _Rows:
    """Parse lines. NeedsChange(SourceUnreadable) names the first line that is wrong by its byte (uncompressed)."""
    try:
        return parse(lines)
    except (pa.ArrowException, ValueError) as error:
        bad, cause = _first_bad_line(lines, parse, error)
        raise _named(path, bad, cause, remedy) from error


def parse_apart(
    path: str, lines: _Text, parse: Callable[[_Text], pa.RecordBatch]
) -> Iterator[tuple[_Text, pa.RecordBatch | BadLine]]:
    """Give the lines in parts: those that can be read, and between them each line that cannot, with what is wrong in it.

    Found by halving, as far as the parts are asked for. NeedsChange(SourceUnreadable) where a row does not end on its line: what
    comes after it cannot be told from it.
    """
    good: list[pa.RecordBatch] = []
    begin, parts = lines.begin, [lines]
    while parts:
        part = parts.pop()
        try:
            good.append(parse(part))
            continue
        except NotOneRowALine as error:
            cause: Exception = error
        except (pa.ArrowException, ValueError) as error:
            cause = error
        if (middle := part.line_end_near_the_middle()) is not None:
            first, rest = part.cut_at(middle)
            parts += [rest, first]
            continue
        if isinstance(cause, NotOneRowALine) and not cause.ends_with_its_line:
            raise _named(path, part, cause, cause.remedy) from cause
        if good:
            yield lines.between(begin, part.begin), _joined(good)
            good = []
        yield part, BadLine(reasons.SOURCE_UNREADABLE, what_is_wrong(part, cause))
        begin = part.end
    if good:
        yield lines.between(begin, lines.end), _joined(good)


def parse_lines(
    path: str, lines: Lines, parse: Callable[[Lines], pa.RecordBatch], remedy: str, *, sets_apart: bool
) -> Iterator[tuple[Lines, pa.RecordBatch | BadLine]]:
    """Give lines in parts, as `parse_apart` does; without setting apart all at once, or NeedsChange naming the first bad line."""
    if sets_apart:
        return parse_apart(path, lines, parse)
    return iter([(lines, parse_or_name_the_line(path, lines, parse, remedy))])


def chunks_of_lines(
    path: str, parsed: Iterable[tuple[Lines, pa.RecordBatch | BadLine]], schema: pa.Schema, *, spaces_are_blank: bool
) -> Iterator[Chunk]:
    """Give parsed parts of a text as chunks whose positions are bytes."""
    for part, found in parsed:
        bounds = partial(part.row_bounds, path, spaces_are_blank=spaces_are_blank)
        end = part.position + part.size_bytes
        if isinstance(found, BadLine):
            yield Chunk(pa.RecordBatch.from_pylist([], schema=schema), part.position, end, row_bounds=bounds, failed=found)
        else:
            yield Chunk(found, part.position, end, row_bounds=bounds)


def without_bad_lines(path: str, lines: Lines, parse: Callable[[Lines], object]) -> Lines:
    """Return the lines with blank ones in the place of those that cannot be read by themselves: a copy, where there are any.

    For samples: where very many cannot be read, those after them are left out too.
    """
    empty = pa.RecordBatch.from_pylist([], schema=pa.schema([]))

    def try_to_parse(part: Lines) -> pa.RecordBatch:
        parse(part)
        return empty

    parts = list(islice(parse_apart(path, lines, try_to_parse), MOST_PARTS_OF_A_SAMPLE))
    if len(parts) == 1 and not isinstance(parts[0][1], BadLine):
        return lines
    data = b"".join(b"\n" if isinstance(found, BadLine) else part.buffer.to_pybytes() for part, found in parts)
    return Lines(data, 0, len(data), lines.position)


def what_is_wrong(line: Lines, cause: Exception) -> str:
    """Say why a line cannot be read: with the value at fault, or, where it is no row at all, with its first characters."""
    problem = _QUOTED_LINE.sub(r"\1", explain(cause))
    if _BAD_VALUE in problem or not (beginning := _beginning(line)):
        return problem
    return f"{problem} (it begins {beginning!r})"


def _beginning(line: Lines) -> str:
    """Return the first characters of a line; nothing where they would not show as what they are."""
    data = line.data[line.begin : min(line.end, line.begin + _SHOWN_BYTES)]
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if error.start < len(data) - 3:
            return ""
        text = data[: error.start].decode()
    text = text.rstrip("\r\n")
    return text if text.isprintable() else ""


def _named(path: str, bad: Lines, cause: Exception, remedy: str) -> NeedsChange:
    if isinstance(cause, NotOneRowALine):
        return unreadable(path, f"line at byte {bad.position}: {explain(cause)}", cause.remedy)
    return unreadable(path, f"line at byte {bad.position}: {what_is_wrong(bad, cause)}", remedy)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _first_bad_line(lines: Lines, parse: Callable[[Lines], object], error: Exception) -> tuple[Lines, Exception]:
    """Halve the lines until the one is left that fails while those before it do not.

    Returned with what is said of it alone, where it fails alone: of many lines less is known than of one.
    """
    while (middle := lines.line_end_near_the_middle()) is not None:
        first, rest = lines.cut_at(middle)
        try:
            parse(first)
        except (pa.ArrowException, ValueError) as earlier:
            lines, error = first, earlier
        else:
            lines = rest
    try:
        parse(lines)
    except (pa.ArrowException, ValueError) as alone:
        error = alone
    return lines, error
