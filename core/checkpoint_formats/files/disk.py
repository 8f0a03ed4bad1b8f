"""Input files on disk."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

import pyarrow as pa

from checkpoint_formats.failures import vanished
from checkpoint_formats.files.locations import FoundFile
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.patterns import Pattern, State
from checkpoint_protocol.places.source_paths import Location, identity_on_disk
from checkpoint_protocol.store.object_store import translate_store_error


class Disk:
    """Finds and reads files by their absolute paths."""

    def head(self, location: Location) -> FoundFile | None:
        status = _status(location.key)
        return None if status is None else _found(location.key, status)

    def identify(self, location: Location) -> str | None:
        """Device and inode of the file that is there now: links to it have the same."""
        status = _status(location.key)
        return None if status is None else identity_on_disk(location.key, status)

    def walk(self, folder: Location, pattern: Pattern) -> Iterator[FoundFile]:
        """Give the regular files below a folder that match. Links are followed, into a loop only once."""
        yield from self._walk(folder.key or "/", pattern, pattern.start(), frozenset())

    def _walk(self, folder: str, pattern: Pattern, state: State, above: frozenset[tuple[int, int]]) -> Iterator[FoundFile]:
        try:
            here = os.stat(folder)
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise translate_store_error(error, folder) from error
        if (here.st_dev, here.st_ino) in above:
            return
        for entry in entries:
            reached = pattern.step(state, entry.name)
            if not reached:
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:  # removed since, or a link to nothing
                continue
            except OSError as error:
                if error.errno == errno.ELOOP:  # a link to itself
                    continue
                raise translate_store_error(error, entry.path) from error
            if stat.S_ISDIR(status.st_mode):
                yield from self._walk(entry.path, pattern, reached, above | {(here.st_dev, here.st_ino)})
            elif stat.S_ISREG(status.st_mode) and pattern.accepts(reached):
                yield _found(entry.path, status)

    def read_range(self, location: Location, start: int, end: int) -> bytes:
        try:
            # A million files are looked at so before a plan: a file object for each would take half of the time.
            opened = os.open(location.key, os.O_RDONLY)
            try:
                parts = []
                while start < end and (part := os.pread(opened, end - start, start)):
                    parts.append(part)
                    start += len(part)
                return parts[0] if len(parts) == 1 else b"".join(parts)
            finally:
                os.close(opened)
        except FileNotFoundError as error:
            raise vanished(location.key) from error
        except OSError as error:
            raise translate_store_error(error, location.key) from error

    def open_arrow(self, location: Location) -> pa.NativeFile:
        try:
            return pa.OSFile(location.key, "rb")
        except FileNotFoundError as error:
            raise vanished(location.key) from error
        except OSError as error:
            raise translate_store_error(error, location.key) from error


def _status(path: str) -> os.stat_result | None:
    """Return the status of a regular file; None if there surely is none."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself
            return None
        raise translate_store_error(error, path) from error
    return status if stat.S_ISREG(status.st_mode) else None


def _found(path: str, status: os.stat_result) -> FoundFile:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise NeedsChange(
            reasons.SOURCE_UNREADABLE, f"source file {path!r}: its name is not UTF-8, so that it cannot be recorded; rename it"
        ) from error
    # The inode, because a file that is moved to this name may have the time and size of the old one.
    etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
    return FoundFile(path, etag, status.st_size, identity_on_disk(path, status), status.st_mtime_ns // 1_000)
