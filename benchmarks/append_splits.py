"""The splits way against plain Spark: append the same files to an Iceberg table, same codec and level, a step that does nothing.

    python -m benchmarks.append_splits [--rows 8000000] [--pairs 5] [--keep FOLDER]

Both run in one Spark (local[cores]) of one process, interleaved A B A B after one warm-up of each. What is timed: from "the
files are there" to "the snapshot is in the table". Outputs are compared before times count. Prints a ratio; raw numbers go to
benchmarks/results.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from checkpoint_operator.catalogs import open_catalog
from checkpoint_operator.code import code_digest
from checkpoint_operator.core.observation import DriverState
from checkpoint_operator.local.runner import identify
from checkpoint_operator.reconcile import Reconciler, Write
from checkpoint_operator.sinks import open_sink
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import API_VERSION, KIND, parse_manifest
from checkpoint_protocol.records import LaunchRecord
from checkpoint_protocol.settings import CatalogSettings, Settings
from checkpoint_protocol.store import open_store
from checkpoint_spark.attempt import run_attempt
from checkpoint_spark.executor import execute
from tests.services.spark_iceberg import iceberg_spark_runtime

FILES = 16
TARGET = 0.6
RESULTS = Path(__file__).parent / "results.json"
CODEC = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "3"}


def generate(folder: Path, rows: int) -> pa.Schema:
    """Write the input: int64, 16-char hex, timestamp, low-card string, double, 60-char string."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(11)
    part = rows // FILES
    schema = None
    for number in range(FILES):
        ids = np.arange(number * part, (number + 1) * part)
        words = rng.integers(0, 1 << 63, part, dtype=np.int64)
        hexes = pa.array([f"{word:016x}" for word in words.tolist()])
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "key": hexes,
                "at": pa.array(1_700_000_000_000_000 + ids * 1000, pa.timestamp("us", "UTC")),
                "kind": pa.array(rng.integers(0, 20, part)).cast("string"),
                "value": pa.array(rng.normal(size=part)),
                "text": pc.binary_join_element_wise(hexes, hexes, hexes, "............", ""),
            }
        )
        pq.write_table(table, folder / f"{number:02}.parquet", compression="zstd")
        schema = table.schema
    assert schema is not None
    return schema


class SessionDrivers:
    """The driver port: an attempt runs in this process and ships its tasks with the Spark that is running."""

    def __init__(self, spark: SparkSession, store: Any, settings: Settings, cores: int) -> None:
        self.spark, self.store, self.settings, self.cores = spark, store, settings, cores
        self.done: set[int] = set()

    def expect(self, key: EpochKey, attempt: int) -> None:
        pass

    def state(self, key: EpochKey, attempt: int) -> DriverState:
        return DriverState.GONE if attempt in self.done else DriverState.UNBORN

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        def ship(orders: Sequence[str]) -> None:
            self.spark.sparkContext.parallelize(orders, len(orders)).foreach(execute)

        run_attempt(Ledger(self.store, key), launch.attempt, self.settings.for_drivers(), self.cores, ship)
        self.done.add(launch.attempt)

    def stop(self, key: EpochKey, attempt: int) -> None:
        pass


def ours(spark: SparkSession, work: Path, source: Path, settings: Settings, table: str, cores: int) -> float:
    spec = {
        "source": {"format": "parquet", "path": str(source)},
        "sink": {"iceberg": {"catalog": "bench", "table": table}},
        "checkpoint": {"uri": str(work / "checkpoints")},
    }
    name = table.replace(".", "-").replace("_", "-")
    manifest = parse_manifest({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec})
    started = time.perf_counter()
    store = open_store(manifest.spec.checkpoint.uri, settings)
    write = Write(uid=identify(store, manifest), spec=manifest.spec, code_digest=code_digest(manifest.spec))
    reconciler = Reconciler(write, store, SessionDrivers(spark, store, settings, cores), open_sink(manifest.spec.sink, settings))
    while (done := reconciler.step()).outcome is None:
        pass
    assert done.mark is not None, done.outcome
    return time.perf_counter() - started


