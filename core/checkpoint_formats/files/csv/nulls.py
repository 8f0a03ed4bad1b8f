r"""Null values that have the escape in them, such as MySQL's \N: for pyarrow it is the text N.

pyarrow compares what is left once the escapes are taken away, so that it takes \\N, which is the text \N, for such a null value,
and \N not. Here the text is compared as it stands in the file, and where a whole field is such a null value, a mark of our own is
handed to pyarrow in its place. Marks are drawn anew in every process, so that no file has one.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from checkpoint_formats.files.csv.records import quoted_pattern, unescaped_pattern
from checkpoint_protocol.manifest.sources.source import CsvOptions

_PRIVATE_USE: Final = range(0xE000, 0xF900)
#: The first three characters of each mark, drawn from 6,400 each. The fourth tells which null value it stands for.
_DRAWN: Final = "".join(chr(secrets.choice(_PRIVATE_USE)) for _ in range(3))


class NullMarks:
    """Puts marks into CSV text. `for_pyarrow` are the null values that pyarrow is to know then."""

    def __init__(self, options: CsvOptions) -> None:
        escape, quote, delimiter = (text.encode() for text in (options.escape, options.quote, options.delimiter))
        escaped = [text for text in options.null_values if options.escape and options.escape in text]
        self._marks: dict[str, str] = {}
        #: Those with an escape are never left to pyarrow, also where no field can look like one.
        self.for_pyarrow = tuple(text for text in options.null_values if text not in escaped)
        text = unescaped_pattern(options, delimiter)
        if quote:
            text = rb"(?!" + re.escape(quote) + rb")" + text
        fields = [null for null in escaped if re.fullmatch(text, null.encode())]
        if not fields:
            return
        self._marks = {null: _DRAWN + chr(_PRIVATE_USE[number]) for number, null in enumerate(fields)}
        self._bytes = {null.encode(): mark.encode() for null, mark in self._marks.items()}
        self.for_pyarrow += tuple(self._marks.values())
        self._quote = quote
        self._borders = (b"\n", b"\r", delimiter)
        border = rb"[\r\n" + re.escape(delimiter) + rb"]"
        self._escaped_border = re.compile(re.escape(escape) + border)
        field = (
            rb"(?:" + quoted_pattern(options) + unescaped_pattern(options, delimiter) + rb"|" + text + rb")" if quote else text
        )
        before, after = rb"(?<![^\r\n" + re.escape(delimiter) + rb"])", rb"(?=" + border + rb")"
        self._between_borders = [(re.compile(before + re.escape(each) + after), mark) for each, mark in self._bytes.items()]
        null = rb"(?:" + rb"|".join(map(re.escape, self._bytes)) + rb")" + after
        #: Whole fields up to a null value or to the last border; an empty match where neither is left.
        self._to_null = re.compile(rb"((?:(?!" + null + rb")" + field + border + rb")*+)(" + null + rb")?")
        self._record = re.compile(rb"[\r\n]*+" + field + rb"(?:" + re.escape(delimiter) + field + rb")*+[\r\n]")

    def __bool__(self) -> bool:
        return bool(self._marks)

    def put_into(self, data: bytes) -> tuple[bytes, int]:
        """Return text, which begins with a field, with marks, and how much of it that is: its last field may have no end yet."""
        if self._has_plain_borders(data):
            end = max(data.rfind(border) for border in self._borders) + 1
            marked = data[:end]
            for spelling, mark in self._between_borders:
                marked = spelling.sub(mark, marked)
            return marked, end
        parts: list[bytes] = []
        at = 0
        for found in self._to_null.finditer(data):
            fields, null = found.groups()
            if not fields and null is None:
                break
            parts.append(fields)
            if null is not None:
                parts.append(self._bytes[null])
            at = found.end()
        return b"".join(parts), at

    def _has_plain_borders(self, data: bytes) -> bool:
        """Whether no delimiter and no line break is inside of a field: then each null value can be seen without what precedes."""
        return not (self._quote and self._quote in data) and self._escaped_border.search(data) is None

    def into_rows(self, data: bytes) -> bytes:
        """Return whole records with marks."""
        marked, end = self.put_into(data)
        return marked + data[end:]

    def end_of_header(self, data: bytes) -> int:
        """Return where the first record that is not blank ends; 0 if it has no end in the data."""
        found = self._record.match(data)
        return 0 if found is None else found.end()

    def spelled_out(self, message: str) -> str:
        """Return a message of pyarrow's with what stands in the file in the place of marks."""
        for text, mark in self._marks.items():
            message = message.replace(mark, text)
        return message


class MarkedText:
    """A text for pyarrow with marks in it; `read` gives the text. In the header, null values are names like any other."""

    def __init__(self, read: Callable[[int], bytes], nulls: NullMarks, *, has_header: bool) -> None:
        self._read = read
        self._nulls = nulls
        self._is_header = has_header
        self._raw = b""
        self._ready = b""
        self._ended = False

    def read(self, size_bytes: int) -> bytes:
        """Return so many bytes; fewer only where the text ends. ArrowInvalid, as of pyarrow, for a longer field."""
        parts, size = [self._ready], len(self._ready)
        while size < size_bytes and not self._ended:
            fresh = self._read(size_bytes)
            self._ended = not fresh
            marked = self._marked(fresh)
            parts.append(marked)
            size += len(marked)
            if len(self._raw) > 2 * size_bytes:
                # It is read again with larger blocks, up to what a row may be long.
                raise pa.ArrowInvalid("straddling object straddles two block boundaries")
        data = b"".join(parts)
        end = min(size_bytes, len(data))
        if 1 < end < len(data) and data[end - 1 : end + 1] == b"\r\n":
            end -= 1  # pyarrow is given no part of it, see QuotedText
        self._ready = data[end:]
        return data[:end]

    def _marked(self, fresh: bytes) -> bytes:
        raw, header = self._raw + fresh, b""
        if self._is_header and (end := self._nulls.end_of_header(raw)):
            self._is_header = False
            header, raw = raw[:end], raw[end:]
        marked, end = (b"", 0) if self._is_header else self._nulls.put_into(raw)
        if self._ended:
            # What has no end is left to pyarrow and to the check for quotes without one.
            self._raw = b""
            return header + marked + raw[end:]
        self._raw = raw[end:]
        return header + marked
