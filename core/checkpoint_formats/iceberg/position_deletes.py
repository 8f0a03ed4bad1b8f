"""Stage position deletes of an Iceberg table: Parquet files that say which rows of one data file are deleted.

Source of the rules: the Iceberg table specification (position delete files): reserved field ids, rows by path and position.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint_formats.iceberg.file_io import open_file_io
from checkpoint_formats.merging.reading import DELETED_ROWS, Positions, by_path
from checkpoint_protocol.identity import STAGED_FOLDER_PREFIX, EpochKey, new_token
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import IcebergDeletes, IcebergTarget

_FIELD_ID: Final = "PARQUET:field_id"
_STORED: Final = pa.schema(
    [
        pa.field("file_path", pa.dictionary(pa.int32(), pa.string()), nullable=False, metadata={_FIELD_ID: "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={_FIELD_ID: "2147483545"}),
    ]
)
#: Of positions that wait for the end of the segment.
_MOST_ROWS: Final = 1 << 23
_ROW_GROUP_ROWS: Final = 1 << 20


class PositionDeletesStager:
    """Writes one file for each data file that a segment deletes rows of. A Stager."""

    def __init__(self, target: IcebergTarget, key: EpochKey, label: str, storage: StorageSettings) -> None:
        self._folder = f"{target.data_location.rstrip('/')}/{STAGED_FOLDER_PREFIX}{key.uid}"
        self._label = f"{key.epoch}-{label}"
        self._io = open_file_io(target.data_location, storage)

    @property
    def arrow_schema(self) -> pa.Schema:
        return DELETED_ROWS

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[IcebergDeletes, ...]:
        """Write what the batches name; files are whole in the store when this returns."""
        held: dict[str, list[Positions]] = defaultdict(list)
        held_rows = 0
        finished: list[IcebergDeletes] = []

        def write_all() -> None:
            finished.extend(self._write(path, held.pop(path)) for path in sorted(held))

        for batch in batches:
            for path, positions in by_path(batch):
                held[path].append(positions)
            held_rows += batch.num_rows
            if held_rows >= _MOST_ROWS:
                write_all()
                held_rows = 0
        write_all()
        return tuple(finished)

    def _write(self, data_file: str, parts: list[Positions]) -> IcebergDeletes:
        positions = np.concatenate(parts)
        positions.sort()
        paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(positions), np.int32)), pa.array([data_file]))
        rows = pa.table([paths, pa.array(positions)], schema=_STORED)
        path = f"{self._folder}/{self._label}-{new_token()}-deletes.parquet"
        with self._io.new_output(path).create() as stream:
            pq.write_table(
                rows, stream, row_group_size=_ROW_GROUP_ROWS, compression="zstd", use_dictionary=["file_path"], store_schema=False
            )
            size_bytes = stream.tell()
        return IcebergDeletes(path=path, size_bytes=size_bytes, rows=len(positions), data_file=data_file)
