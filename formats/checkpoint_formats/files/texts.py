"""Text files before they are cut into lines: encoding and compression."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from checkpoint_formats.failures import reading, unreadable
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_protocol.manifest import SourceOptions

UTF8_MARK: Final = b"\xef\xbb\xbf"
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_OTHER_COMPRESSION: Final = (".bz2", ".zst", ".xz", ".lz4", ".zip", ".snappy", ".br", ".7z")
_BUFFER_BYTES: Final = 4 << 20


def is_gzip(path: str, options: SourceOptions) -> bool:
    """Whether a file is to be decompressed. NeedsChange(SourceUnreadable) for a compression that is not supported."""
    name = path.lower()
    if options.compression == "auto" and name.endswith(_OTHER_COMPRESSION):
        raise unreadable(
            path,
            "by its name it is compressed, and only gzip is supported",
            "recompress it with gzip (or set source.options.compression: none, if it is plain text)",
        )
    return options.compression == "gzip" or (options.compression == "auto" and name.endswith(".gz"))


def byte_order_mark(path: str, first_bytes: bytes) -> int:
    """Return the length of the UTF-8 byte order mark that a text starts with. NeedsChange(SourceUnreadable) for UTF-16."""
    if first_bytes.startswith(_UTF16_MARKS):
        raise unreadable(path, "it is UTF-16 text", "convert it to UTF-8")
    return len(UTF8_MARK) if first_bytes.startswith(UTF8_MARK) else 0


class TextStream:
    """The bytes of a text from its start, decompressed, without byte order mark, and then `tail`.

    Looks like a file to pyarrow, which hands on what `read` raises.
    """

    closed = False

    def __init__(self, files: SourceFiles, path: str, gzip: bool, tail: bytes = b"") -> None:
        self._path = path
        self._tail = tail
        self._is_start = True
        raw = pa.BufferedInputStream(files.open_arrow(path), _BUFFER_BYTES)
        self._opened = pa.CompressedInputStream(raw, "gzip") if gzip else raw

    def read(self, size_bytes: int) -> bytes:
        """Return so many bytes; fewer only where the text ends, as pyarrow takes what it gets for a block."""
        parts: list[bytes] = []
        missing = size_bytes
        while missing > 0 and (part := self._read_some(missing)):
            parts.append(part)
            missing -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_some(self, size_bytes: int) -> bytes:
        with reading(self._path, "it cannot be read", "replace it, or correct source.options.compression"):
            data: bytes = self._opened.read(size_bytes)
            if self._is_start:
                self._is_start = False
                while data and len(data) < len(UTF8_MARK) and (more := self._opened.read(len(UTF8_MARK))):
                    data += more
                # Nothing would be taken for the end of the text.
                data = data[byte_order_mark(self._path, data[:3]) :] or self._opened.read(size_bytes)
        if not data:
            data, self._tail = self._tail[:size_bytes], self._tail[size_bytes:]
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
        self._opened.close()
