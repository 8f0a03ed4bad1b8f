"""Stage rows of a stage's result: Arrow IPC files, in record batches of which each can be read alone.

Arrow and not Parquet: what the next stage gets has the types that the steps gave, to the unit of a timestamp, and nothing is
encoded and decoded between two stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import obstore
import obstore.exceptions as obstore_errors
import pyarrow as pa

from checkpoint_formats.rows.batch_sizing import cut
from checkpoint_formats.rows.plain_types import decode_schema
from checkpoint_formats.stage_results.groups import by_bucket
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.places.setting_values import SettingsPlace
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import StageFile, StageTarget
from checkpoint_protocol.store.object_store import open_raw_store, translate_store_error

#: A task that begins inside a record batch reads the whole of it.
_BATCH_BYTES: Final = 4 << 20
_BATCH_ROWS: Final = 65_536


class StageResultStager:
    """Writes the files of one task try. Names carry a random token, so that nothing is ever overwritten."""

    def __init__(self, target: StageTarget, label: str, target_bytes: int, storage: StorageSettings) -> None:
        self._schema = decode_schema(target.arrow_schema)
        self._shuffles = target.shuffles
        self._folder, self._label = target.folder, label
        self._target_bytes = target_bytes
        self._store = open_raw_store(target.folder, storage)
        self._place = storage.place

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._schema

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[StageFile, ...]:
        finished: list[StageFile] = []
        current: _OpenFile | None = None
        for batch, bucket in self._pieces(batches):
            if current is None:
                current = self._open()
            current.write(batch, bucket)
            if current.size_bytes >= self._target_bytes:
                finished.append(current.finish())
                current = None
        if current is not None:
            finished.append(current.finish())
        return tuple(finished)

    def _pieces(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, int | None]]:
        if self._shuffles is not None:
            return by_bucket(batches, self._shuffles)
        return ((batch, None) for batch in _sized(batches))

    def _open(self) -> _OpenFile:
        name = f"{self._label}-{new_token()}.arrow"
        return _OpenFile(self._store, name, self._schema, f"{self._folder}/{name}", self._place)


class _OpenFile:
    """A file that is being written. It is in the store as a whole once `finish` returns; before, no reader finds it."""

    def __init__(self, store: Any, name: str, schema: pa.Schema, path: str, place: SettingsPlace) -> None:
        self._name, self._path, self._place = name, path, place
        self._object = _Object(obstore.open_writer(store, name))
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_file(pa.PythonFile(self._object, mode="w"), schema, options=options)
        self._batches: list[int] = []
        self._buckets: list[int] = []

    @property
    def size_bytes(self) -> int:
        return self._object.size_bytes

    def write(self, batch: pa.RecordBatch, bucket: int | None) -> None:
        try:
            self._writer.write_batch(batch)
        except (obstore_errors.BaseError, OSError) as error:
            raise translate_store_error(error, self._path, self._place) from error
        self._batches.append(batch.num_rows)
        if bucket is not None:
            self._buckets.append(bucket)

    def finish(self) -> StageFile:
        try:
            self._writer.close()
            self._object.put()
        except (obstore_errors.BaseError, OSError) as error:
            raise translate_store_error(error, self._path, self._place) from error
        return StageFile(
            name=self._name,
            size_bytes=self.size_bytes,
            rows=sum(self._batches),
            batches=tuple(self._batches),
            buckets=tuple(self._buckets),
        )


class _Object:
    """A file of Python's kind, as pyarrow wants one, in which bytes are counted. `put` makes the object."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self.size_bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self._writer.write(memoryview(data).cast("B"))
        self.size_bytes += len(data)
        return len(data)

    def flush(self) -> None:
        """What is buffered goes with the rest."""

    def tell(self) -> int:
        return self.size_bytes

    def put(self) -> None:
        self._writer.close()
        self.closed = True


def _sized(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give the same rows in batches of about the same size: steps may give one row at a time, or all of them."""
    pending: list[pa.RecordBatch] = []
    size_bytes = rows = 0
    for batch in (piece for given in batches for piece in cut(given, _BATCH_BYTES)):
        if not batch.num_rows:
            continue
        if pending and (size_bytes + batch.nbytes > _BATCH_BYTES or rows + batch.num_rows > _BATCH_ROWS):
            yield pa.concat_batches(pending)
            pending, size_bytes, rows = [], 0, 0
        pending.append(batch)
        size_bytes, rows = size_bytes + batch.nbytes, rows + batch.num_rows
    if pending:
        yield pa.concat_batches(pending)
