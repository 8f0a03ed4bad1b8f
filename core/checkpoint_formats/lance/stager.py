"""Stage Lance fragments: data files in the dataset's own data folder, that no version names."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

import lance
import pyarrow as pa

from checkpoint_formats.lance.access import access
from checkpoint_formats.lance.datasets import open_dataset, rows_refused
from checkpoint_formats.rows.batch_sizing import cut
from checkpoint_formats.rows.plain_types import decode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.lance_schema import IDENTITY_CONFIG, differences, fields_of
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import LanceDataFile, LanceFragment, LanceTarget
from checkpoint_protocol.store.object_store import disk_full


# Lance's writer wants each buffer to begin where a value of its type may lie, or its Rust code panics. Arrow's formats promise
# 8 bytes, and a 128-bit decimal wants 16, so one that came through a socket, or from a step, may lie elsewhere.
def aligned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch; columns that lie elsewhere are copied."""
    lie_right = [_lies_right(column) for column in batch.columns]
    if all(lie_right):
        return batch
    columns = [column if right else _copy(column) for column, right in zip(batch.columns, lie_right, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _lies_right(column: pa.Array) -> bool:
    wanted = 16 if _holds_a_decimal(column.type) else 8
    return all(buffer is None or buffer.address % wanted == 0 for buffer in column.buffers())


def _holds_a_decimal(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) or any(_holds_a_decimal(kind.field(number).type) for number in range(kind.num_fields))


def _copy(column: pa.Array) -> pa.Array:
    return pa.concat_arrays([column, column.slice(0, 0)])  # of one array Arrow makes no copy


_QUEUED_BATCHES: Final = 2


class LanceStager:
    """Writes the fragments of one task try.

    Lance pulls batches in a thread of its own; the steps stay in the task's thread (a step's database connection may be bound
    to it) and hand their batches over a short queue.
    """

    def __init__(self, target: LanceTarget, target_bytes: int, storage: StorageSettings) -> None:
        self._target = target
        self._target_bytes = target_bytes
        self._storage = storage
        self._arrow_schema = decode_schema(target.arrow_schema)

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._arrow_schema

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[LanceFragment, ...]:
        first = next(batches, None)
        if first is None:
            return ()
        dataset = self._open()
        writing = Writing(
            dataset, self._arrow_schema, access(self._target.uri, self._storage), max_bytes_per_file=self._target_bytes
        )
        try:
            for batch in chain([first], batches):
                for piece in cut(batch, self._target_bytes):
                    writing.put(piece)
        except BaseException:
            writing.give_up()
            raise
        return tuple(described(fragment) for fragment in writing.finish())

    def _open(self) -> Any:
        """Return the dataset if it still is the one that was launched for. A fragment takes its field ids from it."""
        dataset = open_dataset(self._target.uri, self._storage)
        if dataset is None:
            raise Retryable(reasons.STORE_UNAVAILABLE, f"the Lance dataset {self._target.uri} is not there")
        if dataset.config().get(IDENTITY_CONFIG) != self._target.identity:
            raise NeedsChange(
                reasons.TABLE_REPLACED,
                f"the Lance dataset {self._target.uri} was made again (or restored) while the write was running",
            )
        if changed := differences(self._target.fields, fields_of(dataset)):
            raise NeedsChange(
                reasons.SCHEMA_CHANGED, f"the Lance dataset {self._target.uri} changed while the write was running: {changed[0]}"
            )
        return dataset


class Writing:
    """One call of Lance's writer in a thread, fed batch by batch. `how`: see `access`; `limits`: of the size of files, as Lance
    names them.
    """

    def __init__(self, dataset: Any, schema: pa.Schema, how: Mapping[str, Any], **limits: int) -> None:
        self._batches: queue.Queue[pa.RecordBatch | None] = queue.Queue(_QUEUED_BATCHES)
        self._gave_up = False
        self._fragments: list[Any] = []
        self._error: BaseException | None = None
        self._where = f"the Lance dataset {dataset.uri}"
        self._arguments = {
            "dataset_uri": dataset,
            "mode": "append",
            **how,
            **limits,
        }
        self._reader = pa.RecordBatchReader.from_batches(schema, self._pull())
        self._thread = threading.Thread(target=self._write, name="lance-writer", daemon=True)
        self._thread.start()

    def _pull(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._batches.get()) is not None:
            yield aligned(batch)
        if self._gave_up:
            raise _GaveUp

    def _write(self) -> None:
        try:
            self._fragments = lance.fragment.write_fragments(self._reader, **self._arguments)
        except BaseException as error:
            self._error = error

    def put(self, batch: pa.RecordBatch | None) -> None:
        while True:
            try:
                self._batches.put(batch, timeout=0.2)
                return
            except queue.Full:
                if not self._thread.is_alive():
                    self._raise()

    def finish(self) -> list[Any]:
        if self._thread.is_alive():
            self.put(None)
        self._thread.join()
        if self._error is not None:
            self._raise()
        return self._fragments

    def give_up(self) -> None:
        """End the thread without a result; what it has written is named by nobody."""
        self._gave_up = True
        if self._thread.is_alive():
            try:
                self.put(None)
            except CheckpointError:
                return
        self._thread.join()

    def _raise(self) -> None:
        assert self._error is not None
        if disk_full(self._error, "") is not None:
            raise self._error  # Whoever knows the place tells it.
        if (refused := rows_refused(self._error, self._where)) is not None:
            raise refused from self._error
        raise Retryable(reasons.STORE_UNAVAILABLE, f"writing a Lance fragment failed: {self._error}") from self._error


class _GaveUp(Exception):
    """The task has failed; the fragment must not be finished."""


def described(fragment: Any) -> LanceFragment:
    """Return what a seal says of a fragment that Lance has written."""
    plain = fragment.to_json()
    known = {"id", "files", "physical_rows"}
    if unexpected := sorted(name for name, value in plain.items() if name not in known and value not in (None, [])):
        raise NeedsChange(
            reasons.TABLE_UNSUPPORTED, f"the Lance dataset makes fragments with {unexpected[0]!r}, which cannot be staged"
        )
    return LanceFragment(
        files=tuple(
            LanceDataFile(
                path=data_file["path"],
                size_bytes=data_file["file_size_bytes"],
                fields=tuple(data_file["fields"]),
                column_indices=tuple(data_file["column_indices"]),
                major_version=data_file["file_major_version"],
                minor_version=data_file["file_minor_version"],
            )
            for data_file in plain["files"]
        ),
        rows=plain["physical_rows"],
    )
