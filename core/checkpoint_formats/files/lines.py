"""Text in whole lines: where one starts, and blocks of them in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Self

import pyarrow as pa

from checkpoint_formats.failures import changed, unreadable, vanished
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.files.texts import MARK_BYTES, byte_order_mark
from checkpoint_protocol.records.inputs import SourceFile

LONGEST_LINE_BYTES: Final = 256 << 20
_READ_BYTES: Final = 4 << 20
_FIRST_READ_BYTES: Final = 64 << 10

#: Gives the next bytes of a text, about as many as asked for; none at its end.
ReadNext = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines, without copying: data[begin:end]. They lie at `position` of their text (bytes, uncompressed)."""

    data: bytes
    begin: int
    end: int
    position: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.begin

    @property
    def buffer(self) -> pa.Buffer:
        return pa.py_buffer(self.data).slice(self.begin, self.size_bytes)

    @property
    def is_blank(self) -> bool:
        starts_blank = self.begin == self.end or self.data[self.begin] in b"\r\n"
        return starts_blank and self._count(b"\n") + self._count(b"\r") == self.size_bytes

    @property
    def has_blank(self) -> bool:
        """Whether some line is blank."""
        if self.begin < self.end and self.data[self.begin] in b"\r\n":
            return True
        return any(self.data.find(pair, self.begin, self.end) >= 0 for pair in (b"\n\n", b"\n\r", b"\r\r"))

    def are_as_many_as(self, rows: int, *, spaces_are_blank: bool) -> bool:
        """Whether a parser that found so many rows, and finds none in blank lines, found one in every other line.

        What \\r, \\n and \\r\\n separate is a line, as it is for pyarrow. Each line is looked at only where the number of line
        breaks does not say it already.
        """
        breaks = self._count(b"\n") + (not self.data.endswith(b"\n", self.begin, self.end))
        if rows == breaks:
            has_returns = self.data.find(b"\r", self.begin, self.end) >= 0
            if not has_returns or self._count(b"\r") == self._count(b"\r\n"):
                return True
        lines = self.data[self.begin : self.end].splitlines()
        return rows == sum(1 for line in lines if (line.strip() if spaces_are_blank else line))

    def row_bounds(self, path: str, *, spaces_are_blank: bool) -> list[tuple[int, int]]:
        """Return from where to where each row lies, which is a line that is not blank with its line break.

        NeedsChange(SourceUnreadable) where rows are separated by \\r alone: reading begins at \\n only.
        """
        bounds: list[tuple[int, int]] = []
        at = self.begin
        while at < self.end:
            stop = self.data.find(b"\n", at, self.end) + 1 or self.end
            rows = sum(1 for line in self.data[at:stop].splitlines() if (line.strip() if spaces_are_blank else line))
            first = self.position + at - self.begin
            if rows > 1:
                raise unreadable(
                    path,
                    f"a row in the line at byte {first} failed, and cannot be told from the {rows - 1} others there",
                    "let lines end in \\n or \\r\\n, or set onRowError: Fail",
                )
            if rows:
                bounds.append((first, first + stop - at))
            at = stop
        return bounds

    def last_filled_line(self) -> bytes:
        """Return the last line that is not blank."""
        stop = self.end
        while stop > self.begin and self.data[stop - 1] in b"\r\n":
            stop -= 1
        start = max(self.data.rfind(b"\n", self.begin, stop), self.data.rfind(b"\r", self.begin, stop)) + 1
        return self.data[max(start, self.begin) : stop]

    def line_at(self, place: int) -> Lines:
        """Return the line around a place in the data that is no line break; without its break."""
        # The second search of each end stays within what the first has found: in data without \r it would go through all of it.
        start = max(self.data.rfind(b"\n", self.begin, place) + 1, self.begin)
        start = max(self.data.rfind(b"\r", start, place) + 1, start)
        end = self.data.find(b"\n", place, self.end)
        end = self.end if end < 0 else end
        carriage_return = self.data.find(b"\r", place, end)
        return self.between(start, end if carriage_return < 0 else carriage_return)

    def line_end_near_the_middle(self) -> int | None:
        """Return where the lines can be cut in two; None for a single line."""
        middle = (self.begin + self.end) // 2
        end = self.data.find(b"\n", middle, self.end - 1) + 1 or self.data.rfind(b"\n", self.begin, middle) + 1
        return end or None

    def cut_at(self, end: int) -> tuple[Self, Self]:
        return self.between(self.begin, end), self.between(end, self.end)

    def between(self, begin: int, end: int) -> Self:
        """Return a part of the lines, by places in their data."""
        return replace(self, begin=begin, end=end, position=self.position + begin - self.begin)

    def after(self, size_bytes: int) -> Lines:
        return Lines(self.data, self.begin + size_bytes, self.end, self.position + size_bytes)

    def with_break(self) -> Lines:
        if self.data.endswith(b"\n", self.begin, self.end):
            return self
        data = self.data[self.begin : self.end] + b"\n"
        return Lines(data, 0, len(data), self.position)

    def _count(self, what: bytes) -> int:
        return self.data.count(what, self.begin, self.end)


