"""Programs that stream from Spark's own source of numbers, which a test controls by files. They run in Spark's processes.

<folder>/available    how many rows more there are with each micro-batch
<folder>/only         which of them the program takes
<folder>/partitions   into how many partitions Spark is to cut what it takes; another number when it replays
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

#: The variable with the folder.
FOLDER: Final = "STREAM_OF_THE_TEST"
_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def _rate(job: Any) -> Any:
    """Spark's own source that gives so many rows more with each micro-batch, and with each run that takes what is available."""
    folder = Path(os.environ[FOLDER])
    rows = job.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", (folder / "available").read_text())
    frame = rows.option("numPartitions", (folder / "partitions").read_text()).load()
    named = frame.selectExpr("value AS id", "concat('zeile ', value) AS text")
    only = folder / "only"
    return named.where(only.read_text()) if only.exists() else named


def append(job: Any) -> None:
    job.stream(_rate(job), "append", availableNow=not _goes_on())


def count(job: Any) -> None:
    """How many rows have a number that is 0, 1 or 2 beyond a multiple of 3."""
    found = _rate(job).selectExpr("id % 3 AS id").groupBy("id").count()
    job.stream(found.selectExpr("id", "CAST(count AS string) AS text"), availableNow=True)


def count_by_15(job: Any) -> None:
    """How many rows there are of each 15 numbers in a row: a micro-batch changes the last group, and begins others."""
    found = _rate(job).selectExpr("id DIV 15 AS id").groupBy("id").count()
    job.spark.conf.set(_PARTITIONS, "2")
    try:
        job.stream(found.selectExpr("id", "CAST(count AS string) AS text"), availableNow=not _goes_on())
    finally:
        job.spark.conf.unset(_PARTITIONS)


def _goes_on() -> bool:
    return (Path(os.environ[FOLDER]) / "for ever").exists()


def _refused(job: Any) -> Iterator[Callable[[], None]]:
    rate = _rate(job)
    files = job.spark.readStream.schema("id bigint").parquet(os.environ[FOLDER])
    socket = job.spark.readStream.format("socket").options(host="127.0.0.1", port="9").load()
    yield lambda: job.stream(files)
    yield lambda: job.stream(socket)
    yield lambda: job.stream(rate.unionByName(files.selectExpr("id", "'' AS text")))
    yield lambda: job.stream(rate.writeStream)
    yield lambda: job.stream(job.spark.range(3))
    yield lambda: job.stream(rate, "complete")
    yield lambda: job.stream(rate, queryName="mine")
    yield lambda: job.stream(rate, checkpointLocation="/mine")
    yield lambda: job.stream(rate, realTime="5 minutes")
    yield lambda: job.stream(rate, continuous="1 second")
    yield lambda: job.stream(rate, once=True)
    yield lambda: job.stream(rate, format="iceberg")
    yield lambda: job.stream(rate, partitionBy="id")
    yield lambda: job.stream(rate, availableNow=True, processingTime="1 second")
    yield lambda: job.write(rate)
    yield lambda: job.read(rate)


def try_what_is_refused(job: Any) -> None:
    """Write down how each of them is refused, and stream, with what they say to do; and how it is refused to do that again."""
    _note(*_refused(job))
    append(job)
    _note(lambda: append(job))


def _note(*calls: Callable[[], None]) -> None:
    with (Path(os.environ[FOLDER]) / "refused").open("a") as file:
        for call in calls:
            try:
                call()
            except Exception as error:
                file.write(f"{error}\n")
