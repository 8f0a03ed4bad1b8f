"""The bytes that a checkpointed write leaves, all records and metadata included, against those of a bare table.

Twice: against its own table without the records, which is what checkpointing adds; and against the table that Spark with
Iceberg's runtime makes of the same rows, which also compares two writers of Parquet.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks import outputs, plain_spark
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, iceberg, run_in
from benchmarks.pairs import OutputsDiffer, Ratio
from benchmarks.results import Result, with_ratio

#: Short, so that there are many seals: a job of some seconds at the default of a minute would have one for each task.
_INTERVAL: Final = "1s"


def measure(bench: Bench) -> Iterator[Result]:
    source = bench.input(8_000_000, small_rows=160_000)
    warehouse = bench.folder / "plain"
    with plain_spark.session(warehouse, bench.cores) as spark:
        with plain_spark.table_for(spark, warehouse, source) as (name, folder):
            plain_spark.append(spark.read.parquet(str(source.folder)), name)
            expected, spark_bytes = outputs.of_iceberg_folder(folder), _bytes_below(folder)
        for figure, keys, way, target in (
            ("bytes-written", "", "splits", 1.01),
            ("bytes-written-frames", "id", "DataFrame way, key int64", 1.05),
            ("bytes-written-frames-text", "key", "DataFrame way, key of 16 random characters", 1.05),
        ):
            lake = Lake(bench.folder / figure)
            table = lake.make_table(source.schema)
            manifest = lake.manifest(source, iceberg(table), {"interval": _INTERVAL}, keys)
            run_in(spark, manifest, lake.settings, bench.cores)
            if (found := outputs.of_iceberg(table)) != expected:
                raise OutputsDiffer(f"ours left {found}, and expected was {expected}")
            yield from _results(bench, figure, way, target, Path(table.location().removeprefix("file://")), lake, spark_bytes)


def _results(bench: Bench, figure: str, way: str, target: float, table: Path, lake: Lake, spark_bytes: int) -> Iterator[Result]:
    table_bytes, records_bytes = _bytes_below(table), _bytes_below(lake.folder / "checkpoints")
    keys_bytes = sum(file.stat().st_size for file in (lake.folder / "checkpoints").glob("staged/*/*/*/keys/*"))
    seals = sum(1 for _ in (lake.folder / "checkpoints").glob("staged/*/*/*/seals/*/*.json"))
    raw = {
        "bytes": {"table": table_bytes, "records": records_bytes, "of_them_keys": keys_bytes, "spark_table": spark_bytes},
        "seals": seals,
    }
    bench.say(
        f"{table_bytes:,} bytes of table, {records_bytes:,} of records ({keys_bytes:,} of keys), {seals} seals; "
        f"Spark's table {spark_bytes:,}"
    )
    sides = [(figure, f"bytes on disk, {way}, {seals} seals: table and records / the same table alone", table_bytes, target)]
    if not keys_bytes:
        about = "the same / the table that Spark + Iceberg runtime makes"
        sides.append((f"{figure}-spark", about, spark_bytes, target))
    for name, about, bare, limit in sides:
        ratio = (table_bytes + records_bytes) / bare
        yield with_ratio(name, about, Ratio(ratio, ratio, ratio), target=limit, pairs=1, raw=raw)


def _bytes_below(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