def line_blocks(read_next: ReadNext, position: int, wanted_bytes: Callable[[], int], path: str) -> Iterator[Lines]:
    """Cut a text, which starts at a position of its file, into blocks of whole lines of about the wanted size.

    A line that is longer than that makes its block longer. NeedsChange(SourceUnreadable) if one has more than
    LONGEST_LINE_BYTES.
    """
    data, begin, ended = b"", 0, False

    def more(size_bytes: int) -> None:
        nonlocal data, begin, position, ended
        fresh = read_next(max(_READ_BYTES, size_bytes))
        ended = not fresh
        data, position, begin = data[begin:] + fresh if begin < len(data) else fresh, position + begin, 0

    while True:
        wanted = wanted_bytes()
        while not ended and len(data) - begin < wanted:
            more(wanted - (len(data) - begin))
        end = _cut(data, begin, wanted, ended)
        while end is None:
            if len(data) - begin > LONGEST_LINE_BYTES:
                raise _too_long(path, position + begin)
            more(len(data) - begin)
            end = _cut(data, begin, wanted, ended)
        if end == begin:
            return
        yield Lines(data, begin, end, position + begin)
        begin = end


def _cut(data: bytes, begin: int, wanted: int, ended: bool) -> int | None:
    """Return the end of the lines to give; None if not even one has its end in the data."""
    if ended and len(data) - begin <= wanted:
        return len(data)
    after = data.rfind(b"\n", begin, begin + wanted) + 1 or data.find(b"\n", begin + wanted) + 1
    return after or (len(data) if ended else None)


def _too_long(path: str, position: int) -> Exception:
    return unreadable(
        path,
        f"the line at byte {position} is longer than {LONGEST_LINE_BYTES >> 20} MiB",
        "check that the file is text in lines, or break the line up",
    )


class ByteRange:
    """The bytes start..end of a file, read one part after another."""

    def __init__(self, files: SourceFiles, path: str, start: int, end: int) -> None:
        self._files = files
        self._path = path
        self._at = start
        self._end = end

    def read(self, size_bytes: int) -> bytes:
        stop = min(self._end, self._at + size_bytes)
        data = self._files.read_range(self._path, self._at, stop)
        if len(data) != stop - self._at:
            raise vanished(self._path)
        self._at = stop
        return data


def read_beginning(files: SourceFiles, path: str, size_bytes: int) -> bytes:
    """Return the first bytes of a file, of a text mostly its first line."""
    return ByteRange(files, path, 0, size_bytes).read(_FIRST_READ_BYTES)


def first_line(files: SourceFiles, path: str, size_bytes: int, beginning: bytes) -> Lines | None:
    """Return the first line that is not blank, without the UTF-8 byte order mark; None if there is none.

    `beginning` are the first bytes of the file, which need not be read again.
    """
    source = ByteRange(files, path, len(beginning), size_bytes)
    chunk_bytes = _FIRST_READ_BYTES

    def read_little(_: int) -> bytes:
        nonlocal chunk_bytes, beginning
        if beginning:
            data, beginning = beginning, b""
            return data
        chunk_bytes = min(chunk_bytes * 2, _READ_BYTES)
        return source.read(chunk_bytes)

    for line in line_blocks(read_little, 0, lambda: 1, path):
        if line.position == 0:
            line = line.after(byte_order_mark(path, line.data[line.begin : line.begin + MARK_BYTES]))
        if not line.is_blank:
            return line
    return None


def line_start(files: SourceFiles, file: SourceFile, position: int) -> int:
    """Return the smallest position >= the given one at which a line starts, or the end of the file."""
    end = file.size_bytes if file.end is None else file.end
    if position <= file.start:
        return file.start
    at, chunk_bytes = position - 1, _FIRST_READ_BYTES
    while at < end:
        data = files.read_range(file.path, at, min(at + chunk_bytes, end))
        if not data:
            raise vanished(file.path)
        newline = data.find(b"\n")
        if newline >= 0:
            return at + newline + 1
        at, chunk_bytes = at + len(data), min(chunk_bytes * 4, _READ_BYTES)
    return end


def piece_of_lines(
    files: SourceFiles, file: SourceFile, start: int, end: int, wanted_bytes: Callable[[], int]
) -> Iterator[Lines]:
    """Give the lines at start..end. NeedsChange(SourceChanged) if one does not start at start, or end at end."""
    if start > file.start and start < end and files.read_range(file.path, start - 1, start) != b"\n":
        raise changed(file.path, f"at byte {start} a line began, and now none does")
    last = None
    for last in line_blocks(ByteRange(files, file.path, start, end).read, start, wanted_bytes, file.path):
        if last.position + last.size_bytes == end != file.end and not last.data.endswith(b"\n", last.begin, last.end):
            raise changed(file.path, f"at byte {end} a line began, and now none does")
        yield last
