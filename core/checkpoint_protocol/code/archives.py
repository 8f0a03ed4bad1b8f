"""The zip archives that carry steps' code: what is taken, and how it is unpacked. Asked by who takes one and who unpacks one.

Anybody who may make a write chooses its archive, so nothing in one is trusted: names lead nowhere else, links are refused,
and sizes are bounded before a byte is unpacked.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

#: An archive is held in memory, and put in one request.
MAX_ARCHIVE_BYTES: Final = 256 << 20
MAX_UNPACKED_BYTES: Final = 1 << 30
MAX_FILES: Final = 50_000
#: Of a path: a package is a dozen deep, and each part costs a folder, on disk and in memory.
MAX_PARTS: Final = 64
#: Linux takes no more between slashes, and 4,096 in all, with the folder that the archive is unpacked to.
MAX_NAME_BYTES: Final = 255
MAX_PATH_BYTES: Final = 2_048

#: Of the names and attributes of all files, at the end of an archive: six hundred bytes for each.
MAX_DIRECTORY_BYTES: Final = 32 << 20

_CHUNK_BYTES: Final = 1 << 20
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)

#: What ends an archive: the number of its files, the size of its directory; after it a comment. And the same of large archives,
#: which lies before it, and a pointer to that in between. (APPNOTE.TXT 4.3.12 to 4.3.16)
_END: Final = struct.Struct("<4s4xHHIIH")
_END64: Final = struct.Struct("<4s8x2x2x4x4xQQQQ")
_POINTER: Final = struct.Struct("<4s4xQ4x")
_MOST_COMMENT_BYTES: Final = 1 << 16
#: An entry of the directory: how long its name, what is added to it, and its comment are.
_ENTRY: Final = struct.Struct("<4s24xHHH12x")


class ArchiveRefused(Exception):
    """An archive that is not taken; the text says why."""


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the archive of these files: the same bytes for the same files, whenever and wherever it is made.

    Nothing is compressed, because versions of zlib compress differently.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system, entry.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def check(data: bytes) -> list[PurePosixPath]:
    """Return the paths of the files. ArchiveRefused says why they could not, or must not, be unpacked."""
    with _opened(data) as archive:
        return list(_files_in(archive))


class OpenArchive:
    """An archive that is looked into, and never unpacked as a whole: a megabyte may stand for a gigabyte.

    ArchiveRefused says why it could not, or must not, be unpacked, and where a file cannot be read.
    """

    def __init__(self, data: bytes) -> None:
        self._archive = _opened(data)
        self._entries = {str(path): entry for path, entry in _files_in(self._archive).items()}

    @property
    def paths(self) -> Iterable[str]:
        """The paths of the files."""
        return self._entries.keys()

    def size(self, path: str) -> int:
        """Return how many bytes a file has."""
        return self._entries[path].file_size

    def chunks(self, path: str) -> Iterator[bytes]:
        """Give what a file holds, while it is unpacked."""
        entry = self._entries[path]
        try:
            with self._archive.open(entry) as packed:
                while chunk := packed.read(_CHUNK_BYTES):
                    yield chunk
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
            raise ArchiveRefused(f"{entry.filename!r} in it cannot be read: {error}") from error


def unpack(data: bytes, folder: Path) -> dict[str, int]:
    """Unpack into a folder that exists and is empty; return each file's path and size. ArchiveRefused leaves it as it then is."""
    sizes: dict[str, int] = {}
    with _opened(data) as archive:
        for path, entry in _files_in(archive).items():
            to = folder / path
            try:
                to.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as packed, to.open("xb") as file:
                    # Never more than was declared: the reader stops there, and the sum of what is declared is bounded.
                    while chunk := packed.read(_CHUNK_BYTES):
                        file.write(chunk)
                    sizes[str(path)] = file.tell()
            except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
                raise ArchiveRefused(f"{entry.filename!r} in it cannot be read: {error}") from error
    return sizes


def _opened(data: bytes) -> zipfile.ZipFile:
    if len(data) > MAX_ARCHIVE_BYTES:
        raise ArchiveRefused(f"it has {len(data):,} bytes; {MAX_ARCHIVE_BYTES:,} are the most")
    _refuse_many_entries(data)
    try:
        return zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, zipfile.LargeZipFile, ValueError, NotImplementedError) as error:
        raise ArchiveRefused(f"it is no zip archive: {error}") from error


