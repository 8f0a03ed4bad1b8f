"""Which files the source's paths mean. Listed here to be looked at; a run lists them by itself.

A copy of what the Spark application does (`checkpoint_spark.sources`: locations, patterns, disk, buckets), which the operator
must not import; a test holds the two together.
"""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import obstore
import obstore.exceptions as obstore_errors
from obstore.store import from_url

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.storage import StorageSettings, obstore_options
from checkpoint_protocol.store import translate_store_error

_BUCKET_SCHEMES: Final = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
_NOT_THERE: Final = (obstore_errors.NotFoundError, FileNotFoundError)
_FAILURES: Final = (obstore_errors.BaseError, OSError)

_BUFFER_BYTES: Final = 64 << 10

_State = frozenset[int]


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that is there, as it is now. `root` is scheme and bucket, or empty on disk."""

    root: str
    key: str
    size_bytes: int

    @property
    def path(self) -> str:
        return f"{self.root}/{self.key}" if self.root else self.key


@dataclass(slots=True)
class SourceListing:
    """Finds and opens input files. Raises Retryable where a store does not answer, NeedsChange where it refuses us."""

    storage: StorageSettings
    _stores: dict[str, Any] = field(default_factory=dict)

    def find(self, path: str) -> list[FoundFile]:
        """Return the files that a path means (a file, a folder, a pattern), sorted by path; none if it means none."""
        root, key = _locate(path)
        folder, pattern = _split(key)
        if not pattern.segments and not path.endswith("/") and (file := self._head(root, key)) is not None:
            return [file]
        found = self._walk_bucket(root, folder, pattern) if root else _walk_disk(folder or "/", pattern)
        return sorted(found, key=lambda file: file.path)

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
                return FoundFile(root, key, obstore.head(self._store(root, f"{root}/{key}"), key)["size"])
            except _NOT_THERE:
                return None
            except _FAILURES as error:
                raise translate_store_error(error, f"{root}/{key}") from error
        try:
            status = os.stat(key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise translate_store_error(error, key) from error
        return FoundFile("", key, status.st_size) if stat.S_ISREG(status.st_mode) else None

    def _walk_bucket(self, root: str, folder: str, pattern: _Pattern) -> Iterator[FoundFile]:
        depth = len(folder.split("/")) if folder else 0
        try:
            for listed in obstore.list(self._store(root, f"{root}/{folder}"), prefix=folder or None):
                for meta in listed:
                    key, size_bytes = meta["path"], meta["size"]
                    if not pattern.matches(key.split("/")[depth:]):
                        continue
                    # Tools mark folders by empty objects whose names end in a slash; listings show them without it.
                    if size_bytes > 0 or self._head(root, key) is not None:
                        yield FoundFile(root, key, size_bytes)
        except _FAILURES as error:
            raise translate_store_error(error, f"{root}/{folder}") from error

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


@dataclass(frozen=True, slots=True)
class _Pattern:
    """The names below a folder that are meant: * and ? within one name, ** for any number of folders.

    Without segments, everything. What is below a matching folder matches. Names that start with _ or . are taken only where
    the pattern itself spells that character.
    """

    segments: tuple[str, ...]

    def start(self) -> _State:
        return self._closed({0})

    def step(self, state: _State, name: str) -> _State:
        """Return the state below a folder (or at a file) of this name. An empty state: nothing below can match."""
        reached: set[int] = set()
        for index in state:
            if index == len(self.segments) or self.segments[index] == "**":
                if not name.startswith(("_", ".")):
                    reached.add(index)
            elif _meets(self.segments[index], name):
                reached.add(index + 1)
        return self._closed(reached)

    def accepts(self, state: _State) -> bool:
        return len(self.segments) in state

    def matches(self, names: Sequence[str]) -> bool:
        state = self.start()
        for name in names:
            state = self.step(state, name)
        return self.accepts(state)

    def _closed(self, state: set[int]) -> _State:
        for index in sorted(state):
            while index < len(self.segments) and self.segments[index] == "**":
                index += 1
                state.add(index)
        return frozenset(state)


def _meets(segment: str, name: str) -> bool:
    if name.startswith(("_", ".")) and not segment.startswith(name[0]):
        return False
    wild = {"*": ".*", "?": "."}
    expression = "".join(wild.get(character) or re.escape(character) for character in segment)
    return re.fullmatch(expression, name, re.DOTALL) is not None


def _locate(path: str) -> tuple[str, str]:
    scheme, separator, rest = path.partition("://")
    if path.startswith("file:"):
        return "", os.path.abspath(re.sub(r"^file:(//[^/]*)?", "", path))
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return "", os.path.abspath(path)
    bucket, _, key = rest.partition("/")
    if scheme not in _BUCKET_SCHEMES or not bucket:
        known = ", ".join(f"{known}://" for known in _BUCKET_SCHEMES)
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"{path} cannot be read: a path on disk, file: or one of {known} with a bucket is expected",
        )
    if key.startswith("/") or "//" in key:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"{path} has an empty folder name (//); such keys cannot be read")
    return f"{scheme}://{bucket}", key


def _split(key: str) -> tuple[str, _Pattern]:
    names = key.split("/")
    wild = next((i for i, name in enumerate(names) if "*" in name or "?" in name), None)
    if wild is None:
        return key.rstrip("/"), _Pattern(())
    return "/".join(names[:wild]), _Pattern(tuple(name for name in names[wild:] if name))


def _walk_disk(folder: str, pattern: _Pattern) -> Iterator[FoundFile]:
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
                if stat.S_ISDIR(found.st_mode):
                    pending.append((entry.path, reached, above | {(status.st_dev, status.st_ino)}))
                elif stat.S_ISREG(found.st_mode) and pattern.accepts(reached):
                    yield FoundFile("", entry.path, found.st_size)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise translate_store_error(error, here) from error