def plain(spark: SparkSession, source: Path, table: str) -> float:
    started = time.perf_counter()
    spark.read.parquet(str(source)).writeTo(f"plain.{table}").append()
    return time.perf_counter() - started


def fingerprint(spark: SparkSession, location: str) -> tuple[Any, ...]:
    table = spark.read.format("iceberg").load(location)
    columns = ", ".join(table.columns)
    return tuple(table.selectExpr("count(*)", "sum(id)", f"sum(cast(xxhash64({columns}) as decimal(38)))").first())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="keep input and tables in this folder")
    arguments = parser.parse_args()
    work = arguments.keep or Path(tempfile.mkdtemp(prefix="checkpointed-writes-bench-"))
    cores = os.cpu_count() or 1
    try:
        run(work, arguments.rows, arguments.pairs, cores)
    finally:
        if arguments.keep is None:
            shutil.rmtree(work, ignore_errors=True)


def run(work: Path, rows: int, pairs: int, cores: int) -> None:
    source = work / "in"
    if not source.exists():
        generate(source, rows)
    schema = pq.read_schema(source / "00.parquet").remove_metadata()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.jars", str(iceberg_spark_runtime()))
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.catalog.plain", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.plain.type", "hadoop")
        .config("spark.sql.catalog.plain.warehouse", str(work / "plain"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    (work / "ours").mkdir(exist_ok=True)
    settings = Settings(
        catalogs={"bench": CatalogSettings(type="sql", uri=f"sqlite:///{work}/ours/c.db", warehouse=f"file://{work}/ours/w")}
    )
    catalog = open_catalog("bench", settings)
    catalog.create_namespace_if_not_exists("b")
    times: dict[str, list[float]] = {"plain": [], "ours": []}
    for number in range(pairs + 1):
        table = f"b.t_{time.time_ns()}"
        made = catalog.create_table(table, schema, properties=CODEC)
        columns = ", ".join(f"{name} {kind}" for name, kind in spark.read.parquet(str(source)).dtypes)
        properties = ", ".join(f"'{name}'='{value}'" for name, value in CODEC.items())
        spark.sql(f"CREATE TABLE plain.{table} ({columns}) USING iceberg TBLPROPERTIES ({properties})")
        plain_s = plain(spark, source, table)
        ours_s = ours(spark, work, source, settings, table, cores)
        expected = fingerprint(spark, f"{work}/plain/{table.replace('.', '/')}")
        found = fingerprint(spark, catalog.load_table(table).metadata_location)
        assert found == expected, f"the outputs differ: {found} and {expected}"
        assert expected[0] == rows // FILES * FILES
        label = "warm-up" if number == 0 else f"pair {number}"
        print(f"{label}: plain {plain_s:.2f} s, ours {ours_s:.2f} s, ratio {ours_s / plain_s:.2f}", flush=True)
        if number:
            times["plain"].append(round(plain_s, 3))
            times["ours"].append(round(ours_s, 3))
        spark.sql(f"DROP TABLE plain.{table} PURGE")
        shutil.rmtree(made.location().removeprefix("file://"))
    spark.stop()
    ratios = [mine / theirs for mine, theirs in zip(times["ours"], times["plain"], strict=True)]
    result = {
        "figure": f"append {rows:,} rows x 6 columns to Iceberg, no-op step, splits / plain Spark + Iceberg append",
        "ratio": round(statistics.median(ratios), 3),
        "target": TARGET,
        "pairs": len(ratios),
        "raw_s": times,
        "machine": {"cores": cores, "python": platform.python_version(), "system": platform.system()},
    }
    print(f"ratio {result['ratio']} (median of {len(ratios)} pairs; {min(ratios):.2f} to {max(ratios):.2f}); to reach: {TARGET}")
    known = (
        [entry for entry in json.loads(RESULTS.read_text()) if entry["figure"] != result["figure"]] if RESULTS.exists() else []
    )
    RESULTS.write_text(json.dumps([*known, result], indent=2) + "\n")


if __name__ == "__main__":
    main()
