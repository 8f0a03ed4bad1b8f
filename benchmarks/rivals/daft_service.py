"""Daft's async UDF asking a service about each row, into Iceberg, on its own runner. Runs in Daft's own environment.

Calls go under one semaphore: `max_concurrency` alone had all 20,000 begun at once, which failed for want of open files.
Writes down how long the second of two runs took, from reading to the table: the first, on one file, wakes all that sleeps.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

os.environ["DO_NOT_TRACK"] = "true"

import daft
from asking import Ask
from pyiceberg.catalog import load_catalog

job = json.loads(Path(sys.argv[1]).read_text())


@daft.cls(max_concurrency=job["at_once"])
class Asking:
    def __init__(self, url: str) -> None:
        self._step = Ask(url)
        self._is_ready = False
        self._at_once = asyncio.Semaphore(job["at_once"])

    async def ask(self, number: int) -> int:
        if not self._is_ready:
            self._is_ready = True
            await self._step.setup()
        async with self._at_once:
            return (await self._step({"id": number}))["id"]


def run(paths: str, table: str) -> float:
    opened = load_catalog("bench", **job["catalog"]).load_table(table)
    asking = Asking(job["url"])
    started = time.perf_counter()
    rows = daft.read_parquet(paths)
    rows.with_column("id", asking.ask(rows["id"])).write_iceberg(opened)
    return time.perf_counter() - started


run(f"{job['source']}/00.parquet", job["warm_up_table"])
Path(job["told"]).write_text(str(run(f"{job['source']}/*.parquet", job["table"])))
