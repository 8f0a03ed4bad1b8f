"""A file of the source that was found, on disk or in a bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from checkpoint_protocol.records.inputs import SourceFile


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

    def as_source(self, unit: Literal["rows", "bytes", "records"], end: int | None, **more: Any) -> SourceFile:
        """Return the file as one of an input. `more`: other fields of it."""
        return SourceFile(path=self.path, etag=self.etag, size_bytes=self.size_bytes, unit=unit, end=end, **more)
