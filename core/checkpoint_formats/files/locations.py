"""A file of the source that was found, on disk or in a bucket."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that is there, as it is now. `identity` is the same under all of its names, and no other file has it now.

    `modified_us`: when it was written, in microseconds since 1970 (UTC).
    """

    path: str
    etag: str
    size_bytes: int
    identity: str
    modified_us: int
