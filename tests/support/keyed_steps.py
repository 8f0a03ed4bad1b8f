"""Steps for writes whose rows are known by keys. What they do besides is told by files, as they run in Spark's processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from checkpointed_writes import row_key


def note(row: dict[str, Any], log: str) -> dict[str, Any]:
    """Write down that the row was computed."""
    with open(log, "a") as file:
        file.write(f"{row['id']}\n")
    return row


def note_key(row: dict[str, Any], log: str) -> dict[str, Any]:
    """Write down with which key the row was computed."""
    with open(log, "a") as file:
        file.write(f"{row['id']} {row_key()}\n")
    return row


def fail_at(row: dict[str, Any], number: int, until: str, column: str = "id") -> dict[str, Any]:
    """Raise at one row, until there is a file."""
    if row[column] == number and not os.path.exists(until):
        raise RuntimeError(f"not yet {number}")
    return row


def number_of(row: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the number of a row whose values are its names, each with the number behind it."""
    numbers = {int(row[name].removeprefix(name)) for name in names}
    assert len(numbers) == 1, row
    (number,) = numbers
    return {"id": number, "text": f"zeile {number}"}


def fail_once(row: dict[str, Any], number: int, marker: str) -> dict[str, Any]:
    """Raise at one row when it comes for the first time."""
    if row["id"] == number and not os.path.exists(marker):
        open(marker, "w").close()
        raise RuntimeError(f"once at {number}")
    return row


def two_of_each(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield row
    yield {**row, "id": row["id"] + 1_000_000}


def lower_names(row: dict[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in row.items()}


def unite(job: Any) -> None:
    """A program: two folders of ORC files, told apart by a column."""
    from pyspark.sql import functions as sql

    folders = os.environ["FOLDERS_OF_THE_TEST"].split(":")
    frames = [job.read(job.spark.read.orc(folder)).withColumn("origin", sql.lit(folder[-1])) for folder in folders]
    job.write(frames[0].unionByName(frames[1]))


def tag_apart(job: Any) -> None:
    """A program whose function makes two rows of each, all first ones before all second ones."""

    def tagged(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            yield frame[["id", "text"]].assign(origin="a")
            yield frame[["id", "text"]].assign(origin="b")

    _tag(job, tagged)


def tag_together(job: Any) -> None:
    """A program whose function makes two rows of each, one after the other."""

    def tagged(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            twice = frame.loc[frame.index.repeat(2), ["id", "text"]]
            yield twice.assign(origin=["a", "b"] * len(frame))

    _tag(job, tagged)


def _tag(job: Any, tagged: Any) -> None:
    frame = job.read(job.spark.read.orc(os.environ["FOLDERS_OF_THE_TEST"]))
    job.write(frame.mapInPandas(tagged, "id bigint, text string, origin string"))


def poison(given: Any, ids: list[int]) -> Any:
    """Raise on some rows, alone or in a batch."""
    found = [given["id"]] if isinstance(given, dict) else given.column("id").to_pylist()
    if bad := set(found) & set(ids):
        raise ValueError(f"poison {sorted(bad)}")
    return given
