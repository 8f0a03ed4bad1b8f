"""Write what the columns of whole fragments are to be: one data file for each, which a commit puts beside those that it has.

A fragment's file has all of its rows, deleted ones too: Lance finds values by their place. One with too few would make the
dataset unreadable, so each is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkpoint_formats.failures import gone
from checkpoint_formats.lance.access import access
from checkpoint_formats.lance.datasets import open_dataset
from checkpoint_formats.lance.stager import Writing, described
from checkpoint_formats.rows.plain_types import decode_schema
from checkpoint_formats.rows.selecting import ADDRESS_FIELD, ROW_ADDRESS, fragments_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import LanceColumnFile, LancePackTarget

#: More than a fragment has. Lance takes 2^32 for 0.
_MOST_ROWS: Final = (1 << 32) - 1
_MOST_BYTES: Final = 1 << 50


class ColumnFileStager:
    """Writes the files of one task try, a file for each fragment that it is given."""

    def __init__(self, target: LancePackTarget, storage: StorageSettings) -> None:
        self._target, self._storage = target, storage
        self._values = decode_schema(target.arrow_schema)

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._values.append(ADDRESS_FIELD)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[LanceColumnFile, ...]:
        files: list[LanceColumnFile] = []
        writing: _ColumnFile | None = None
        dataset: Any = None
        try:
            for batch in batches:
                fragments = fragments_of(batch.column(batch.schema.get_field_index(ROW_ADDRESS)).to_numpy())
                values = batch.drop_columns([ROW_ADDRESS])
                borders = [0, *(np.flatnonzero(np.diff(fragments)) + 1).tolist(), len(fragments)]
                for start, end in pairwise(borders):
                    if start == end:
                        continue
                    if writing is not None and writing.fragment != fragments[start]:
                        files.append(writing.finish())
                        writing = None
                    if writing is None:
                        dataset = dataset if dataset is not None else self._open()
                        writing = _ColumnFile(dataset, int(fragments[start]), self._values, self._target.uri, self._storage)
                    writing.put(values.slice(start, end - start))
        except BaseException:
            if writing is not None:
                writing.give_up()
            raise
        if writing is not None:
            files.append(writing.finish())
        return tuple(files)

    def _open(self) -> Any:
        dataset = open_dataset(self._target.uri, self._storage, self._target.at_version)
        if dataset is None:
            raise gone(f"version {self._target.at_version}", f"the Lance dataset {self._target.uri}", "keep versions")
        return dataset


class _ColumnFile:
    """The file of one fragment, while it is written."""

    def __init__(self, dataset: Any, fragment: int, schema: pa.Schema, uri: str, storage: StorageSettings) -> None:
        self.fragment = fragment
        self._rows = 0
        self._uri = uri
        self._there = dataset.get_fragment(fragment)
        self._writing = Writing(
            dataset, schema, access(uri, storage), max_rows_per_file=_MOST_ROWS, max_bytes_per_file=_MOST_BYTES
        )

    def put(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        self._writing.put(batch)

    def give_up(self) -> None:
        self._writing.give_up()

    def finish(self) -> LanceColumnFile:
        made = [described(fragment) for fragment in self._writing.finish()]
        rows = self._there.physical_rows
        if len(made) != 1 or len(made[0].files) != 1 or made[0].rows != self._rows or self._rows != rows:
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"fragment {self.fragment} of {self._uri} has {rows} rows, and Lance has made {len(made)} fragments with "
                f"{sum(one.rows for one in made)} rows for its columns",
            )
        beside = tuple(file.path for file in self._there.data_files())
        return LanceColumnFile(fragment=self.fragment, file=made[0].files[0], rows=rows, beside=beside)
