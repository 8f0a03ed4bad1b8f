"""Columns of Spark by their names as they are, whatever is in them: where Spark takes a text, dots and backticks mean something.

Called by what reads, joins and hands over rows that Spark has read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def column(name: str) -> Column:
    """Return the column of exactly this name."""
    quoted = name.replace("`", "``")
    return sql.col(f"`{quoted}`")


def refuse_repeated(columns: Sequence[str]) -> None:
    """Refuse rows of which two columns have one name: a step would see one of them."""
    if twice := [name for name, count in Counter(columns).items() if count > 1]:
        raise NeedsChange(
            reasons.OUTPUT_SCHEMA_WRONG,
            f"what Spark gives to the steps has two columns {twice[0]!r}; name them apart (AS in sql, alias in a program)",
        )


def map_in_arrow(frame: DataFrame, function: Function, schema: StructType | str) -> DataFrame:
    """Return what a function makes of the frame's batches, which have its names. PySpark's own takes no name with a dot."""
    numbered = frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))
    return numbered.mapInArrow(partial(_named, frame.columns, function), schema)


def _named(names: Sequence[str], function: Function, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return function(batch.rename_columns(names) for batch in batches)
