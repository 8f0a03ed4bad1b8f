"""Stage nothing: a write without a table runs its steps once per row, for what they do."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


class NoStager:
    """Takes any batches and keeps none."""

    @property
    def arrow_schema(self) -> pa.Schema | None:
        return None

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[()]:
        for _ in batches:
            pass
        return ()
