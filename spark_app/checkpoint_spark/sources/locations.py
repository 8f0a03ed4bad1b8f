"""What a path of the source means: a file on disk, or an object in a bucket."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

_BUCKET_SCHEMES: Final = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")


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


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that is there, as it is now."""

    path: str
    etag: str
    size_bytes: int


def locate(path: str) -> Location:
    """Return what a path means. It is taken as it is written, as Hadoop does: %20 in it is no space, # is no fragment.

    NeedsChange(ManifestInvalid) for a scheme that is not supported.
    """
    scheme, separator, rest = path.partition("://")
    if path.startswith("file:"):
        # Not urlparse: an unescaped # or ? in a name would be taken for a fragment or query, and cut off.
        return Location("", os.path.abspath(re.sub(r"^file:(//[^/]*)?", "", path)))
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return Location("", os.path.abspath(path))
    bucket, _, key = rest.partition("/")
    if scheme not in _BUCKET_SCHEMES or not bucket:
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"source: {path} cannot be read: a path on disk, file: or one of {', '.join(s + '://' for s in _BUCKET_SCHEMES)} "
            "with a bucket is expected",
        )
    if key.startswith("/") or "//" in key:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"source: {path} has an empty folder name (//); such keys cannot be read")
    return Location(f"{scheme}://{bucket}", key)


def is_folder(path: str) -> bool:
    """Whether the path says that it is a folder."""
    return path.endswith("/")
