"""Stage data files of an Iceberg table that take the place of old ones: with the rows of these that stay (copy-on-write).

They are written under the schema that the old ones were read by, and say that they lie in the same partition of the same spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema

from checkpoint_formats.iceberg.stager import IcebergStager
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import IcebergFile, IcebergRewrite, IcebergTarget, PinnedIceberg, SourceFile


def columns_of_rewrites(table: PinnedIceberg) -> pa.Schema:
    """Return all columns of a row, in the types in which they are written."""
    return schema_to_pyarrow(Schema.model_validate_json(table.table_schema_json), include_field_ids=True)


@dataclass(slots=True)
class RewritesStager:
    """Writes the rows that stay of each data file that a segment has rows of. A Stager.

    Takes what a RewritingReader gives. Nothing can be staged before `begin` has told what is read.
    """

    target: IcebergTarget
    key: EpochKey
    label: str
    target_bytes: int
    storage: StorageSettings
    _inner: IcebergStager | None = None
    _files: dict[str, SourceFile] | None = None

    @property
    def arrow_schema(self) -> None:
        return None

    def begin(self, table: PinnedIceberg, files: Iterable[SourceFile]) -> None:
        """Take down the table as it is read, and the files that are."""
        read = {
            "table_schema_json": table.table_schema_json,
            "partition_spec_json": UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
            "sort_order_json": None,
        }
        target = self.target.model_copy(update=read)
        self._inner = IcebergStager(target, self.key, self.label, self.target_bytes, self.storage)
        self._files = {file.path: file for file in files}

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[IcebergRewrite, ...]:
        """Write what stays; files are whole in the store when this returns."""
        return tuple(self._rewrite(path, given) for path, given in groupby(batches, _path_of))

    def _rewrite(self, path: str, batches: Iterator[pa.RecordBatch]) -> IcebergRewrite:
        assert self._inner is not None
        rows = 0

        def kept() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in batches:
                rows += batch.num_rows
                row = batch.column("row").filter(batch.column("stays"))
                if len(row):
                    yield pa.RecordBatch.from_arrays(row.flatten(), schema=schema)

        schema = self._inner.stored_schema
        files = tuple(self._placed(path, file) for file in self._inner.stage(kept()))
        return IcebergRewrite(data_file=path, rows=rows, files=files)

    def _placed(self, path: str, file: IcebergFile) -> IcebergFile:
        assert self._files is not None
        known = self._files[path].iceberg
        assert known is not None
        return file.model_copy(update={"spec_id": known.spec_id, "partition": known.partition})


def _path_of(batch: pa.RecordBatch) -> str:
    path: str = batch.column("file_path")[0].as_py()
    return path
