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
    lake = Lake(bench.folder / "ours")
    warehouse = bench.folder / "plain"
    with plain_spark.session(warehouse, bench.cores) as spark:
        table = lake.make_table(source.schema)
        run_in(spark, lake.manifest(source, iceberg(table), {"interval": _INTERVAL}), lake.settings, bench.cores)
        with plain_spark.table_for(spark, warehouse, source) as (name, folder):
            plain_spark.append(spark.read.parquet(str(source.folder)), name)
            expected, found = outputs.of_iceberg_folder(folder), outputs.of_iceberg(table)
            if found != expected:
                raise OutputsDiffer(f"ours left {found}, and expected was {expected}")
            spark_bytes = _bytes_below(folder)
    table_bytes = _bytes_below(Path(table.location().removeprefix("file://")))
    records_bytes = _bytes_below(lake.folder / "checkpoints")
    seals = sum(1 for _ in (lake.folder / "checkpoints").glob("staged/*/*/*/seals/*/*.json"))
    raw = {"bytes": {"table": table_bytes, "records": records_bytes, "spark_table": spark_bytes}, "seals": seals}
    bench.say(f"{table_bytes:,} bytes of table, {records_bytes:,} of records, {seals} seals; Spark's table {spark_bytes:,}")
    rows = f"{source.rows:,} rows x 6 columns, {seals} seals: table and records"
    for figure, about, bare in (
        ("bytes-written", f"bytes on disk, {rows} / the same table alone", table_bytes),
        ("bytes-written-spark", f"bytes on disk, {rows} / the table that Spark + Iceberg runtime makes", spark_bytes),
    ):
        ratio = (table_bytes + records_bytes) / bare
        yield with_ratio(figure, about, Ratio(ratio, ratio, ratio), target=1.01, pairs=1, raw=raw)


def _bytes_below(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
