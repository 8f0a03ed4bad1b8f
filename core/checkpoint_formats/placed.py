"""A stager whose files lie at a place: what the disk there does not take is told with that place."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from checkpoint_formats.port import Stager
from checkpoint_protocol.records import StagedFile
from checkpoint_protocol.store.object_store import disk_full, translate_store_error

_REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, slots=True)
class Placed:
    """A stager, and where its files lie: what the disk there does not take is told with that place.

    What the steps raise is an error of ours already when it comes through here.
    """

    stager: Stager
    place: str

    @property
    def arrow_schema(self) -> pa.Schema | None:
        return self.stager.arrow_schema

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        try:
            return self.stager.stage(batches)
        except OSError as error:
            if (full := disk_full(error, self.place)) is not None:
                raise full from error
            if error.errno in _REFUSED:
                raise translate_store_error(error, self.place) from error
            raise
