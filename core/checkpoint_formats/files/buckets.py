"""Input files in object stores, over obstore; pyarrow's own client reads Parquet and compressed text on S3."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import obstore
import obstore.exceptions as obstore_errors
import pyarrow as pa
import pyarrow.fs
from obstore.store import from_url

from checkpoint_formats.failures import reading, vanished
from checkpoint_formats.files.locations import FoundFile
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, one_line
from checkpoint_protocol.places.patterns import Pattern
from checkpoint_protocol.places.setting_values import SettingsPlace
from checkpoint_protocol.places.source_paths import Location, identity_of
from checkpoint_protocol.places.storage import StorageSettings, entry_of, is_read_by_pyarrow, obstore_options, pyarrow_options
from checkpoint_protocol.store.object_store import head_object, translate_store_error

_NOT_THERE: Final = (obstore_errors.NotFoundError, FileNotFoundError)
_FAILURES: Final = (obstore_errors.BaseError, OSError)
_BEHIND_THE_END: Final = "416 Range Not Satisfiable"
_READ_AHEAD_BYTES: Final = 4 << 20
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_ClientKey = tuple[str, str | None]


class Buckets:
    """Finds and reads objects. Keeps one client for each bucket and storage entry; safe to use from several threads."""

    def __init__(self, storage: StorageSettings) -> None:
        self._storage = storage
        self._stores: dict[_ClientKey, Any] = {}
        self._filesystems: dict[_ClientKey, pa.fs.FileSystem] = {}
        self._lock = threading.Lock()

    def head(self, location: Location) -> FoundFile | None:
        if not location.key:
            return None
        try:
            return self._found(location, head_object(self._store(location), location.key))
        except _NOT_THERE:
            return None
        except _FAILURES as error:
            raise translate_store_error(error, location.text, self._storage.place) from error

    def walk(self, folder: Location, pattern: Pattern) -> Iterator[FoundFile]:
        """Give the objects below a folder that match. NeedsChange for one in a part of it that is not granted."""
        is_parted = self._storage.tenant is not None and self._storage.has_entries_below(folder.text)
        depth = len(folder.key.split("/")) if folder.key else 0
        try:
            for listed in obstore.list(self._store(folder), prefix=folder.key or None):
                for meta in listed:
                    if not pattern.matches(meta["path"].split("/")[depth:]):
                        continue
                    at = folder.at(meta["path"])
                    if is_parted:
                        entry_of(at.text, self._storage)
                    # Tools mark folders by empty objects whose names end in a slash; listings show them without it.
                    if meta["size"] > 0 or self.head(at) is not None:
                        yield self._found(at, meta)
        except _FAILURES as error:
            raise translate_store_error(error, folder.text, self._storage.place) from error

    def identify(self, location: Location) -> str:
        return identity_of(location, self._storage)

    def _found(self, location: Location, meta: Any) -> FoundFile:
        # A store without etags still tells when an object was written.
        etag = meta["e_tag"] or meta["version"] or meta["last_modified"].isoformat()
        modified_us = (meta["last_modified"] - _EPOCH) // timedelta(microseconds=1)
        return FoundFile(location.text, etag.strip('"'), meta["size"], self.identify(location), modified_us)

    def read_range(self, location: Location, start: int, end: int) -> bytes:
        with _reading(location, self._storage.place):
            return bytes(obstore.get_range(self._store(location), location.key, start=start, end=end))

    def open_arrow(self, location: Location) -> pa.NativeFile:
        if is_read_by_pyarrow(location.text, self._storage):
            with reading(location.text, "it cannot be opened", "check its name", self._storage.place):
                bucket = location.root.partition("://")[2]
                return self._filesystem(location).open_input_file(f"{bucket}/{location.key}")
        return self.open_arrow_by_obstore(location)

    def open_arrow_by_obstore(self, location: Location) -> pa.NativeFile:
        """Return the object for pyarrow where its own clients cannot be given all that the settings say.

        That is GCS (a key file), Azure (an endpoint) and keys that a catalog hands out. Reads of one file wait for each other.
        """
        with _reading(location, self._storage.place):
            return open_for_arrow(self._store(location), location, self._storage.place)

    def _client_key(self, location: Location) -> _ClientKey:
        entry = self._storage.entry_for(location.text)
        return location.root, None if entry is None else entry.prefix

    def _store(self, location: Location) -> Any:
        key = self._client_key(location)
        with self._lock:
            if key not in self._stores:
                try:
                    self._stores[key] = from_url(location.root, **obstore_options(location.text, self._storage))
                except (obstore_errors.BaseError, ValueError) as error:
                    raise NeedsChange(
                        reasons.MANIFEST_INVALID, f"source: {location.text} cannot be read with these settings: {one_line(error)}"
                    ) from error
            return self._stores[key]

    def _filesystem(self, location: Location) -> pa.fs.FileSystem:
        key = self._client_key(location)
        with self._lock:
            if key not in self._filesystems:
                self._filesystems[key] = pa.fs.S3FileSystem(**pyarrow_options(location.text, self._storage))
            return self._filesystems[key]


def open_for_arrow(store: obstore.store.ObjectStore, location: Location, settings: SettingsPlace) -> pa.NativeFile:
    """Return an object as a file of pyarrow. Raises what obstore raises."""
    reader = obstore.open_reader(store, location.key, buffer_size=_READ_AHEAD_BYTES)
    return pa.PythonFile(_ObstoreFile(reader, location, settings), mode="r")


class _ObstoreFile:
    """An obstore reader as pyarrow wants a file. What its methods raise, pyarrow hands on."""

    closed = False

    def __init__(self, reader: obstore.ReadableFile, location: Location, settings: SettingsPlace) -> None:
        self._reader = reader
        self._location = location
        self._settings = settings

    def read(self, size_bytes: int) -> bytes:
        with _reading(self._location, self._settings):
            return bytes(self._reader.read(size_bytes))

    def seek(self, offset: int, whence: int = 0) -> int:
        with _reading(self._location, self._settings):
            return self._reader.seek(offset, whence)

    def tell(self) -> int:
        return self._reader.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
        self._reader.close()


@contextmanager
def _reading(location: Location, settings: SettingsPlace) -> Iterator[None]:
    """Translate the errors of obstore while an object is read that was there before."""
    try:
        yield
    except _NOT_THERE as error:
        raise vanished(location.text) from error
    except _FAILURES as error:
        if _BEHIND_THE_END in str(error):
            raise vanished(location.text) from error
        raise translate_store_error(error, location.text, settings) from error
