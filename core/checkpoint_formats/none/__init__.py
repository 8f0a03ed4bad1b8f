"""No table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from checkpoint_formats.port import Stager
    from checkpoint_protocol.records import NoTarget


class NoStager:
    """Takes any batches and keeps none."""

    @property
    def arrow_schema(self) -> pa.Schema | None:
        return None

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[()]:
        for _ in batches:
            pass
        return ()


def open_stager(*_: object) -> Stager:
    return NoStager()


def columns_of(_: NoTarget) -> tuple[str, ...]:
    return ()
