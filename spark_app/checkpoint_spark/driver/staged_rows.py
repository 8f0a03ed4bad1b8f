"""A DataFrame of the table that is audited: each task reads one of its files, as the driver would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from checkpoint_protocol.errors import CheckpointError
from checkpoint_work.audits.staged_table import Piece, read_piece
from checkpoint_work.process.process_settings import storage_settings
from checkpoint_work.tasks.failures import end_task


def frame_of(session: SparkSession, pieces: Sequence[Piece], schema: pa.Schema) -> DataFrame:
    """Return the rows of the pieces, under the names and types that Spark has for this schema."""
    of_spark = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    as_arrow = to_arrow_schema(of_spark)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = storage_settings()
        try:
            for batch in batches:
                for row in batch.to_pylist():
                    for found in read_piece((row["source"], row["record"]), storage):
                        yield from pa.Table.from_batches([found]).cast(as_arrow).to_batches()
        except CheckpointError as error:
            end_task(error)

    rows = session.sparkContext.parallelize(list(pieces), max(1, len(pieces)))
    return session.createDataFrame(rows, "source string, record string").mapInArrow(read, of_spark)
