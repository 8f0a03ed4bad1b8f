"""The first rows of a source that Spark reads, as the steps would get them: for a preview. Nothing is skipped or counted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.records import LaunchRecord, RowKey
from checkpoint_spark.dataframes import keys
from checkpoint_spark.dataframes.programs import write_source
from checkpoint_spark.dataframes.reading import refuse_repeated
from checkpoint_spark.dataframes.rows_by_key import KeyedPlace, keys_of_rows, shown_columns
from checkpoint_work.steps.places import Place


def read_first_rows(session: SparkSession, launch: LaunchRecord, rows: int) -> list[FirstRows]:
    """Return so many rows in batches. Raises CheckpointError where they cannot be read, or the program fails."""
    reading = _Reading(session, launch, rows)
    write_source(reading)
    assert reading.table is not None
    return [_first_rows(batch, reading.key_names) for batch in reading.table.combine_chunks().to_batches()]


@dataclass(slots=True)
class _Reading:
    """Takes the rows that are read as they are."""

    session: SparkSession
    launch: LaunchRecord
    rows: int
    table: pa.Table | None = None
    key_names: tuple[str, ...] = ()
    _sources: int = 0

    @property
    def is_written(self) -> bool:
        return self.table is not None

    def read(self, frame: DataFrame, key_names: tuple[str, ...], is_numbered: bool = False) -> DataFrame:
        if is_numbered:
            frame = frame.withColumn(keys.SOURCE, sql.lit(self._sources))
        self._sources += 1
        self.key_names = key_names
        return frame

    def write(self, frame: DataFrame) -> None:
        refuse_repeated(frame.columns)
        self.table = frame.limit(self.rows).toArrow()


@dataclass(frozen=True, slots=True)
class FirstRows:
    """A Batch whose rows are named by their keys, as far as these came through."""

    rows: pa.RecordBatch
    key_names: tuple[str, ...]
    keys: pa.RecordBatch
    start: int = 0

    @property
    def place(self) -> Place:
        if not self.key_names:
            return Place("the source", "rows", self.start)
        return KeyedPlace("the source", "rows", self.start, key_names=self.key_names, key_values=self.keys)

    @property
    def unreadable(self) -> CheckpointError | None:
        return None  # what Spark cannot read it raises itself

    @property
    def source_rows(self) -> int:
        return int(self.rows.num_rows)

    @property
    def positions(self) -> int:
        return self.source_rows

    @property
    def may_begin_segment(self) -> bool:
        return True

    def identity_of(self, number: int) -> RowKey:
        source, *values = (keys.value_at(column, number) for column in self.keys.columns)
        return RowKey(source=source, values=keys.texts_of(values))

    def slice(self, start: int, end: int) -> FirstRows:
        length = end - start
        return replace(self, rows=self.rows.slice(start, length), keys=self.keys.slice(start, length), start=self.start + start)


def _first_rows(batch: pa.RecordBatch, key_names: tuple[str, ...]) -> FirstRows:
    left = tuple(name for name in key_names if name in batch.schema.names)
    return FirstRows(shown_columns(batch), left, keys_of_rows(batch, left))
