"""A stager that writes nothing and remembers what it was given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from checkpoint_protocol.identity import new_token
from checkpoint_protocol.records import IcebergFile
from tests.support.records import iceberg_file


@dataclass
class RememberedFiles:
    """Keeps the column `id` of each file's rows, as a table would show them after a commit."""

    rows: dict[str, list[int]] = field(default_factory=dict)
    arrow_schema: None = None

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[IcebergFile, ...]:
        rows = [number for batch in batches for number in batch.column("id").to_pylist()]
        if not rows:
            return ()
        made = iceberg_file(f"{new_token()}.parquet", len(rows))
        self.rows[made.path] = rows
        return (made,)
