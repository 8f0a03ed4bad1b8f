"""Where records of CSV text end, by the rules of pyarrow's parser, so that text with line breaks in fields can be cut.

A quote means something at the start of a field only, two in a row inside of quotes are one, an escape makes the next byte mean
itself, and what is not in quotes ends at
,
 or
 (arrow/cpp/src/arrow/csv/chunker.cc).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkpoint_formats.failures import unreadable
from checkpoint_formats.files.lines import LONGEST_LINE_BYTES, Lines, ReadNext
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.source import CsvOptions

_NEWLINE: Final = ord("\n")
_RETURN: Final = ord("\r")
#: A \r that is the last byte known may be the first half of \r\n.
_BREAK: Final = rb"(?:\n|\r(?:\n|(?=[\s\S])))"


@dataclass(frozen=True, slots=True, eq=False)
class Records(Lines):
    """Whole records; blank lines, which are no rows, are among them. `ends` says where each ends in all of the data."""

    ends: Any

    @property
    def rows(self) -> int:
        return len(self._row_ends())

    @property
    def blank_places(self) -> Any:
        """Where blank records begin, in the data."""
        first, last = np.searchsorted(self.ends, (self.begin, self.end), side="right")
        begins = np.concatenate(([self.begin], self.ends[first:last][:-1]))
        beginnings = np.frombuffer(self.data, np.uint8)[begins]
        return begins[(beginnings == _NEWLINE) | (beginnings == _RETURN)]

    def line_end_near_the_middle(self) -> int | None:
        """Return where the records can be cut in two; None for a single one."""
        after = int(np.searchsorted(self.ends, (self.begin + self.end) // 2, side="right"))
        for number in (after, after - 1):
            if 0 <= number < len(self.ends) and self.begin < (end := int(self.ends[number])) < self.end:
                return end
        return None

    def cut_at_row(self, rows: int) -> tuple[Records, Records]:
        """Return the first so many rows, and the others."""
        return self.cut_at(int(self._row_ends()[rows - 1]) if rows else self.begin)

    def _row_ends(self) -> Any:
        first, last = np.searchsorted(self.ends, (self.begin, self.end), side="right")
        ends = self.ends[first:last]
        begins = np.concatenate(([self.begin], ends[:-1])) if len(ends) else ends
        beginnings = np.frombuffer(self.data, np.uint8)[begins]
        return ends[(beginnings != _NEWLINE) & (beginnings != _RETURN)]


def unquoted_pattern(options: CsvOptions) -> bytes:
    """Return the pattern of what is not in quotes: a field, or, where the source has no quotes, a whole record."""
    return unescaped_pattern(options, options.delimiter.encode() if options.quote else b"")


def unescaped_pattern(options: CsvOptions, end: bytes) -> bytes:
    """Return the pattern of what is not in quotes up to this character, or a line break, that has no escape before it."""
    return rb"(?:" + _escaped(options) + rb"[^\r\n" + re.escape(options.escape.encode()) + re.escape(end) + rb"]++)*+"


def quoted_pattern(options: CsvOptions) -> bytes:
    """Return the pattern of what is in quotes, with them."""
    quote, escape = re.escape(options.quote.encode()), re.escape(options.escape.encode())
    # The order counts where two of the characters are the same one.
    return quote + rb"(?:" + _escaped(options) + quote + quote + rb"|[^" + quote + escape + rb"]++)*+" + quote


def _escaped(options: CsvOptions) -> bytes:
    return re.escape(options.escape.encode()) + rb"[\s\S]|" if options.escape else b""


class RecordSplitter:
    """Cuts text into blocks of whole records."""

    def __init__(self, options: CsvOptions) -> None:
        self._special = tuple(text.encode() for text in (options.quote, options.escape) if text)
        record = text = unquoted_pattern(options)
        if options.quote:
            field = rb"(?:" + quoted_pattern(options) + rb"|(?!" + re.escape(options.quote.encode()) + rb"))" + text
            record = field + rb"(?:" + re.escape(options.delimiter.encode()) + field + rb")*+"
        self._without_break = re.compile(record)
        #: A record, or else the rest of the data, so that one follows on the other without a gap.
        self._record_or_rest = re.compile(record + _BREAK + rb"|([\s\S]+)")

    def blocks(self, read_next: ReadNext, wanted_bytes: Callable[[], int], path: str) -> Iterator[Records]:
        """Give a text in blocks of about the wanted size; larger where a single record is.

        The text ends with a line break. NeedsChange(SourceUnreadable) where it ends inside quotes, after all records before, and
        where a record has more than LONGEST_LINE_BYTES.
        """
        data, position, ended = b"", 0, False
        while True:
            wanted = max(wanted_bytes(), 1)
            while not ended and len(data) < wanted:
                fresh = read_next(wanted - len(data))
                data, ended = data + fresh, not fresh
            ends = self._ends(data)
            while not len(ends) and not ended:
                if len(data) > LONGEST_LINE_BYTES:
                    raise too_long(path, f"at byte {position} of its text")
                fresh = read_next(len(data))
                data, ended = data + fresh, not fresh
                ends = self._ends(data)
            end = int(ends[-1]) if len(ends) else 0
            if ended and end < len(data) and self._without_break.fullmatch(data, end):
                end = len(data)  # its line break is escaped
                ends = np.append(ends, end)
            if end:
                yield Records(data, 0, end, position, ends)
            data, position = data[end:], position + end
            if ended:
                if data:
                    raise without_end(path)
                return

    def _ends(self, data: bytes) -> Any:
        """Return where the records end in data that begins with one; the last may be cut off, and has no end then."""
        if not any(text in data for text in self._special) and data.count(b"\r") == data.count(b"\r\n"):
            return np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE) + 1
        ends = array("q")
        for found in self._record_or_rest.finditer(data):
            if found[1] is not None:
                break
            ends.append(found.end())
        return np.frombuffer(ends, np.int64)


def too_long(path: str, place: str) -> NeedsChange:
    return unreadable(
        path,
        f"{place}: the row is longer than {LONGEST_LINE_BYTES >> 20} MiB, or a quoted field in it has no end",
        "nothing after it can be told from it: give the mended file to a write of another name, or, if the quote is part of the "
        "text, set source.files.csv.quote: '' there",
    )


def without_end(path: str) -> NeedsChange:
    return unreadable(
        path,
        "its last quoted field has no end",
        "mend the file, or set source.files.csv.quote: '' if the character is part of the text",
    )


# Fields in quotes that go on after their closing quote, as `"say \"hi\""` does where nobody has said that \ is an escape.
#
# pyarrow reads such a field as `say \hi\""`, and says nothing.


#: What Spark, MySQL and OpenCSV write before a quote.
_BACKSLASH: Final = b"\\"


class Quotes:
    """Tells whether fields end with their closing quotes."""

    def __init__(self, options: CsvOptions) -> None:
        self._quote = options.quote.encode()
        self._escape = options.escape.encode()
        if not self._quote:
            return
        quoted, quote, delimiter = quoted_pattern(options), re.escape(self._quote), re.escape(options.delimiter.encode())
        field = rb"(?:" + quoted + rb"|(?!" + quote + rb")" + unquoted_pattern(options) + rb")"
        self._records = re.compile(rb"(?:" + field + rb"(?:" + delimiter + field + rb")*+[\r\n])*+")
        self._goes_on = re.compile(rb"(?:" + field + delimiter + rb")*+(" + quoted + rb")(?!" + delimiter + rb"|[\r\n]|\Z)")

    def check(self, data: bytes, begin: int, end: int) -> int:
        """Return where the first record begins that has no end in the data. ArrowInvalid if text follows the quote of a field.

        A field without a closing quote is no matter of this check.
        """
        if not self._quote or data.find(self._quote, begin, end) < 0:
            return end
        records = self._records.match(data, begin, end)
        rest = begin if records is None else records.end()
        if rest < end and (found := self._goes_on.match(data, rest, end)) is not None:
            is_escaped = self._escape != _BACKSLASH and found[1][-2:-1] == _BACKSLASH
            if is_escaped:
                hint = "as \\ stands before it, set source.files.csv.escape: '\\'"
            else:
                hint = "a quote in a field is doubled, or has source.files.csv.escape before it"
            raise pa.ArrowInvalid(f"text follows the closing quote of a field: {hint}")
        return rest
