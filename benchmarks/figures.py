"""The figures there are, in the order in which `make bench` measures them. Their modules are imported where they are run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from benchmarks.bench import Bench
from benchmarks.results import Result

Measure = Callable[[Bench], Iterator[Result]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A module of this package with a function of a bench. `minutes`: what it takes on 2 cores; its limit is thrice that."""

    name: str
    module: str
    minutes: float
    about: str
    function: str = "measure"

    def load(self) -> Measure:
        return cast(Measure, getattr(importlib.import_module(f"benchmarks.{self.module}"), self.function))


FIGURES = (
    Figure("append-iceberg", "append_iceberg", 4, "append to Iceberg: splits / Spark + Iceberg runtime"),
    Figure(
        "overwrite-partitions", "overwrite_partitions", 6, "overwrite partitions of Iceberg: splits / Spark + Iceberg runtime"
    ),
    Figure("append-frames", "append_frames", 7, "append to Iceberg: DataFrames / Spark + Iceberg runtime"),
    Figure("upsert-iceberg", "upsert_iceberg", 15, "upsert into Iceberg: ours / Spark's MERGE, and / pyiceberg's upsert"),
    Figure("append-lance", "append_lance", 4, "append to Lance: splits / lance.write_dataset, and / Spark's write.parquet"),
    Figure("add-columns", "add_columns", 10, "a column by a slow step: AddColumns / lance's add_columns; and after a kill"),
    Figure("first-minute", "first_minute", 3, "1,000 rows with all start-ups: ours / PySpark, and / Daft; validate and preview"),
    Figure("slow-step", "slow_step", 5, "a step of 1 ms a row: checkpointed / plain Spark"),
    Figure("pipeline", "pipelines", 12, "three stages / chained by hand in plain PySpark; and an edit of the last / all three"),
    Figure(
        "service-step",
        "service_step",
        6,
        "a service of 50 ms asked about each row, 64 at once: checkpointed / a script with asyncio",
    ),
    Figure(
        "service-rivals", "service_rivals", 12, "the same calls, 64 at once: ours / Daft's async UDF, and / an actor of Ray Data"
    ),
    Figure("service-limit", "service_limit", 7, "a service that refuses 5 % of the calls: calls a second / the rate limit"),
    Figure("memo-kill", "memo_kill", 5, "a driver killed at 90 % of the calls of a step with memo: calls made twice / the bound"),
    Figure("small-epochs", "small_epochs", 12, "epochs of 1,000 rows with a driver that waits, from the file to the snapshot"),
    Figure("late-epoch", "late_epoch", 5, "epoch 10,001 / epoch 2: to know what all epochs before have taken"),
    Figure("bytes-written", "bytes_written", 2, "bytes on disk: with seals and records / the bare table"),
    Figure("anti-join", "anti_join", 14, "20 M rows without 10 M sealed keys: ours / the best of Spark's own strategies"),
    Figure("keys-at-scale", "keys_at_scale", 8, "100 M rows by keys, a kill at half: the memory of all processes / 6 GiB"),
    Figure("resume", "resume", 20, "the rest after a killed driver, at 10, 50, 90, 99 %: time and input read / a full run"),
    Figure(
        "commit-alone", "commit_alone", 1, "everything sealed, no driver: the operator's commit / pyiceberg's of the same files"
    ),
    Figure("commit", "commit_files", 5, "close and commit of 1 and 1,000 staged files / pyiceberg's fast append"),
    Figure("commit-100000", "commit_files", 15, "the same of 100,000 staged files, on disk", "measure_many"),
    Figure("commit-100000-50ms", "commit_files", 30, "the same of 100,000 staged files, 50 ms a request", "measure_many_slowly"),
    Figure("commit-memory", "commit_memory", 2, "memory of close and commit of 100,000 staged files / 64 MB"),
    Figure("crash", "crash", 45, "a job killed at 50 % and run again: ours / Ray Data, Daft, plain Spark"),
    Figure("driver-pods", "driver_pods", 3, "driver pods of 1,000 writes on a real API server: the operator / a bare client"),
)


def find(name: str) -> Figure:
    """Return the figure of that name. KeyError says which there are."""
    for figure in FIGURES:
        if figure.name == name:
            return figure
    raise KeyError(f"there is no figure {name!r}; there are {', '.join(figure.name for figure in FIGURES)}")
