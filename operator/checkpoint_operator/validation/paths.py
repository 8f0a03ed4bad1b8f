"""Which files the source's paths mean. Listed here to be looked at; a run lists them by itself.

A copy of what the Spark application does (`checkpoint_spark.sources`: files, disk, buckets), which the operator must not
import; a test holds the two together.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import obstore
import obstore.exceptions as obstore_errors
from obstore.store import from_url

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.patterns import Pattern, split
from checkpoint_protocol.source_paths import Location, better_name, identity_of, identity_on_disk, is_folder, locate
from checkpoint_protocol.storage import StorageSettings, obstore_options
from checkpoint_protocol.store import translate_store_error

_NOT_THERE: Final = (obstore_errors.NotFoundError, FileNotFoundError)
_FAILURES: Final = (obstore_errors.BaseError, OSError)

_BUFFER_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that is there, as it is now. `root` is scheme and bucket, or empty on disk.

    `identity` is the same under all of its names; the files of a table have one name each, and none of these.
    """

    root: str
    key: str
    size_bytes: int
    identity: str = ""

    @property
    def path(self) -> str:
        return f"{self.root}/{self.key}" if self.root else self.key


@dataclass(slots=True)
class SourceListing:
    """Finds and opens input files. Raises Retryable where a store does not answer, NeedsChange where it refuses us."""

    storage: StorageSettings
    _stores: dict[str, Any] = field(default_factory=dict)

    def find(self, path: str) -> list[FoundFile]:
        """Return the files that a path means (a file, a folder, a pattern), each once, sorted by path; none if it means none."""
        location = locate(path)
        root, key = location.root, location.key
        folder, pattern = split(key)
        if not pattern.segments and not is_folder(path) and (file := self._head(root, key)) is not None:
            return [file]
        return each_once(self._walk_bucket(root, folder, pattern) if root else _walk_disk(folder or "/", pattern))

    def open(self, file: FoundFile) -> IO[bytes]:
        """Return the file to read from any place of it."""
        if file.root:
            return io.BufferedReader(_BucketFile(self._store(file.root, file.path), file), _BUFFER_BYTES)
        try:
            return Path(file.key).open("rb")
        except OSError as error:
            raise translate_store_error(error, file.path) from error

    def _head(self, root: str, key: str) -> FoundFile | None:
        if root:
            if not key:
                return None
            try:
                return self._in_bucket(root, key, obstore.head(self._store(root, f"{root}/{key}"), key)["size"])
            except _NOT_THERE:
                return None
            except _FAILURES as error:
                raise translate_store_error(error, f"{root}/{key}", self.storage.place) from error
        try:
            status = os.stat(key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link to itself
                return None
            raise translate_store_error(error, key) from error
        return _on_disk(key, status) if stat.S_ISREG(status.st_mode) else None

    def _in_bucket(self, root: str, key: str, size_bytes: int) -> FoundFile:
        return FoundFile(root, key, size_bytes, identity_of(Location(root, key), self.storage))

    def _walk_bucket(self, root: str, folder: str, pattern: Pattern) -> Iterator[FoundFile]:
        depth = len(folder.split("/")) if folder else 0
        try:
            for listed in obstore.list(self._store(root, f"{root}/{folder}"), prefix=folder or None):
                for meta in listed:
                    key, size_bytes = meta["path"], meta["size"]
                    if not pattern.matches(key.split("/")[depth:]):
                        continue
                    # Tools mark folders by empty objects whose names end in a slash; listings show them without it.
                    if size_bytes > 0 or self._head(root, key) is not None:
                        yield self._in_bucket(root, key, size_bytes)
        except _FAILURES as error:
            raise translate_store_error(error, f"{root}/{folder}", self.storage.place) from error

    def _store(self, root: str, text: str) -> Any:
        entry = self.storage.entry_for(text)
        key = f"{root} {entry.prefix if entry else ''}"
        if key not in self._stores:
            try:
                self._stores[key] = from_url(root, **obstore_options(text, self.storage))
            except (obstore_errors.BaseError, ValueError) as error:
                raise NeedsChange(reasons.MANIFEST_INVALID, f"{text} cannot be read with these settings: {error}") from error
        return self._stores[key]


class _BucketFile(io.RawIOBase):
    """An object as a file: each read is one request for a range."""

    def __init__(self, store: Any, file: FoundFile) -> None:
        self._store = store
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size_bytes}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._file.size_bytes)
        if self._at >= end:
            return 0
        try:
            data = bytes(obstore.get_range(self._store, self._file.key, start=self._at, end=end))
        except _FAILURES as error:
            raise translate_store_error(error, self._file.path) from error
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def each_once(files: Iterable[FoundFile]) -> list[FoundFile]:
    """Return files, sorted by path, each under one name."""
    found: dict[str, FoundFile] = {}
    for file in files:
        known = found.get(file.identity, file)
        if known is file or better_name(known.path, file.path) == file.path:
            found[file.identity] = file
    return sorted(found.values(), key=lambda file: file.path)


def _on_disk(path: str, status: os.stat_result) -> FoundFile:
    return FoundFile("", path, status.st_size, identity_on_disk(path, status))


def _walk_disk(folder: str, pattern: Pattern) -> Iterator[FoundFile]:
    """Give the regular files below a folder that match. Links are followed, into a loop only once."""
    pending = [(folder, pattern.start(), frozenset[tuple[int, int]]())]
    while pending:
        here, state, above = pending.pop()
        try:
            status = os.stat(here)
            entries = list(os.scandir(here))
            if (status.st_dev, status.st_ino) in above:
                continue
            for entry in entries:
                if not (reached := pattern.step(state, entry.name)):
                    continue
                try:
                    found = entry.stat()
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if error.errno == errno.ELOOP:  # a link to itself
                        continue
                    raise
                if stat.S_ISDIR(found.st_mode):
                    pending.append((entry.path, reached, above | {(status.st_dev, status.st_ino)}))
                elif stat.S_ISREG(found.st_mode) and pattern.accepts(reached):
                    yield _on_disk(entry.path, found)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise translate_store_error(error, here) from error
