"""What a path of a source means, and when two of them mean one file. No store is asked, and of a disk only where links lead.

Both programs go by it: the driver, which finds and reads the files, and the operator, which checks them beforehand.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.places.uris import SAME_STORE, account_of, scheme_of, why_not_opened


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder. `root` is scheme and bucket, or empty on disk; `key` is the key in the bucket, or the absolute path."""

    root: str
    key: str

    @property
    def text(self) -> str:
        """The form that is recorded: the same in every attempt."""
        return f"{self.root}/{self.key}" if self.root else self.key

    def at(self, key: str) -> Location:
        return replace(self, key=key)


def locate(path: str) -> Location:
    """Return what a path means. It is taken as it is written, as Hadoop does: %20 in it is no space, # is no fragment.

    NeedsChange(ManifestInvalid) for a scheme that is not supported.
    """
    if path.startswith("/"):
        return Location("", _absolute(path))
    scheme, _, rest = path.partition("://")
    if path.startswith("file:"):
        # Not urlparse: an unescaped # or ? in a name would be taken for a fragment or query, and cut off.
        return Location("", _absolute(re.sub(r"^file:(//[^/]*)?", "", path)))
    if scheme_of(path) is None:
        return Location("", _absolute(path))
    if (why := why_not_opened(path)) is not None:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"source: {why}")
    bucket, _, key = rest.partition("/")
    if key.startswith("/") or "//" in key:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"source: {path} has an empty folder name (//); such keys cannot be read")
    return Location(f"{scheme}://{bucket}", key)


def _absolute(path: str) -> str:
    if path.startswith("/") and "//" not in path and "/." not in path and not path.endswith("/"):
        return path  # as paths of files are that were found: of a million it is asked several times
    # POSIX lets two slashes at the start mean something else, so that Python keeps them; on Linux and macOS they mean one.
    return re.sub(r"^//+", "/", os.path.abspath(path))


def is_folder(path: str) -> bool:
    """Whether the path says that it is a folder."""
    return path.endswith("/")


def identity_of(location: Location, storage: StorageSettings) -> str:
    """Return what all spellings of a place have in common, and no other place has. On disk, links are not followed.

    An object is in a store, whatever its scheme is called: s3 and s3a are one, gs and gcs, az and abfs(s). But only at one
    endpoint and, in Azure, of one account, which the URI names or the storage settings do; where neither does, the spellings that
    leave it open mean the same one, that of the environment.
    """
    if not location.root:
        return location.key
    scheme, _, bucket = location.root.partition("://")
    store, account = SAME_STORE.get(scheme, scheme), ""
    entry = storage.entry_for(location.text)
    if store == "az":
        bucket, _, host = bucket.partition("@")
        account = account_of(host) or (entry.account_name or "" if entry is not None else "")
    endpoint = (entry.endpoint or "").rstrip("/") if entry is not None else ""
    return f"{store}://{account}@{endpoint}/{bucket}/{location.key}"


def distinct(paths: Iterable[str]) -> tuple[str, ...]:
    """Return paths without those that mean what one before them means, whatever the scheme. The paths are not opened."""
    found: dict[str, str] = {}
    for path in paths:
        try:
            location = locate(path)
        except NeedsChange:  # of Spark's own schemes nothing is known
            found.setdefault(path, path)
            continue
        if not location.root:
            location = location.at(os.path.realpath(location.key))
        found.setdefault(identity_of(location, StorageSettings()).rstrip("/"), path)
    return tuple(found.values())


def identity_on_disk(path: str, status: os.stat_result) -> str:
    """Return what a file that is there now has under all of its names, also those of links, and no other file has now."""
    # Some network file systems have no inodes.
    return f"{status.st_dev:x}:{status.st_ino:x}" if status.st_ino else os.path.realpath(path)


def better_name(one: str, other: str) -> str:
    """Return the one of two names of a file that no link leads to: links come and go. Else the first in order."""
    return min(one, other, key=lambda path: (_is_behind_a_link(path), path))


def _is_behind_a_link(path: str) -> bool:
    return not locate(path).root and os.path.realpath(path) != path
