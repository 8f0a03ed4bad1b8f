"""Stage columns of rows that a Lance dataset has: files of values with the addresses of their rows, in a folder of the write.

A segment is smaller than a fragment, as a rule, and a data file with a column has all rows of one. So what the steps give is
staged by itself, and put together when all of it is there (`packing/`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np
import obstore
import pyarrow as pa
from lance.file import LanceFileWriter

from checkpoint_formats.lance.access import access
from checkpoint_formats.lance.datasets import rows_refused
from checkpoint_formats.rows.batch_sizing import cut
from checkpoint_formats.rows.plain_types import decode_schema
from checkpoint_formats.rows.selecting import ADDRESS_FIELD, ROW_ADDRESS, fragments_of, places_of, without_addresses
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable, one_line
from checkpoint_protocol.identity import STAGED_FOLDER_PREFIX, EpochKey, new_token
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import ColumnRows, LanceTarget, StagedColumns
from checkpoint_protocol.store.object_store import disk_full, head_object, open_raw_store, translate_store_error

#: The name of the places in the files: an address is of a version of the dataset, and these files are of several.
PLACE: Final = "_place"


def staged_folder(key: EpochKey) -> str:
    """Return the folder, below the dataset, of what an epoch stages for columns. No stage stages there."""
    return f"{STAGED_FOLDER_PREFIX}{key.uid}/{key.epoch}/"


class LanceColumnsStager:
    """Writes the values of one task try. A file is rolled near its target size."""

    def __init__(
        self,
        target: LanceTarget,
        columns: tuple[str, ...],
        key: EpochKey,
        label: str,
        target_bytes: int,
        storage: StorageSettings,
    ) -> None:
        schema = decode_schema(target.arrow_schema)
        self._uri = target.uri
        self._folder, self._label = staged_folder(key), label
        self._target_bytes = target_bytes
        self._storage = storage
        self._values = pa.schema([_of_table(schema, name, target) for name in columns])

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns that get values, and of which row each is."""
        return self._values.append(ADDRESS_FIELD)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[StagedColumns, ...]:
        files: list[StagedColumns] = []
        writing: _File | None = None
        for batch in batches:
            for piece in cut(batch, self._target_bytes):
                writing = writing or self._begin()
                writing.add(piece)
                if writing.size_bytes >= self._target_bytes:
                    files.append(self._end(writing))
                    writing = None
        if writing is not None:
            files.append(self._end(writing))
        return tuple(files)

    def _begin(self) -> _File:
        path = f"{self._folder}{self._label}-{new_token()}.lance"
        return _File(self._uri, path, self._values, access(self._uri, self._storage))

    def _end(self, writing: _File) -> StagedColumns:
        writing.close()
        try:
            size_bytes = head_object(open_raw_store(self._uri, self._storage), writing.path)["size"]
        except (obstore.exceptions.BaseError, OSError) as error:
            raise translate_store_error(error, f"{self._uri}/{writing.path}") from error
        return StagedColumns(path=writing.path, size_bytes=size_bytes, rows=writing.rows, parts=tuple(writing.parts))


def _of_table(schema: pa.Schema, name: str, target: LanceTarget) -> pa.Field:
    number = schema.get_field_index(name)
    if number < 0:
        raise NeedsChange(reasons.SCHEMA_CHANGED, f"the Lance dataset {target.uri} does not have the column {name!r} any more")
    field: pa.Field = schema.field(number)
    return field


class _File:
    """A file that is being written, and which rows it has."""

    def __init__(self, uri: str, path: str, values: pa.Schema, how: Mapping[str, Any]) -> None:
        self.path = path
        self.rows = self.size_bytes = 0
        self.parts: list[ColumnRows] = []
        self._schema = pa.schema([pa.field(PLACE, pa.uint32(), nullable=False), *values])
        self._where = f"{uri.rstrip('/')}/{path}"
        self._writer: Any = LanceFileWriter(self._where, self._schema, **how)

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        addresses = batch.column(batch.schema.get_field_index(ROW_ADDRESS)).to_numpy()
        places = places_of(addresses)
        columns = [batch.column(batch.schema.get_field_index(name)) for name in without_addresses(batch.schema).names]
        made = pa.RecordBatch.from_arrays([pa.array(places, pa.uint32()), *columns], schema=self._schema)
        try:
            self._writer.write_batch(made)
        except (ValueError, OSError) as error:
            raise self._translated(error) from error
        self.rows += batch.num_rows
        self.size_bytes += batch.nbytes
        fragments = fragments_of(addresses)
        borders = [0, *(np.flatnonzero(np.diff(fragments)) + 1).tolist(), len(fragments)]
        for start, end in pairwise(borders):
            self._note(int(fragments[start]), end - start, int(places[start]), int(places[end - 1]))

    def _note(self, fragment: int, rows: int, first: int, last: int) -> None:
        before = self.parts[-1] if self.parts else None
        if before is not None and before.fragment == fragment and before.last < first:
            self.parts[-1] = ColumnRows(fragment=fragment, rows=before.rows + rows, first=before.first, last=last)
        else:
            self.parts.append(ColumnRows(fragment=fragment, rows=rows, first=first, last=last))

    def close(self) -> None:
        try:
            self._writer.close()
        except (ValueError, OSError) as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> Exception:
        if (full := disk_full(error, self._where)) is not None:
            return full
        if (refused := rows_refused(error, self._where)) is not None:
            return refused
        return Retryable(reasons.STORE_UNAVAILABLE, f"{self._where} could not be written: {one_line(error)}")
