"""A step that takes a fixed time for each row and gives it a new column. Both sides call it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from paced import Paced


class Adding:
    def __init__(self, row_us: float, log: str | None = None) -> None:
        self._paced = Paced(row_us, log)

    def setup(self) -> None:
        self._paced.setup()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._paced(batch)
        return pa.record_batch({"more": pc.add(batch.column("id"), 1)})
