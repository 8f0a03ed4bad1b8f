"""The text of a CSV file on its way to pyarrow, which is read from its start."""

from __future__ import annotations

from typing import Protocol

from checkpoint_formats.failures import unreadable
from checkpoint_formats.files.csv.nulls import MarkedText, NullMarks
from checkpoint_formats.files.csv.records import Quotes
from checkpoint_protocol.manifest.sources.source import CsvOptions


class _Text(Protocol):
    def read(self, size_bytes: int) -> bytes: ...
    def close(self) -> None: ...


class EndedText:
    """A text, and then `tail`. NeedsChange(SourceUnreadable) where the text ends with an escape: it would change the tail."""

    def __init__(self, text: _Text, tail: bytes, path: str, options: CsvOptions) -> None:
        self._text = text
        self._tail = tail
        self._path = path
        self._escape = options.escape
        # Where it is the quote too, the last quote of a file is one.
        self._looks = options.escape not in ("", options.quote)
        self._escapes = 0
        self._size_bytes = 0

    def read(self, size_bytes: int) -> bytes:
        """Return so many bytes; fewer only at the end."""
        data = self._text.read(size_bytes)
        self._size_bytes += len(data)
        if self._looks and data:
            at_end = len(data) - len(data.rstrip(self._escape.encode()))
            self._escapes = at_end + (self._escapes if at_end == len(data) else 0)
        if len(data) < size_bytes:
            if self._escapes % 2:
                raise unreadable(
                    self._path,
                    f"its last byte, at byte {self._size_bytes - 1} of its text, is the escape {self._escape!r}",
                    "mend the end of the file: write what the escape stands before, or remove the escape",
                )
            missing = size_bytes - len(data)
            data, self._tail = data + self._tail[:missing], self._tail[missing:]
        return data

    def close(self) -> None:
        self._text.close()


class QuotedText:
    """A text for pyarrow, in which quotes are counted.

    What is given never ends between \\r and \\n: pyarrow takes that for the end of a row also inside quotes, and drops the \\n.
    """

    closed = False

    def __init__(self, text: _Text, quote: bytes) -> None:
        self._text = text
        self._quote = quote
        self._kept = b""
        self.quotes = 0

    def read(self, size_bytes: int) -> bytes:
        data = self._kept + self._text.read(size_bytes - len(self._kept))
        self._kept = b"\r" if len(data) > 1 and data.endswith(b"\r") else b""
        data = data[: len(data) - len(self._kept)]
        if self._quote:
            self.quotes += data.count(self._quote)
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
        self._text.close()


class CheckedText:
    """A text for pyarrow, with marks for null values. To read it is ArrowInvalid where text follows a closing quote."""

    closed = False

    def __init__(self, text: QuotedText, quotes: Quotes, nulls: NullMarks, *, has_header: bool) -> None:
        self._text = text
        self._quotes = quotes
        #: The beginning of a record whose end is not read yet.
        self._begun = b""
        self._give = MarkedText(self._checked, nulls, has_header=has_header).read if nulls else self._checked

    def read(self, size_bytes: int) -> bytes:
        return self._give(size_bytes)

    def _checked(self, size_bytes: int) -> bytes:
        data = self._text.read(size_bytes)
        unchecked = self._begun + data
        self._begun = unchecked[self._quotes.check(unchecked, 0, len(unchecked)) :]
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
        self._text.close()
