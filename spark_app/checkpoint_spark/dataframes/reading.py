"""The source as a DataFrame, the secrets that its reader needs, and columns with any name."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.source import SparkSource
from checkpoint_protocol.places.source_paths import distinct

# Columns of Spark by their names as they are, whatever is in them: where Spark takes a text, dots and backticks mean something.
#
# Called by what reads, joins and hands over rows that Spark has read.


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


_VARIABLE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_SHORTEST_SECRET: Final = 4


@dataclass(slots=True)
class Secrets:
    """Variables of this process that reader options name. Their values go to Spark and nowhere else."""

    _values: set[str] = field(default_factory=set)

    def resolve(self, name: str, value: str) -> str:
        """Return the option's value with its variables put in."""

        def of(match: re.Match[str]) -> str:
            found = os.environ.get(match[1])
            if found is None:
                raise NeedsChange(
                    reasons.MANIFEST_INVALID,
                    f"source.spark.options.{name} names the variable {match[1]}, which the driver's environment does not have; "
                    "set it (in a cluster: in spec.driver.template, from a Secret)",
                )
            if len(found) >= _SHORTEST_SECRET:
                self._values.add(found)
            return found

        return _VARIABLE.sub(of, value)

    def hide(self, text: str) -> str:
        """Return the text without any of the values."""
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, "***")
        return text


def read_source(session: SparkSession, source: SparkSource, columns: Sequence[str] | None, secrets: Secrets) -> DataFrame:
    """Return these columns (None: all) of the source as Spark reads it; nothing but its schema is read yet."""
    try:
        frame = _opened(session, source, secrets)
        return frame if columns is None else frame.select(*map(column, columns))
    except AnalysisException as error:
        if (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
            said = secrets.hide(first_line(error))
            raise NeedsChange(reasons.MANIFEST_INVALID, f"spec.source.columns: Spark finds no such column: {said}") from None
        missing = error.getCondition() in ("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "DATA_SOURCE_NOT_FOUND")
        raise NeedsChange(
            reasons.SOURCE_MISSING if missing else reasons.SOURCE_UNREADABLE,
            secrets.hide(f"Spark cannot read the source: {first_line(error)}"),
        ) from None


def _opened(session: SparkSession, source: SparkSource, secrets: Secrets) -> DataFrame:
    options = {name: secrets.resolve(name, value) for name, value in source.options.items()}
    reader = session.read.options(**options)
    if source.table is not None:
        return reader.table(source.table)
    assert source.format is not None, "the validator has seen one of the two"
    reader = reader.format(source.format)
    # Spark reads a path that is said twice twice.
    return reader.load(list(distinct(source.paths))) if source.paths else reader.load()


def first_line(error: PySparkException) -> str:
    """Return what Spark says, without plans and Java's stack."""
    text = str(error).split("JVM stacktrace")[0].split("\n== ")[0].split(";\n")[0]
    return " ".join(text.split())[:2000]
