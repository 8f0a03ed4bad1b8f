"""Upsert 1 M rows, of which 900,000 have keys that are there, into 10 M: by merges of ours, and by Spark's own MERGE.

Both in one Spark of one process, on tables with the same rows in 16 files, which are put back to where they were after each
round. Spark is run twice: with position deletes, as ours, and with copies of the files, as it is by default. What pyiceberg's
upsert takes is measured with a tenth of both: it holds all in memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from benchmarks import plain_spark
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, iceberg, run_in
from benchmarks.inputs import Input, make_input
from benchmarks.pairs import Ran, Side, interleave
from benchmarks.results import Result, result_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSIONS: Final = {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"}
_MODES: Final = ("write.merge.mode", "write.update.mode", "write.delete.mode")
_CONTENT: Final = 'count(*), count(DISTINCT id), sum(hash(id, "key", epoch_us("at"), kind, value, "text"))'


def measure(bench: Bench) -> Iterator[Result]:
    base, new = _inputs(bench, 10_000_000, 40_000)
    warehouse = bench.folder / "plain"
    expected = _expected(base, new)
    with plain_spark.session(warehouse, bench.cores, more=_EXTENSIONS) as spark:
        new.show_to(spark)
        ours = _Ours(spark, Lake(bench.folder / "ours"), base, new, bench.cores)
        sides: dict[str, Side] = {
            "merge": _Plain(spark, warehouse, base, "merge-on-read"),
            "ours": ours,
            "merge by default": _Plain(spark, warehouse, base, "copy-on-write"),
        }
        cpu: dict[str, list[float]] = {name: [] for name in sides}
        ran = {name: _counted(side, cpu[name]) for name, side in sides.items()}
        times = interleave(ran, expected, bench.rounds, bench.warm_ups, bench.say)
    seen = [f"seconds of CPU: {', '.join(f'{name} {min(taken):.1f}' for name, taken in cpu.items())} at the least"]
    about = f"upsert {new.rows:,} rows into {base.rows:,} of an Iceberg table: ours / Spark's MERGE, both with position deletes"
    yield result_of("upsert-iceberg", about, times, "ours", "merge", target=0.3, seen=seen)
    about = "the same / Spark's MERGE as it is by default, with copies of files"
    yield result_of("upsert-iceberg-default", about, times, "ours", "merge by default", target=0.3)
    yield from _beside_pyiceberg(bench)


def _beside_pyiceberg(bench: Bench) -> Iterator[Result]:
    base, new = _inputs(bench, 1_000_000, 16_000)
    expected = _expected(base, new)
    with plain_spark.session(bench.folder / "plain", bench.cores) as spark:
        sides: dict[str, Side] = {
            "pyiceberg": _Pyiceberg(Lake(bench.folder / "pyiceberg"), base, new),
            "ours": _Ours(spark, Lake(bench.folder / "ours-small"), base, new, bench.cores),
        }
        times = interleave(sides, expected, min(bench.rounds, 2), 0, bench.say)
    about = f"upsert {new.rows:,} rows into {base.rows:,} of an Iceberg table: ours / pyiceberg's upsert, in one process"
    yield result_of("upsert-pyiceberg", about, times, "ours", "pyiceberg", target=0.2)


@dataclass(frozen=True, slots=True)
class _New:
    folder: Path
    rows: int

    def show_to(self, spark: SparkSession) -> None:
        spark.read.parquet(str(self.folder)).createOrReplaceTempView("new")


def _inputs(bench: Bench, rows: int, small_rows: int) -> tuple[Input, _New]:
    """Return the table's rows, and a tenth as many to be upserted: nine tenths of them with keys that are there."""
    base = make_input(bench.shared, small_rows if bench.small else rows)
    count = base.rows // 10
    folder = bench.folder / f"new-{count}"
    if not folder.is_dir():
        folder.mkdir(parents=True)
        there = np.random.default_rng(5).permutation(base.rows)[: count * 9 // 10]
        ids = np.concatenate([there, np.arange(base.rows, base.rows + count - len(there))])
        np.random.default_rng(6).shuffle(ids)
        given = pa.concat_tables([pq.read_table(file) for file in base.files[: 1 + count * 16 // base.rows]]).slice(0, count)
        table = given.set_column(0, "id", pa.array(ids, pa.int64()))
        for number in range(4):
            pq.write_table(table.slice(number * count // 4, count // 4), folder / f"{number}.parquet", compression="zstd")
    return base, _New(folder, count)


def _expected(base: Input, new: _New) -> tuple[Any, ...]:
    with duckdb.connect() as connection:
        connection.read_parquet(f"{new.folder}/*.parquet").create("new")
        old = f"SELECT * FROM read_parquet('{base.folder}/*.parquet') WHERE id NOT IN (SELECT id FROM new)"
        found = connection.sql(f"SELECT {_CONTENT} FROM ({old} UNION ALL SELECT * FROM new)").fetchone()
    assert found is not None
    return tuple(found)


def _content(metadata: str) -> tuple[Any, ...]:
    """Return what a table holds, with its deletes, as DuckDB reads it."""
    with duckdb.connect() as connection:
        for package in ("duckdb-extension-avro", "duckdb-extension-iceberg"):
            named = next(file for file in files(package) or [] if file.name.endswith(".duckdb_extension"))
            connection.execute(f"LOAD '{named.locate()}'")
        found = connection.sql(f"SELECT {_CONTENT} FROM iceberg_scan('{metadata.removeprefix('file://')}')").fetchone()
    assert found is not None
    return tuple(found)


def _filled(lake: Lake, base: Input) -> Table:
    table = lake.make_table(base.schema)
    for file in base.files:
        table.append(pq.read_table(file))
    return table


def _put_back(table: Table, snapshot_id: int) -> None:
    table.refresh().manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


class _Ours:
    def __init__(self, spark: SparkSession, lake: Lake, base: Input, new: _New, cores: int) -> None:
        self._spark, self._lake, self._new, self._cores = spark, lake, new, cores
        self._table = _filled(lake, base)
        head = self._table.current_snapshot()
        assert head is not None
        self._head = head.snapshot_id

    def __call__(self) -> Ran:
        sink = {**iceberg(self._table), "mode": "Upsert", "upsertKeys": ["id"]}
        manifest = self._lake.manifest(str(self._new.folder), sink)
        seconds = run_in(self._spark, manifest, self._lake.settings, self._cores)
        content = _content(self._table.refresh().metadata_location)
        _put_back(self._table, self._head)
        return Ran(seconds, content)


class _Pyiceberg:
    def __init__(self, lake: Lake, base: Input, new: _New) -> None:
        self._new, self._table = new, _filled(lake, base)
        head = self._table.current_snapshot()
        assert head is not None
        self._head = head.snapshot_id

    def __call__(self) -> Ran:
        started = time.perf_counter()
        self._table.refresh().upsert(pq.read_table(self._new.folder), join_cols=["id"])
        seconds = time.perf_counter() - started
        content = _content(self._table.refresh().metadata_location)
        _put_back(self._table, self._head)
        return Ran(seconds, content)


class _Plain:
    def __init__(self, spark: SparkSession, warehouse: Path, base: Input, mode: str) -> None:
        self._spark, self._name = spark, f"b.t{mode.replace('-', '')}"
        self._folder = warehouse / self._name.replace(".", "/")
        columns = ", ".join(f"{column} {kind}" for column, kind in spark.read.parquet(str(base.folder)).dtypes)
        modes = ", ".join(f"'{name}'='{mode}'" for name in _MODES)
        properties = f"{plain_spark.PROPERTIES[:-1]}, 'format-version'='2', {modes})"
        spark.sql(f"CREATE TABLE plain.{self._name} ({columns}) USING iceberg {properties}")
        plain_spark.one_task_a_file(spark, base)
        plain_spark.append(spark.read.parquet(str(base.folder)), f"plain.{self._name}")
        plain_spark.as_by_default(spark)
        (head,) = spark.sql(f"SELECT snapshot_id FROM plain.{self._name}.snapshots").collect()
        self._head = head[0]

    def __call__(self) -> Ran:
        started = time.perf_counter()
        self._spark.sql(
            f"MERGE INTO plain.{self._name} t USING new s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        seconds = time.perf_counter() - started
        version = (self._folder / "metadata" / "version-hint.text").read_text().strip()
        content = _content(str(self._folder / "metadata" / f"v{version}.metadata.json"))
        self._spark.sql(f"CALL plain.system.rollback_to_snapshot('{self._name}', {self._head})")
        return Ran(seconds, content)


def _counted(side: Side, taken: list[float]) -> Side:
    """Return the side with the CPU that it takes, read back and put back included, which is little, and alike for all."""

    def run() -> Ran:
        before = _cpu_s()
        ran = side()
        taken.append(_cpu_s() - before)
        return ran

    return run


def _cpu_s() -> float:
    total = 0.0
    own = psutil.Process()
    for process in [own, *own.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
