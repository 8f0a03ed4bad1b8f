"""The stager of a target. Each target names the package of its format, so that no format is listed here."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Final, assert_never, cast

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_formats.port import Placed, Stager, StagingFormat
from checkpoint_formats.rows.where import Filter
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.where import as_of_the_sink, parse_where
from checkpoint_protocol.manifest.where import columns_of as where_columns
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import (
    Append,
    IcebergTarget,
    LanceTarget,
    Merge,
    Operation,
    OverwriteAll,
    OverwritePartitions,
    OverwriteWhere,
    StagedFile,
    Target,
    Upsert,
)
from checkpoint_protocol.records.formats.operations import AddColumns

#: Columns of a row that is refused which are told beside its key.
_MOST_SHOWN: Final = 5


class WithinWhere:
    """A stager of rows for which a condition is true: others would be added to a part of the table that nobody has named."""

    def __init__(self, stager: Stager, where: str) -> None:
        assert stager.arrow_schema is not None
        self._stager, self._where = stager, where
        with as_of_the_sink():
            self._filter = Filter(parse_where(where), stager.arrow_schema)

    @property
    def arrow_schema(self) -> pa.Schema | None:
        return self._stager.arrow_schema

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        return self._stager.stage(self._checked(batch) for batch in batches)

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        taken = self._filter.take(batch)
        if len(taken) < batch.num_rows:
            first = next(number for number, at in enumerate([*taken.to_pylist(), None]) if number != at)
            names = where_columns(parse_where(self._where))
            values = ", ".join(f"{name} = {batch.column(name)[first].as_py()!r:.200}" for name in names)
            raise NeedsChange(
                reasons.OUTPUT_OUTSIDE_WHERE,
                f"the output has a row with {values}, for which sink.where is not true ({self._where}): it would not take the "
                "place of a row of the table, but come on top; leave such rows out in a step (or by source.where, as long as "
                "nothing is sealed), or let a write of another name have a wider sink.where",
            )
        return batch


class WithKeys:
    """A stager of rows that each have a key: of NULL nobody can say whether it is in the table."""

    def __init__(self, stager: Stager, keys: Sequence[str]) -> None:
        assert stager.arrow_schema is not None
        self._stager, self._keys = stager, keys

    @property
    def arrow_schema(self) -> pa.Schema | None:
        return self._stager.arrow_schema

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        return self._stager.stage(self._checked(batch) for batch in batches)

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name in self._keys:
            column = batch.column(name)
            if column.null_count:
                first = pc.index(column.is_null(), True).as_py()
                values = ", ".join(f"{key} = {batch.column(key)[first].as_py()!r:.200}" for key in self._keys)
                rest = [field.name for field in batch.schema if field.name not in self._keys][:_MOST_SHOWN]
                row = ", ".join(f"{other} = {batch.column(other)[first].as_py()!r:.100}" for other in rest)
                raise NeedsChange(
                    reasons.OUTPUT_KEY_NULL,
                    f"the output has a row whose key is NULL ({values}{f'; {row}' if row else ''}), and sink.upsertKeys are what "
                    "rows are matched by; leave such rows out in a step (or by source.where, as long as nothing is sealed), or "
                    "give them a key",
                )
        return batch


def stager_for(
    operation: Operation, target: Target, key: EpochKey, label: str, target_bytes: int, storage: StorageSettings
) -> Stager:
    """Return a stager for one task try; `label` (attempt and task) goes into file names for people."""
    if isinstance(operation, Merge):
        return _stager_of_merge(operation, target, key, label, target_bytes, storage)
    if isinstance(operation, AddColumns):
        return _stager_of_columns(operation, target, key, label, target_bytes, storage)
    stager = _stager_of_rows(target, key, label, target_bytes, storage)
    match operation:
        case Append() | OverwriteAll() | OverwritePartitions():
            return stager
        case OverwriteWhere(where=where):
            return WithinWhere(stager, where)
        case Upsert(keys=keys):
            return WithKeys(stager, keys)
        case _:
            assert_never(operation)


def _stager_of_merge(
    operation: Merge, target: Target, key: EpochKey, label: str, target_bytes: int, storage: StorageSettings
) -> Stager:
    if isinstance(target, LanceTarget):
        from checkpoint_formats.lance.merge import LanceDeletesStager
        from checkpoint_formats.lance.staged_rows import LanceRewritesStager
        from checkpoint_formats.lance.stager import LanceStager

        if operation.rewrites:
            return Placed(LanceRewritesStager(LanceStager(target, target_bytes, storage)), target.uri)
        return Placed(LanceDeletesStager(target, storage), target.uri)
    from checkpoint_formats.iceberg.merge import PositionDeletesStager, RewritesStager

    assert isinstance(target, IcebergTarget)
    if operation.rewrites:
        return RewritesStager(target, key, label, target_bytes, storage)
    return PositionDeletesStager(target, key, label, storage)


def _stager_of_columns(
    operation: AddColumns, target: Target, key: EpochKey, label: str, target_bytes: int, storage: StorageSettings
) -> Stager:
    if not isinstance(target, LanceTarget):
        raise NeedsChange(reasons.TABLE_UNSUPPORTED, f"{target.title}: columns are added to rows of Lance datasets only")
    from checkpoint_formats.lance.columns_stager import LanceColumnsStager

    return Placed(LanceColumnsStager(target, operation.columns, key, label, target_bytes, storage), target.uri)


def _stager_of_rows(target: Target, key: EpochKey, label: str, target_bytes: int, storage: StorageSettings) -> Stager:
    return _format_of(target).open_stager(target, key, label, target_bytes, storage)


def columns_of(target: Target) -> tuple[str, ...]:
    """Return the names of the columns of a table; none where there is no table."""
    return _format_of(target).columns_of(target)


def _format_of(target: Target) -> StagingFormat:
    return cast(StagingFormat, importlib.import_module(target.staged_by))
