"""Text files before they are cut into lines: encoding and compression."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from checkpoint_formats.failures import reading, unreadable
from checkpoint_formats.files.source_files import SourceFiles

UTF8_MARK: Final = b"\xef\xbb\xbf"
#: With a mark at the start, and without one: the first characters of a text are mostly ASCII, and only so have zeros around them.
_OTHER_ENCODINGS: Final = {
    "UTF-32": re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff|\0\0\0[^\0]|[^\0]\0\0\0"),
    "UTF-16": re.compile(rb"\xff\xfe|\xfe\xff|(?:\0[^\0]){2}|(?:[^\0]\0){2}"),
}
#: How other formats begin, so that a file is not taken for text.
_OTHER_FORMATS: Final = {b"PAR1\x15": "Parquet", b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"Obj\x01": "Avro"}
#: So many bytes tell whether a text has a mark, or is none.
MARK_BYTES: Final = 5
_OTHER_COMPRESSION: Final = (".bz2", ".zst", ".xz", ".lz4", ".zip", ".snappy", ".br", ".7z")
_BUFFER_BYTES: Final = 4 << 20


def is_gzip(path: str, compression: str) -> bool:
    """Whether a file is to be decompressed, by its name and source.files.compression.

    NeedsChange(SourceUnreadable) for a compression that is not supported.
    """
    name = path.lower()
    if compression == "Auto" and name.endswith(_OTHER_COMPRESSION):
        raise unreadable(
            path,
            "by its name it is compressed, and only gzip is supported",
            "recompress it with gzip (or set source.files.compression: None, if it is plain text)",
        )
    return compression == "Gzip" or (compression == "Auto" and name.endswith(".gz"))


def byte_order_mark(path: str, first_bytes: bytes) -> int:
    """Return the length of the UTF-8 byte order mark that a text starts with. NeedsChange(SourceUnreadable) for what is none."""
    if (encoding := next((name for name, start in _OTHER_ENCODINGS.items() if start.match(first_bytes)), None)) is not None:
        raise unreadable(path, f"it is {encoding} text", "convert it to UTF-8")
    if (other := next((name for magic, name in _OTHER_FORMATS.items() if first_bytes.startswith(magic)), None)) is not None:
        raise unreadable(path, f"it is not text but {other}", "correct source.files.format or the path")
    return len(UTF8_MARK) if first_bytes.startswith(UTF8_MARK) else 0


class TextStream:
    """The bytes of a text from its start, decompressed, without byte order mark.

    Looks like a file to pyarrow, which hands on what `read` raises.
    """

    closed = False

    def __init__(self, files: SourceFiles, path: str, gzip: bool) -> None:
        self._path = path
        self._settings_place = files.settings_place
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
        with reading(self._path, "it cannot be read", "replace it, or correct source.files.compression", self._settings_place):
            data: bytes = self._opened.read(size_bytes)
            if self._is_start:
                self._is_start = False
                while data and len(data) < MARK_BYTES and (more := self._opened.read(MARK_BYTES)):
                    data += more
                # Nothing would be taken for the end of the text.
                data = data[byte_order_mark(self._path, data[:MARK_BYTES]) :] or self._opened.read(size_bytes)
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
        self._opened.close()
