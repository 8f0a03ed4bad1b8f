"""Zip archives for tests: honest ones, and those that nobody may unpack."""

from __future__ import annotations

import io
import stat
import struct
import warnings
import zipfile
from collections.abc import Callable
from typing import Final


def zip_of(files: dict[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """The same files give the same bytes: no time is in them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive, warnings.catch_warnings(action="ignore"):
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, method)
    return buffer.getvalue()


def _one(name: str, data: bytes = b"x", **attributes: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        entry = zipfile.ZipInfo(name)
        for attribute, value in attributes.items():
            setattr(entry, attribute, value)
        archive.writestr(entry, data)
    return buffer.getvalue()


def _twice() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings(action="ignore"):
        archive.writestr("a.py", "x = 1")
        archive.writestr("./a.py", "x = 2")
    return buffer.getvalue()


def _encrypted() -> bytes:
    data = bytearray(_one("a.py"))
    central = data.rindex(b"PK\x01\x02")
    data[central + 8] |= 1
    return bytes(data)


def _bomb(claims_bytes: int = 2 << 30) -> bytes:
    """A file of 1 MiB of zeros whose directory says that it is very large; the honest one is as small, and slow to make."""
    data = bytearray(zip_of({"zeros": bytes(1 << 20)}))
    central = data.rindex(b"PK\x01\x02")
    data[central + 24 : central + 28] = struct.pack("<I", claims_bytes)
    return bytes(data)


#: What is refused, and a word of why.
HOSTILE: Final[dict[str, tuple[Callable[[], bytes], str]]] = {
    "a name that climbs out": (lambda: _one("../evil.py"), "stay inside"),
    "a name that climbs out later": (lambda: _one("package/../../evil.py"), "stay inside"),
    "an absolute name": (lambda: _one("/tmp/evil.py"), "stay inside"),
    "a name of Windows": (lambda: _one("..\\evil.py"), "stay inside"),
    "a drive": (lambda: _one("C:/evil.py"), "stay inside"),
    "a name with a line break": (lambda: _one("evil\n.py"), "stay inside"),
    "a file without a name": (lambda: _one(""), "no name"),
    "a file whose name is a dot": (lambda: _one("."), "no name"),
    "a name of very many folders": (lambda: _one("a/" * 64 + "b.py"), "folders deep"),
    "a folder of very many folders": (lambda: _one("a/" * 65, b""), "folders deep"),
    "a name that no disk takes": (lambda: _one("é" * 128), "too long"),
    "a path that no disk takes": (lambda: _one("/".join(["a" * 200] * 20)), "too long"),
    "a symbolic link": (lambda: _one("link", b"/etc/passwd", external_attr=(stat.S_IFLNK | 0o777) << 16), "a link"),
    "a device": (lambda: _one("null", external_attr=(stat.S_IFCHR | 0o666) << 16), "a link or a device"),
    "a bomb": (_bomb, "unpack to"),
    "a file twice": (_twice, "twice"),
    "a file that is a folder": (lambda: zip_of({"a": "x", "a/b.py": "y"}), "a file and a folder"),
    "a locked file": (_encrypted, "encrypted"),
    "an unknown compression": (lambda: zip_of({"a.py": "x"}, zipfile.ZIP_BZIP2), "compressed"),
    "no zip": (lambda: b"print('hello')", "no zip archive"),
    "half of a zip": (lambda: zip_of({"a.py": "x = 1\n" * 100})[:60], "no zip archive"),
    "nothing": (lambda: b"", "no zip archive"),
}
