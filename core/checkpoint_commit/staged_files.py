"""Staged files in the store: whether they are there, with their sizes, which neither Iceberg nor Lance asks at commit; and their
removal, after a deletion."""

from __future__ import annotations

import contextlib
import datetime
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import obstore
import obstore.exceptions as obstore_errors

from checkpoint_commit.outcomes import Rejected
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.storage import StorageSettings, disk_path
from checkpoint_protocol.store.object_listing import list_objects
from checkpoint_protocol.store.object_store import head_object, open_raw_store, translate_store_error
from checkpoint_protocol.store.parallel import in_threads
from checkpoint_protocol.store.plain_files import open_file_below, remove_below

_HEADS: Final = 32
#: Whose connections are kept: those of the partitions that are written to in turn.
_FOLDERS: Final = 64
#: Enough names to cut a listing at.
_BORDERS: Final = 512


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a folder. `modified`: by the clock of the store."""

    name: str
    size_bytes: int
    modified: datetime.datetime | None


def list_files(folder: str, storage: StorageSettings) -> Iterator[ListedFile]:
    """Give the files of a folder, without those of folders in it; none where there is no such folder, which is not made.

    Raises Retryable where the store does not answer, NeedsChange where it refuses.
    """
    local = disk_path(folder, storage)
    if local is not None:
        yield from _files_on_disk(Path(local))
        return
    try:
        for meta in list_objects(open_raw_store(folder, storage), None):
            if "/" not in meta["path"]:
                yield ListedFile(meta["path"], meta["size"], meta["last_modified"])
    except (obstore_errors.BaseError, OSError) as error:
        raise translate_store_error(error, folder, storage.place) from error


def _files_on_disk(folder: Path) -> Iterator[ListedFile]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as found:
        for entry in found:
            if entry.is_file(follow_symlinks=False):
                known = entry.stat(follow_symlinks=False)
                yield ListedFile(entry.name, known.st_size, datetime.datetime.fromtimestamp(known.st_mtime, datetime.UTC))


def sizes_in(folder: str, names: Sequence[str], storage: StorageSettings) -> Mapping[str, int]:
    """Return the sizes of those of the names that exist in a folder: one listing, or a few single questions.

    Never makes the folder. Raises Retryable where the store does not answer: that is not "missing".
    """
    local = disk_path(folder, storage)
    if local is not None:
        return _sizes_on_disk(str(local), names)
    store = open_raw_store(folder, storage)
    try:
        if len(names) <= _HEADS:
            found = in_threads(lambda name: (name, _size(store, name)), names)
            return {name: size for name, size in found if size is not None}
        wanted = set(names)
        return {
            meta["path"]: meta["size"]
            for meta in list_objects(store, None, names[:: max(1, len(names) // _BORDERS)], expected=len(names))
            if meta["path"] in wanted
        }
    except (obstore_errors.BaseError, OSError) as error:
        raise translate_store_error(error, folder, storage.place) from error


def _sizes_on_disk(folder: str, names: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            known = os.stat(f"{folder}/{name}", follow_symlinks=False)
            if stat.S_ISREG(known.st_mode):
                found[name] = known.st_size
    return found


def _size(store: obstore.store.ObjectStore, name: str) -> int | None:
    try:
        return head_object(store, name)["size"]
    except (obstore_errors.NotFoundError, FileNotFoundError):
        return None


@dataclass(frozen=True, slots=True)
class FileEnd:
    """The last bytes of a file, and how many it has."""

    data: bytes
    size_bytes: int


class Tails:
    """Reads the last bytes of staged files. The connection to a folder is kept: for one file it would cost more than its end."""

    def __init__(self, storage: StorageSettings) -> None:
        self._storage = storage
        self._store = lru_cache(_FOLDERS)(lambda folder: open_raw_store(folder, storage))

    def read(self, path: str, most_bytes: int) -> bytes:
        """Return the last bytes of a file, or all that it has. As `end_of` else."""
        return self.end_of(path, most_bytes).data

    def end_of(self, path: str, most_bytes: int) -> FileEnd:
        """Return the last bytes, in one request, or two on Azure. NeedsChange if the file is gone; Retryable where its store does
        not answer.
        """
        folder, _, name = path.rpartition("/")
        local = disk_path(folder, self._storage)
        try:
            if local is None:
                return _end_in(self._store(folder), name, most_bytes)
            with open_file_below(Path(local), name) as file:
                size_bytes = os.fstat(file.fileno()).st_size
                file.seek(max(0, size_bytes - most_bytes))
                return FileEnd(file.read(most_bytes), size_bytes)
        except (obstore_errors.NotFoundError, FileNotFoundError) as error:
            raise NeedsChange(reasons.STAGED_FILE_MISSING, f"the staged file {path} is gone") from error
        except (obstore_errors.BaseError, OSError) as error:
            raise translate_store_error(error, path, self._storage.place) from error


def _end_in(store: obstore.store.ObjectStore, name: str, most_bytes: int) -> FileEnd:
    asked: obstore.GetOptions = {"range": {"suffix": most_bytes}}
    try:
        found = obstore.get(store, name, options=asked)
    except obstore_errors.NotSupportedError:  # Azure is asked for places only
        size_bytes = obstore.head(store, name)["size"]
        start = max(0, size_bytes - most_bytes)
        return FileEnd(bytes(obstore.get_range(store, name, start=start, end=size_bytes)), size_bytes)
    return FileEnd(bytes(found.bytes()), found.meta["size"])


def remove_files(folder: str, names: Sequence[str], storage: StorageSettings) -> None:
    """Remove files of a folder; those that are not there are passed over. The caller must know whose they are.

    Names are taken as they are, and must be single names. Raises Retryable where the store does not answer, NeedsChange where it
    refuses, or where the folder is a symbolic link; some may be gone then.
    """
    assert not any("/" in name or name in ("", ".", "..") for name in names)
    local = disk_path(folder, storage)
    try:
        if local is not None:
            for name in names:
                remove_below(Path(local).parent, f"{Path(local).name}/{name}")
            return
        store = open_raw_store(folder, storage)
        in_threads(lambda name: _remove(store, name), names)
    except (obstore_errors.BaseError, OSError) as error:
        raise translate_store_error(error, folder, storage.place) from error


def _remove(store: obstore.store.ObjectStore, name: str) -> None:
    with contextlib.suppress(obstore_errors.NotFoundError, FileNotFoundError):
        obstore.delete(store, name)


def find_missing(folder: str, expected: Mapping[str, int], storage: StorageSettings) -> Rejected | None:
    """Return why the files cannot be committed if one of them is gone or has another size."""
    found = sizes_in(folder, list(expected), storage)
    for name, size_bytes in expected.items():
        if name not in found:
            what = "is gone: something removed it, perhaps a cleaner of orphan files whose retention is shorter than the staging"
        elif found[name] != size_bytes:
            what = f"has {found[name]} bytes and not {size_bytes}: something has written over it"
        else:
            continue
        return Rejected(
            reasons.STAGED_FILE_MISSING,
            f"the staged file {folder}/{name} {what}; its rows are lost to this write: start a new one under another name",
        )
    return None
