"""A step that asks a service for 50 ms a row, 64 rows at once: checkpointed, against a script of one's own with asyncio.

Both in a process that is running, and one task: what is compared is how well the calls are kept going, and what seals, staging
and the commit take. The start of Spark, some seconds of a write, is no part of it.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from benchmarks import outputs, plain_spark
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, iceberg, run_in
from benchmarks.http_service import serving
from benchmarks.inputs import Input
from benchmarks.pairs import Ran, interleave
from benchmarks.results import Result, result_of

_LATENCY_S: Final = 0.05
_AT_ONCE: Final = 64
_INTERVAL: Final = "5s"


def measure(bench: Bench) -> Iterator[Result]:
    source = bench.input(20_000, small_rows=1_280)
    lake = Lake(bench.folder / "lake")
    with serving(_LATENCY_S) as url, plain_spark.session(bench.folder / "plain", 1) as spark:
        step = {"call": "asking:Ask", "input": "row", "arguments": {"url": url}, "concurrency": _AT_ONCE}
        checkpoint = {"interval": _INTERVAL, "minimumBytes": "1"}

        def checkpointed() -> Ran:
            table = lake.make_table(source.schema)
            seconds = run_in(spark, lake.manifest(source, iceberg(table), checkpoint, steps=[step]), lake.settings, 1)
            return _ran(seconds, table)

        def script() -> Ran:
            table = lake.make_table(source.schema)
            started = time.perf_counter()
            _append_answers(url, source, table)
            return _ran(time.perf_counter() - started, table)

        expected = outputs.of_files(source.files)
        times = interleave({"script": script, "checkpointed": checkpointed}, expected, bench.rounds, bench.warm_ups, bench.say)
    about = (
        f"a service of 50 ms asked about each of {source.rows:,} rows, {_AT_ONCE} at once, by one task: sealed every {_INTERVAL} "
        "and appended to Iceberg / a script with asyncio and pyiceberg"
    )
    yield result_of("service-step", about, times, "checkpointed", "script", target=1.15)


def _ran(seconds: float, table: Table) -> Ran:
    ran = Ran(seconds, outputs.of_iceberg(table))
    shutil.rmtree(table.location().removeprefix("file://"))
    return ran


def _append_answers(url: str, source: Input, table: Table) -> None:
    """Do the same as one would by hand: no attempt is resumed, and whatever fails begins anew."""
    from asking import Ask  # on the import path since Spark was started

    rows = pa.concat_tables([pq.read_table(file) for file in source.files]).to_pylist()

    async def ask() -> list[dict[str, Any]]:
        step, at_once = Ask(url), asyncio.Semaphore(_AT_ONCE)
        await step.setup()

        async def one(row: dict[str, Any]) -> dict[str, Any]:
            async with at_once:
                answered: dict[str, Any] = await step(row)
                return answered

        try:
            return list(await asyncio.gather(*map(one, rows)))
        finally:
            await step.close()

    table.append(pa.Table.from_pylist(asyncio.run(ask()), schema=source.schema))