def _refuse_many_entries(data: bytes) -> None:
    """Look at the end of an archive, and go through its directory, before anything is made of them.

    zipfile makes an object of each entry first: five millions, in 224 MiB, take two gigabytes and a minute.
    """
    start, end, told = _directory_of(data)
    if told > MAX_FILES:
        raise ArchiveRefused(f"it has {told:,} files; {MAX_FILES:,} are the most")
    if end - start > MAX_DIRECTORY_BYTES:
        raise ArchiveRefused(
            f"the names and attributes of its files have {end - start:,} bytes; {MAX_DIRECTORY_BYTES:,} are the most"
        )
    count, at = 0, start
    while at < end:
        # What it tells of their number need not be so.
        if at + _ENTRY.size > end:
            raise ArchiveRefused("it is no zip archive: its directory is cut off")
        signature, *lengths = _ENTRY.unpack_from(data, at)
        if signature != b"PK\x01\x02":
            raise ArchiveRefused("it is no zip archive: its directory has something else in it")
        at, count = at + _ENTRY.size + sum(lengths), count + 1
        if count > MAX_FILES:
            raise ArchiveRefused(f"it has more than {MAX_FILES:,} files, which are the most")


def _directory_of(data: bytes) -> tuple[int, int, int]:
    """Return where the directory begins and ends, and how many entries it is said to have."""
    end = len(data) - _END.size
    if end < 0 or not (data.startswith(b"PK\x05\x06", end) and data.endswith(b"\0\0")):
        end = data.rfind(b"PK\x05\x06", max(0, end - _MOST_COMMENT_BYTES))
    if end < 0 or end + _END.size > len(data):
        raise ArchiveRefused("it is no zip archive: it does not end as one (cut off?)")
    _, _, count, size_bytes, _, _ = _END.unpack_from(data, end)
    pointer = end - _POINTER.size
    if pointer >= 0 and data.startswith(b"PK\x06\x07", pointer):
        end = pointer - _END64.size
        if end < 0 or not data.startswith(b"PK\x06\x06", end):
            raise ArchiveRefused("it is no zip archive that is known here: what it says of its size lies elsewhere")
        _, _, count, size_bytes, _ = _END64.unpack_from(data, end)
    if size_bytes > end:
        raise ArchiveRefused("it is no zip archive: its directory is larger than itself (cut off?)")
    return end - size_bytes, end, count


def _files_in(archive: zipfile.ZipFile) -> dict[PurePosixPath, zipfile.ZipInfo]:
    entries = archive.infolist()
    if len(entries) > MAX_FILES:
        raise ArchiveRefused(f"it has {len(entries):,} files; {MAX_FILES:,} are the most")
    size_bytes = sum(entry.file_size for entry in entries)
    if size_bytes > MAX_UNPACKED_BYTES:
        raise ArchiveRefused(f"it would unpack to {size_bytes:,} bytes; {MAX_UNPACKED_BYTES:,} are the most")
    files: dict[PurePosixPath, zipfile.ZipInfo] = {}
    folders: set[PurePosixPath] = set()
    for entry in entries:
        path = _path_of(entry)
        if entry.is_dir():
            folders.add(path)
        elif path in files:
            raise ArchiveRefused(f"{entry.filename!r} is in it twice")
        else:
            files[path] = entry
        folders.update(path.parents)
    if both := sorted(str(path) for path in files if path in folders):
        raise ArchiveRefused(f"{both[0]!r} is a file and a folder in it")
    return files


def _path_of(entry: zipfile.ZipInfo) -> PurePosixPath:
    name = entry.filename
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or not name.isprintable():
        raise ArchiveRefused(f"the name {name!r} in it does not stay inside a folder; names are relative, with / and without ..")
    # zipfile's own is_dir() looks at the last character of a name, and an empty one has none.
    if not path.parts and not name.endswith("/"):
        raise ArchiveRefused("a file in it has no name")
    if len(path.parts) > MAX_PARTS:
        raise ArchiveRefused(f"{name[:100]!r}... in it lies {len(path.parts) - 1:,} folders deep; {MAX_PARTS - 1} are the most")
    if len(name.encode()) > MAX_PATH_BYTES or any(len(part.encode()) > MAX_NAME_BYTES for part in path.parts):
        raise ArchiveRefused(
            f"the name {name[:100]!r}... in it is too long: {MAX_PATH_BYTES:,} bytes are the most, and {MAX_NAME_BYTES} between "
            "slashes"
        )
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ArchiveRefused(f"{name!r} in it is a link or a device; put the file itself in")
    if entry.flag_bits & 0x1:
        raise ArchiveRefused(f"{name!r} in it is encrypted")
    if entry.compress_type not in _METHODS:
        raise ArchiveRefused(f"{name!r} in it is compressed in a way that is not known here; use deflate")
    return path
